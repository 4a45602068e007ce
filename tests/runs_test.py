"""Whole runs on the toy corpus: resume, records, failures, and use from Python."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer_jax
from tests import refusals, tiny
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax.data import dataset
from transformer_jax.decoding import beam_search
from transformer_jax.distributed import sharding
from transformer_jax.runs import run_folder, training_run
from transformer_jax.training import checkpoint, loop, metrics
from transformer_jax.training import step as step_lib

STEPS = 60  # long enough to be killed in the middle


def parameters(workdir):
    """The last checkpoint's parameters, as arrays by name."""
    config = run_folder.read_config(workdir)
    digest = json.loads((workdir / "run.json").read_text())["digests"]["tokenizer"]
    model = models.build(config.model, config.data.vocab_size)
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    checkpoints = checkpoint.Checkpoints(workdir / "checkpoints", config, digest)
    state = checkpoints.restore(step_lib.state_shapes(model, config, mesh)).state
    checkpoints.close()
    return jax.tree.map(np.asarray, state)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def command(workdir, cache_dir, **overrides):
    sizes = {"model.num_layers": 1, "train.num_steps": STEPS, "checkpoint.every": 10}
    values = {**tiny.OVERRIDES, **sizes, **overrides}
    return [
        "transformer_jax.train",
        "--config=configs/toy.py",
        *(f"--config.{name}={value}" for name, value in values.items()),
        f"--workdir={workdir}",
        f"--cache_dir={cache_dir}",
    ]


# A separate process, in which a warning is an error.
PYTHON = [
    *(sys.executable, "-W", "error"),
    *("-W", "ignore:the load_module:DeprecationWarning"),  # ml_collections reads config files so
    "-m",
]


@pytest.fixture(scope="module")
def finished(server, tmp_path_factory, cache_dir):
    """An undisturbed run, as a user starts it."""
    workdir = tmp_path_factory.mktemp("finished")
    done = subprocess.run(
        [*PYTHON, *command(workdir, cache_dir)],
        capture_output=True,
        text=True,
        check=False,
        env=server.environment,
    )
    assert done.returncode == 0, done.stderr
    return workdir, done.stderr


def test_a_run_leaves_all_its_files(finished):
    workdir, _ = finished
    result = json.loads((workdir / "result.json").read_text())
    expected = (
        "row seed params steps ppl bleu tokens_per_second wall_seconds eval_seconds git_commit "
        "config_hash data_sha256 tokenizer_sha256 overrides"
    )
    assert set(expected.split()) <= set(result)
    assert result["steps"] == STEPS
    assert result["overrides"]["model.d_k"] == 6
    assert 1 < result["ppl"] < 1000
    assert "tok:13a" in result["bleu"]["sacrebleu_13a"]["signature"]
    assert len((workdir / "hypotheses.txt").read_text().splitlines()) == 16
    assert [record["step"] for record in metrics.read(workdir)] == list(range(2, STEPS + 1, 2))
    assert list((workdir / "tensorboard").iterdir())
    config = json.loads((workdir / "config.json").read_text())
    assert config_lib.from_mapping(config).model.d_k == 6


def test_progress_shows_step_loss_speed_and_time_left(finished):
    _, log = finished
    assert "packing fills" in log
    line = next(line for line in log.splitlines() if f"step 4 of {STEPS}" in line)
    for part in ("loss", "ppl", "target tokens/s", "left"):
        assert part in line


def newest_checkpoint(workdir):
    found = (workdir / "checkpoints").glob("*/manifest.json")
    return max((int(path.parent.name) for path in found), default=0)


def test_killed_and_started_again_ends_bit_for_bit_the_same(server, finished, tmp_path, cache_dir):
    workdir, _ = finished
    process = subprocess.Popen(
        [*PYTHON, *command(tmp_path, cache_dir)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=server.environment,
    )
    while process.poll() is None and not newest_checkpoint(tmp_path):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    reached = newest_checkpoint(tmp_path)
    assert reached < STEPS
    spent = next(r["wall_seconds"] for r in metrics.read(tmp_path) if r["step"] == reached)
    done = server.run(*command(tmp_path, cache_dir))
    assert done.code == 0, done.stderr
    assert f"resuming from the checkpoint of step {reached}" in done.stderr
    assert_same(parameters(workdir), parameters(tmp_path))
    assert (workdir / "hypotheses.txt").read_text() == (tmp_path / "hypotheses.txt").read_text()
    records = metrics.read(tmp_path)
    assert [record["step"] for record in records] == list(range(2, STEPS + 1, 2))
    assert [r["loss"] for r in records] == [r["loss"] for r in metrics.read(workdir)]
    assert next(r["wall_seconds"] for r in records if r["step"] > reached) > spent


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_and_another_is_not(server, finished, tmp_path, cache_dir):
    workdir, _ = finished
    for name, seed in (("same", 0), ("other", 1)):
        done = server.run(*command(tmp_path / name, cache_dir, **{"train.seed": seed}))
        assert done.code == 0, done.stderr
    assert_same(parameters(workdir), parameters(tmp_path / "same"))
    embeddings = [
        parameters(folder).params["params"]["embedding"] for folder in (workdir, tmp_path / "other")
    ]
    assert not np.array_equal(*embeddings)


def test_a_finished_run_is_left_alone(server, finished, cache_dir):
    workdir, _ = finished
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*") if path.is_file()}
    done = server.run(*command(workdir, cache_dir))
    assert done.code == 0, done.stderr
    assert "nothing is left to do" in done.stderr
    after = {path: path.stat().st_mtime_ns for path in workdir.rglob("*") if path.is_file()}
    assert before == after


def test_a_folder_of_another_config_is_refused(server, finished, cache_dir):
    workdir, _ = finished
    done = server.run(*command(workdir, cache_dir, **{"model.d_ff": 32, "train.seed": 5}))
    message = "model.d_ff is 24 there, 32 here; train.seed is 0 there, 5 here"
    refusals.assert_refused(done, message)


def test_config_json_is_updated_until_the_run_is_finished(make_config, tmp_path, cache_dir):
    configs = [make_config({"log.every": every, "checkpoint.every": every}) for every in (1, 2, 3)]
    data = dataset.load(configs[0].data, cache_dir)
    hashes = [run_folder.claim(tmp_path, config, data) for config in configs[:2]]
    assert run_folder.read_config(tmp_path) == configs[1]
    (tmp_path / "result.json").touch()
    hashes.append(run_folder.claim(tmp_path, configs[2], data))
    assert run_folder.read_config(tmp_path) == configs[1]
    assert len(set(hashes)) == 1


def test_the_run_that_weights_come_from_is_part_of_the_hash(make_config, tmp_path, cache_dir):
    source, own = tmp_path / "source", tmp_path / "own"
    config = make_config({"train.start_from": str(source)})
    data = dataset.load(config.data, cache_dir)
    with pytest.raises(errors.UserError, match=f"start_from={source}: .* holds no finished run"):
        run_folder.claim(own, config, data)
    hashes = [run_folder.claim(source, make_config({"train.seed": n}), data) for n in (0, 1)]
    own_hash = run_folder.claim(own, config, data)
    assert run_folder.read_record(own)["digests"]["start_from"] == hashes[1]
    (own / "checkpoints" / "4").mkdir(parents=True)
    (source / "run.json").rename(tmp_path / "run.json")  # a run that has started does without
    assert run_folder.claim(own, config, data) == own_hash
    files.write_json(source / "run.json", {"config_hash": hashes[0], "digests": {}})
    with pytest.raises(errors.UserError, match="the start_from differs"):
        run_folder.claim(own, config, data)


def test_translations_come_in_the_order_of_the_sentences(finished, monkeypatch):
    workdir, _ = finished
    translator = transformer_jax.load(workdir)

    # A search that says each source sentence again shows where every sentence went.
    def echo(params, source):
        return beam_search.Translations(source.tokens, source.tokens[:, 0])

    monkeypatch.setattr(translator, "_search", echo)
    sentences = [f"{'very ' * (7 * n % 40)}old number {n}" for n in range(50)] + ["", "a\n", "end"]
    assert translator.translate(sentences) == [s.replace("\n", " ") for s in sentences]


@pytest.mark.slow
def test_a_sentence_beyond_learned_positions_is_named(make_config, tmp_path, cache_dir):
    config = make_config({"model.position": "learned", "train.num_steps": 2})
    training_run.run(config, tmp_path, cache_dir)
    translator = transformer_jax.load(tmp_path)
    limit = 128 - config.decode.extra_tokens - 1
    assert len(translator.translate(["a " * (limit // 2 - 2)])) == 1
    with pytest.raises(errors.UserError, match=rf"sentence 2 has \d+ tokens.*at most {limit}"):
        translator.translate(["a dog", "a " * 128])


def test_two_runs_in_one_folder_the_second_refuses(make_config, tmp_path, cache_dir):
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(errors.UserError, match="another process is at work in"):
            training_run.run(make_config(), tmp_path, cache_dir)


def test_a_checkpoint_read_with_another_tokenizer_is_an_error(finished):
    workdir, _ = finished
    config = run_folder.read_config(workdir)
    model = models.build(config.model, config.data.vocab_size)
    mesh = sharding.make_mesh(config.mesh)
    checkpoints = checkpoint.Checkpoints(workdir / "checkpoints", config, "another digest")
    with pytest.raises(errors.UserError, match="was written with the tokenizer"):
        checkpoints.restore(step_lib.state_shapes(model, config, mesh))
    checkpoints.close()


def test_a_loss_that_is_not_finite_stops_the_run(make_config, tmp_path, cache_dir, monkeypatch):
    def poisoned(model, config, mesh):
        def step(state, batch, hyper, key):
            loss = jnp.float32(np.nan if int(state.step) == 6 else 2.0)  # of the seventh step
            measured = step_lib.Metrics(loss, loss, jnp.float32(10), jnp.float32(1))
            return state._replace(step=state.step + 1), measured

        return step

    monkeypatch.setattr(loop, "compile_step", poisoned)
    config = make_config({"model.num_layers": 1})
    with pytest.raises(loop.DivergedError, match=r"step 7: loss nan.*checkpoint is that of step 4"):
        training_run.run(config, tmp_path, cache_dir)
    failure = json.loads((tmp_path / "failure.json").read_text())
    assert failure["error"].startswith("DivergedError: step 7")
    assert failure["step"] == 6
    assert "Traceback" in failure["traceback"]
    assert not (tmp_path / "result.json").exists()
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["4"]


@pytest.mark.slow
def test_profile_leaves_a_trace(make_config, tmp_path, cache_dir):
    config = make_config({"train.num_steps": 5, "data.toy_held_out_pairs": 2})
    training_run.run(config, tmp_path, cache_dir, profile=True)
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


def test_a_run_killed_in_its_evaluation_ends_the_same(server, finished, tmp_path, cache_dir):
    workdir, _ = finished
    copy = tmp_path / "copy"
    shutil.copytree(workdir, copy)
    (copy / "result.json").unlink()
    (copy / "hypotheses.txt").unlink()
    done = server.run(*command(copy, cache_dir))
    assert done.code == 0, done.stderr
    assert (copy / "hypotheses.txt").read_text() == (workdir / "hypotheses.txt").read_text()
    results = [json.loads((f / "result.json").read_text()) for f in (workdir, copy)]
    assert results[0]["ppl"] == results[1]["ppl"]


def test_learned_positions_must_reach_the_longest_sentence(make_config, tmp_path, cache_dir):
    sizes = {"data.source_length": 32, "data.target_length": 32, "model.max_positions": 30}
    config = make_config({"model.position": "learned", **sizes})
    with pytest.raises(errors.UserError, match=r"needs model\.max_positions of at least \d\d"):
        training_run.run(config, tmp_path, cache_dir)
    # In one sequence a target's positions come after its source's.
    held_out = dataset.load(config.data, cache_dir)
    sources = [*held_out.dev.source_ids, *held_out.test.source_ids]
    longest = max(map(len, sources)) + 1
    needed = 2 * longest + config.decode.extra_tokens
    alone = {"model.architecture": "decoder", "model.max_positions": needed - 1}
    with pytest.raises(errors.UserError, match=rf"at least {needed} for this corpus, but"):
        training_run.run(config_lib.replace(config, alone), tmp_path, cache_dir)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch, failing):
    path = tmp_path / "a.json"
    files.write_json(path, {"a": 1})

    def fail(*_):
        raise OSError("no space is left")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="no space"):
        files.write_json(path, {"b": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_result_names_its_commit_and_whether_code_differs_from_it(tmp_path, monkeypatch):
    module = tmp_path / "package" / "runs" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.setattr(training_run, "__file__", str(module))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert not training_run.git_commit()

    def git(*arguments):
        name = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", *name, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "of another project")
    assert not training_run.git_commit()
    git("add", ".")
    git("commit", "-q", "-m", "first")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "data.en").write_text("A corpus is no code.")
    assert training_run.git_commit() == commit
    new = tmp_path / "experiments.py"
    new.write_text("# new")
    assert training_run.git_commit() == f"{commit}+changes"
    new.unlink()
    module.write_text("# changed")
    assert training_run.git_commit() == f"{commit}+changes"


def test_a_folder_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with run_folder.only_run_in(tmp_path):
        assert f"{tmp_path} has no locks" in caplog.text
