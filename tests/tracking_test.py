"""TensorBoard and Weights & Biases over kills and resumptions."""

import functools
import importlib.util
import json
import struct
import sys
import tempfile
import textwrap
from typing import Any

import pytest
from tensorboardX.proto import event_pb2, plugin_hparams_pb2

from tests import refusals
from tests.faults import processes
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.evaluation import bleu
from transformer_jax.runs import run_folder
from transformer_jax.training import metrics, tensorboard, tracking

# Not wandb, but a stand-in for it, which records how it is called, one line a call.
STAND_IN = textwrap.dedent("""
    import json, pathlib

    RECORD = pathlib.Path(__file__).with_name("calls.jsonl")

    def record(*call):
        with RECORD.open("a") as file:
            file.write(json.dumps(call) + "\\n")

    def Settings(**values):
        return values

    class Run:
        step = 0

        def __init__(self, name):
            self.name, self.summary = name, self

        def log(self, values, step):
            record("log", self.name, step, values)
            self.step = step
            if (RECORD.parent / "broken").exists():
                raise ConnectionError("the service is gone")

        def update(self, values):
            record("summary", self.name, values)

        def finish(self, exit_code):
            record("finish", self.name, exit_code)

    def init(**arguments):
        record("init", arguments)
        if (RECORD.parent / "unreachable").exists():
            raise ConnectionError("no answer from the network")
        return Run(arguments["name"])
""")
PROTOS: Any = (event_pb2, plugin_hparams_pb2)  # whose classes exist at run time only
FLAGS = ("--config.train.seed=1", "--row=A h=1", "--wandb=parts", "--wandb_group=sweep")


def see(folder):
    sys.path.insert(0, str(folder))


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stand_in")
    (folder / "wandb.py").write_text(STAND_IN, encoding="utf-8")
    return folder


def calls(folder):
    lines = (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def killed_and_resumed(stand_in, tmp_path_factory):
    """A run that was killed after a checkpoint and resumed."""
    workdir, cache_dir = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("cache")
    start = functools.partial(
        processes.start,
        workdir,
        cache_dir,
        *FLAGS,
        log=workdir / "log",
        before=functools.partial(see, stand_in),
        train__num_steps=24,
    )
    run = start()
    assert run.until(lambda: bool(processes.checkpoints(workdir))), run.text()
    run.kill()
    told = calls(stand_in)
    assert run_is_unfinished(told)
    run = start()
    assert run.wait() == 0, run.text()
    return workdir, told, calls(stand_in)[len(told) :]


def run_is_unfinished(told):
    return "finish" not in {call[0] for call in told}


def events(path):
    """Yields the events of a file, each with its length, two checksums and its content."""
    content, place, found = path.read_bytes(), 0, []
    while place < len(content):
        (length,) = struct.unpack("<Q", content[place : place + 8])
        found.append(PROTOS[0].Event.FromString(content[place + 12 : place + 12 + length]))
        place += length + 16
    return found


def hparams_of(event):
    """Returns the content of an event for the hparams plug-in."""
    return [
        PROTOS[1].HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "hparams"
    ]


@pytest.mark.slow
def test_tensorboard_receives_a_runs_hyperparameters_and_result(killed_and_resumed):
    workdir = killed_and_resumed[0]
    read = [events(path) for path in sorted((workdir / "tensorboard").iterdir())]
    assert len(read) >= 3  # before the kill, after it, and the result
    config = run_folder.read_config(workdir)
    expected = tensorboard.hyperparameters(config)
    for file in read:
        told = [data for event in file for data in hparams_of(event)]
        (started,) = [data.session_start_info for data in told if data.session_start_info.hparams]
        shown = {
            name: getattr(value, value.WhichOneof("kind"))
            for name, value in started.hparams.items()
        }
        assert shown == expected
    assert expected["model.d_k"] == 6
    assert expected["train.seed"] == 1
    assert expected["model.rematerialise"] is False
    assert expected["model.position"] == config.model.position
    assert expected["data.vocab_size"] == 400
    assert "log.every" not in expected
    last = read[-1]
    ended = [data.HasField("session_end_info") for event in last for data in hparams_of(event)]
    assert ended == [False, True]
    scalars = {value.tag: value.simple_value for event in last for value in event.summary.value}
    result = run_folder.read_result(workdir)
    assert scalars["result/ppl"] == pytest.approx(result["ppl"])
    assert scalars["result/bleu"] == pytest.approx(result["bleu"][bleu.MAIN]["score"])
    (forgotten,) = [
        event.step for file in read for event in file if event.HasField("session_log")
    ]  # once, by the start after the kill
    assert forgotten - 1 in range(8, 24, 8)


def test_tensorboard_discards_the_steps_that_a_resumed_run_repeats(make_config, tmp_path):
    for first, last in ((1, 12), (9, 20)):  # the second resumes from step 8
        log = metrics.MetricsLog(tmp_path, first - 1, make_config())
        for step in range(first, last + 1):
            log.write(step, {"loss": 1.0})
        log.close()
    steps: list[int] = []
    for path in sorted((tmp_path / "tensorboard").iterdir(), key=lambda path: path.suffix):
        for event in events(path):
            if event.HasField("session_log"):  # what has this step, or a later one, goes
                steps = [step for step in steps if step < event.step]
            if any(value.tag == "loss" for value in event.summary.value):
                steps.append(event.step)
    assert steps == list(range(1, 21))


@pytest.mark.slow
def test_a_resumed_run_resumes_its_run_of_wandb(killed_and_resumed):
    folder, before, after = killed_and_resumed
    name = "A h=1, seed 1"
    first, second = (
        next(call[1] for call in told if call[0] == "init" and call[1]["name"] == name)
        for told in (before, after)
    )
    assert first == second
    assert (first["project"], first["group"], first["resume"]) == ("parts", "sweep", "allow")
    assert first["dir"] == str(folder)
    assert config_lib.from_mapping(first["config"]) == run_folder.read_config(folder)
    told = {call[2]: call[3] for call in after if call[:2] == ["log", name]}
    records = metrics.read(folder)
    assert told == {record.pop("step"): record for record in records}  # those before the kill too
    (summary,) = [call[2] for call in after if call[:2] == ["summary", name]]
    assert summary == {"result": run_folder.read_result(folder)}
    assert [call[2] for call in after if call[:2] == ["finish", name]] == [0]


@pytest.fixture
def track(stand_in, monkeypatch, make_config, tmp_path):
    """Returns a function that opens a run of the stand-in."""
    monkeypatch.syspath_prepend(str(stand_in))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    (stand_in / "calls.jsonl").unlink(missing_ok=True)
    yield lambda name="one", digest="0" * 64: tracking.Tracker(
        tracking.Project("parts"), name, tmp_path, make_config(), digest
    )
    for name in ("unreachable", "broken"):
        (stand_in / name).unlink(missing_ok=True)


def test_runs_of_other_names_or_configs_are_other_runs_of_wandb(track, stand_in):
    for arguments in ((), (), ("other",), ("one", "1" * 64)):
        track(*arguments)
    first, again, *others = [call[1]["id"] for call in calls(stand_in) if call[0] == "init"]
    assert first == again
    assert len({first, *others}) == 3


def test_without_a_network_training_continues(track, stand_in, caplog):
    (stand_in / "unreachable").touch()
    tracker = track()
    tracker.log(2, {"loss": 1.0})
    tracker.close(None)
    assert [call[0] for call in calls(stand_in)] == ["init"]
    assert "training continues: no answer from the network" in caplog.text


def test_a_failing_service_ends_no_training(track, stand_in, caplog):
    tracker = track()
    (stand_in / "broken").touch()
    tracker.log(2, {"loss": 1.0})
    tracker.close(None)
    assert "the service is gone" in caplog.text
    assert calls(stand_in)[-1] == ["finish", "one", 1]


def test_a_run_in_a_bucket_leaves_no_files_on_this_machine(
    stand_in, make_config, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(stand_in))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bucket, project = files.path("gs://bucket/run"), tracking.Project("parts")
    tracker = tracking.Tracker(project, "one", bucket, make_config(), "0" * 64)
    assert len(list(tmp_path.iterdir())) == 1
    tracker.close(None)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="wandb is installed")
@pytest.mark.parametrize(
    "command",
    [
        ["transformer_jax.train", *refusals.TOY],
        ["experiments.table3", "--config=configs/toy.py"],
    ],
    ids=["train", "sweep"],
)
def test_a_missing_package_is_named_before_training(server, tmp_path, command):
    done = server.run(*command, f"--workdir={tmp_path / 'run'}", "--wandb=parts")
    refusals.assert_refused(done, r"--wandb needs: pip install 'transformer_jax\[wandb\]'$")
    assert not (tmp_path / "run").exists()


def test_a_folder_named_wandb_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(errors.UserError, match="--wandb needs"):
        tracking.require_package("parts")
