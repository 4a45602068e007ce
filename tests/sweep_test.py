"""A small sweep of Table 3, from its start to what is published."""

import dataclasses
import json
import re
import shutil

import jax
import numpy as np
import pandas as pd
import pytest

import transformer_jax
from experiments import publish, table3
from experiments.results import examples, frames
from experiments.scheduling import progress
from experiments.sweep import store
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.runs import run_folder


@pytest.fixture(scope="module")
def run_table3(server, commands_cache):
    """A function that runs a small sweep of Table 3, as a user does."""

    def run(workdir, *arguments, **overrides):
        values = {
            "train.num_steps": 4,
            "model.num_layers": 3,
            "model.num_heads": 8,
            "model.d_k": 8,
            "model.d_v": 8,
            "model.d_model": 64,
            **overrides,
        }
        shared = f"--cache_dir={commands_cache}"
        return tiny.sweep(server, "table3", workdir, shared, *arguments, **values)

    return run


def folder_of(workdir, row, seed=0):
    """Returns the folder of a run, which has started."""
    for run in store.read(workdir).runs:
        if (run.row, run.seed) == (row, seed):
            return store.locate(workdir, run)
    raise KeyError(row)


@pytest.fixture(scope="module")
def swept(run_table3, tmp_path_factory):
    """A sweep of two rows, and the command that ran it."""
    workdir = tmp_path_factory.mktemp("sweep")
    done = run_table3(workdir, "--rows=base,C N=2")
    assert done.returncode == 0, done.stderr
    return workdir, done


def results_of(workdir):
    return {(run["row"], run["seed"]) for run in frames.load(workdir).runs.to_dict("records")}


def test_results_are_in_folders_named_by_row_seed_and_hash(swept):
    workdir, _ = swept
    for row in ("base", "C N=2"):
        folder = folder_of(workdir, row)
        result = json.loads((folder / "result.json").read_text())
        assert (result["row"], result["seed"]) == (row, 0)
        assert folder.parent.name == store.slug(row)
        assert folder.name == f"seed0-{result['config_hash'][:8]}"


def test_the_table_has_all_rows_and_the_papers_numbers(swept):
    workdir, done = swept
    table = pd.read_csv(workdir / "table3.csv").set_index("row")
    assert list(table.index) == list(table3.ROWS)
    result = json.loads((folder_of(workdir, "C N=2") / "result.json").read_text())
    assert table.loc["C N=2", "bleu"] == result["bleu"]["sacrebleu_13a"]["score"]
    assert table.loc["C N=2", "params"] == result["params"]
    assert table.loc["C N=2", "paper_bleu"] == 23.7
    assert table.loc["E", "seeds"] == 0
    assert "C N=2" in done.stdout
    assert "report.html" in done.stdout.strip().splitlines()[-1]


@pytest.fixture
def copied(swept, tmp_path):
    """The sweep's folder, to be changed."""
    return shutil.copytree(swept[0], tmp_path / "sweep")


@pytest.mark.slow
def test_a_failed_run_stops_no_other_and_is_retried_when_asked(run_table3, copied):
    folder = folder_of(copied, "C N=2")
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "checkpoints").write_text("a file where the run creates a folder")
    failed = run_table3(copied, "--rows=base,C N=2,C N=4")
    assert failed.returncode == 1
    assert results_of(copied) == {("base", 0), ("C N=4", 0)}
    assert "failed: C N=2, seed 0: " in failed.stderr
    assert set(json.loads((folder / "failure.json").read_text())) == {"error", "traceback", "step"}
    (folder / "checkpoints").unlink()
    left = run_table3(copied, "--rows=base,C N=2")
    assert left.returncode == 1
    assert "1 of 2 runs are done; 0 to go" in left.stderr
    assert re.search("failed: C N=2, seed 0: .*--retry_failed", left.stderr)
    done = run_table3(copied, "--rows=base,C N=2", "--retry_failed")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 runs are done; 1 to go" in done.stderr
    assert not (folder / "failure.json").exists()


@pytest.mark.slow
def test_a_changed_config_has_new_runs_and_the_old_ones_come_back_with_it(run_table3, copied):
    before = folder_of(copied, "base")
    content = (before / "result.json").read_text()
    changed = run_table3(copied, "--rows=base", **{"train.learning_rate_scale": 0.25})
    assert changed.returncode == 0, changed.stderr
    assert folder_of(copied, "base") != before
    assert (before / "result.json").read_text() == content
    assert results_of(copied) == {("base", 0)}  # row C N=2 has no run with this base
    back = run_table3(copied, "--rows=base,C N=2")
    assert "2 of 2 runs are done; 0 to go" in back.stderr
    assert folder_of(copied, "base") == before


@pytest.mark.slow
def test_further_seeds_are_added_to_the_runs_of_earlier_starts(run_table3, copied):
    # How often a run logs changes no hash, so that the run of base stays in the table.
    done = run_table3(copied, "--rows=C N=2", "--seeds=3", **{"log.every": 1})
    assert done.returncode == 0, done.stderr
    assert "1 of 3 runs are done; 2 to go" in done.stderr
    expected = [("base", 0), *(("C N=2", seed) for seed in range(3))]
    assert [(run.row, run.seed) for run in progress.read(copied, "bleu")] == expected
    assert results_of(copied) == set(expected)


def test_a_published_folder_has_the_same_results(swept, tmp_path):
    workdir, _ = swept
    publish.publish(workdir, tmp_path)
    names = {"sweep.json", "runs.csv", "curves.csv", "lengths.csv", "sentences.npz"}
    names |= {"examples.json", "table3.md", "table3.csv", "PROVENANCE.md"}
    assert {path.name for path in tmp_path.iterdir()} == names
    for name in ("table3.md", "table3.csv"):
        assert (tmp_path / name).read_bytes() == (workdir / name).read_bytes()
    ours, theirs = frames.load(workdir), frames.load(tmp_path)
    for name in ("runs", "curves", "lengths"):
        pd.testing.assert_frame_equal(getattr(ours, name), getattr(theirs, name))
    for config_hash in ours.runs["config_hash"]:
        own, published = ours.statistics(config_hash), theirs.statistics(config_hash)
        assert own.keys() == published.keys() == {"bleu", "nats", "tokens"}
        assert all((own[name] == published[name]).all() for name in own)


def test_a_published_model_translates_as_its_run(swept, tmp_path):
    workdir, _ = swept
    publish.publish_model(workdir, "base", tmp_path / "model")
    ours, theirs = (
        run_folder.load_model(folder_of(workdir, "base")),
        run_folder.load_model(tmp_path),
    )
    for own, published in zip(*map(jax.tree.leaves, (ours.params, theirs.params)), strict=True):
        np.testing.assert_allclose(own, published, rtol=2**-16)
    sources = ["Thomas fetches the bear.", "The dogs sleep."]
    expected = transformer_jax.load(folder_of(workdir, "base")).translate(sources)
    assert transformer_jax.load(tmp_path).translate(sources) == expected
    with pytest.raises(errors.UserError, match="exists: delete it"):
        publish.publish_model(workdir, "base", tmp_path / "model")


def test_ten_sentences_are_published_unless_there_should_be_none(swept, tmp_path):
    workdir, _ = swept
    publish.publish(workdir, tmp_path)
    found = examples.read(tmp_path)
    references = (folder_of(workdir, "base") / "references.txt").read_text().splitlines()
    assert len(found.sentences) == examples.NUMBER
    for sentence in found.sentences:
        assert references[sentence.number - 1] == sentence.reference
    assert found.outputs.keys() == {"base", "C N=2"}
    publish.publish(workdir, tmp_path, with_examples=False)
    sentence = max(references, key=len).encode()
    assert not any(sentence in path.read_bytes() for path in tmp_path.iterdir())


def test_a_published_folder_is_reused_and_extended(swept, run_table3, tmp_path):
    workdir, _ = swept
    published, reusing = tmp_path / "published", tmp_path / "reusing"
    publish.publish(workdir, published)
    arguments = ("--rows=base,C N=2,D eps_ls=0.0", f"--reuse={published}")
    done = run_table3(reusing, *arguments)
    assert done.returncode == 0, done.stderr
    assert "2 of 3 runs are done; 1 to go" in done.stderr
    assert [path.parent.name for path in reusing.rglob("result.json")] == [
        folder_of(reusing, "D eps_ls=0.0").name
    ]
    before = (published / "table3.csv").read_text().splitlines()
    publish.publish(reusing, published)
    assert results_of(published) == {("base", 0), ("C N=2", 0), ("D eps_ls=0.0", 0)}
    after = (published / "table3.csv").read_text().splitlines()
    assert set(before) - set(after) == {line for line in before if line.startswith("D eps_ls=0.0,")}
    description = store.read(reusing)
    base = config_lib.replace(description.base, {"train.learning_rate_scale": 0.25})
    store.write(reusing, dataclasses.replace(description, base=base))
    with pytest.raises(errors.UserError, match="with another base, --match or --tune"):
        publish.publish(reusing, published)


def test_no_folder_of_the_machine_is_published(copied, tmp_path):
    published = tmp_path / "published"
    path = folder_of(copied, "base") / "result.json"
    result = json.loads(path.read_text())
    result["data"]["files"] = [{"path": "/mine/one/train.en,/mine/other/more.en"}]
    path.write_text(json.dumps(result))
    publish.publish(copied, published)
    assert not any(b"/mine" in path.read_bytes() for path in published.iterdir())
    assert b"train.en,more.en" in (published / "sweep.json").read_bytes()


def test_the_dry_run_prints_rows_and_runs_nothing(server, tmp_path):
    flags = ["--config=configs/base.py", "--config.data.vocab_size=40960", "--dry_run"]
    flags.append("--rows=base,A h=1,B d_k=16")
    columns = {"COLUMNS": "200"}
    done = server.run("experiments.table3", *flags, f"--workdir={tmp_path}", environment=columns)
    assert done.code == 0, done.stderr
    lines = {line.strip().split("  ")[0]: line for line in done.stdout.decode().splitlines()}
    assert lines["base"].split()[1:4] == ["65.073", "65", "6.99e−04"]
    assert lines["B d_k=16"].split()[2:5] == ["57.995", "−11%", "58"]
    assert "model.num_heads=1 model.d_k=512 model.d_v=512" in lines["A h=1"]
    assert {*table3.ROWS} & {*lines} == {"base", "A h=1", "B d_k=16"}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.position": "lerned"}, "row 'base': model.position='lerned' is unknown"),
        ({"model.num_kv_heads": 2}, "row 'A h=1': model.num_kv_heads=2 should divide"),
        ({"decode.penalty": "gmnt"}, "row 'base': decode.penalty='gmnt' is unknown"),
        ({"mesh.data": 3}, "mesh.data=3, mesh.fsdp=1 and mesh.tensor=1 do not share out 1 devices"),
        ({"train.seed": 3}, "--config.train.seed: a sweep sets the seeds; use --seeds"),
    ],
)
def test_a_sweep_that_cannot_run_starts_nothing(run_table3, tmp_path, overrides, message):
    done = run_table3(tmp_path, **overrides)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: {message}")
    assert not list(tmp_path.iterdir())


def test_the_folder_of_another_table_or_budget_is_refused(server, run_table3, copied):
    other = tiny.sweep(server, "eras", copied, "--rows=base")
    assert other.returncode == 2
    assert "holds a sweep of table3, not of eras: choose another --workdir" in other.stderr
    matched = run_table3(copied, "--rows=base", "--match=flops")
    assert matched.returncode == 2
    assert "holds a sweep with no --match, this one has --match=flops" in matched.stderr
