"""Progress of a running sweep, read from its files without disturbing it."""

import fcntl
import json

import pytest

from experiments.scheduling import progress
from experiments.sweep import store
from transformer_jax.evaluation import bleu
from transformer_jax.runs import run_folder

RECORD = {"loss": 2.5, "tokens_per_second": 900.0, "seconds_per_step": 0.5}


RUNS = [
    ("base", 0, "1" * 64),
    ("base", 1, "2" * 64),
    ("A h=1", 0, "3" * 64),
    ("A h=1 warmup_steps=20", 0, "4" * 64),
]


@pytest.fixture
def sweep(tmp_path, make_config):
    """A sweep's folder: base at two seeds, A tuned, and a row that was not chosen."""
    rows = {"base": {}, "A h=1": {"train.num_steps": 200}, "unchosen": {}}
    runs = [store.Run(*run) for run in RUNS]
    tune = {"train.warmup_steps": [10, 20]}
    store.write(tmp_path, store.Description("mine", make_config(), rows, runs, tune))
    return tmp_path


def start(workdir, seed, *records):
    """Writes the files of a run of base that has started."""
    folder = workdir / store.folder_name(store.Run(*RUNS[seed]))
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(lines)
    return folder


def read(workdir, engine_states=None):
    return progress.read(workdir, "bleu", engine_states)


def test_all_runs_of_the_sweep_wait_at_first(sweep):
    runs = read(sweep)
    assert [(run.row, run.seed, run.state, run.num_steps) for run in runs] == [
        ("base", 0, "waiting", 12),
        ("base", 1, "waiting", 12),
        ("A h=1", 0, "waiting", 200),
        ("A h=1 warmup_steps=20", 0, "waiting", 200),
    ]
    assert progress.summary(runs) == "4 runs: 0 done, 0 running, 0 failed, 4 waiting"


def test_a_run_is_running_while_a_process_holds_its_lock(sweep):
    folder = start(sweep, 0, {"step": 2, **RECORD}, {"step": 4, **RECORD, "dev_ppl": 7.5})
    assert read(sweep)[0].state == "stopped"
    with run_folder.only_run_in(folder):
        running = read(sweep)[0]
        assert (running.state, running.step, running.loss) == ("running", 4, 2.5)
        assert (running.dev_ppl, running.tokens_per_second) == (7.5, 900.0)
        assert running.seconds_left == (12 - 4) * 0.5
    stopped = read(sweep)[0]
    assert (stopped.state, stopped.step, stopped.seconds_left) == ("stopped", 4, None)


def test_a_process_that_waits_for_a_lock_is_not_running(sweep, tmp_path, monkeypatch):
    lock = start(sweep, 1) / ".lock"
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        inode = f":{lock.stat().st_ino} "
        (holder,) = [each for each in progress.LOCKS.read_text().splitlines() if inode in each]
    number, rest = holder.split(" ", 1)
    monkeypatch.setattr(progress, "LOCKS", tmp_path / "locks")
    for line, state in ((holder, "running"), (f"{number} -> {rest}", "stopped")):
        progress.LOCKS.write_text(f"{line}\n")
        assert read(sweep)[1].state == state


def test_finished_and_failed_runs_are_shown_as_such_whatever_the_engine_says(sweep, trained):
    folder = start(sweep, 0, {"step": 12, **RECORD})
    result = (trained / "result.json").read_text(encoding="utf-8")
    (folder / "result.json").write_text(result, encoding="utf-8")
    folder = start(sweep, 1, {"step": 6, **RECORD})
    (folder / "failure.json").write_text('{"error": "DivergedError:\\nstep 7"}')
    engine = {"1" * 64: "queued"}
    done = read(sweep, engine)[0]
    assert done.state == "done"
    assert done.dev_ppl == json.loads(result)["ppl"]
    assert done.score == json.loads(result)["bleu"][bleu.MAIN]["score"]
    failed = read(sweep, engine)[1]
    assert (failed.state, failed.step, failed.reason) == ("failed", 6, "DivergedError: step 7")
    with run_folder.only_run_in(folder):  # started again
        assert read(sweep)[1].state == "running"


def test_the_engine_tells_queued_from_lost_runs(sweep):
    engine = {"1" * 64: "queued", "2" * 64: "lost: the node is down"}
    assert read(sweep, engine)[0].state == "queued"
    lost = read(sweep, engine)[1]
    assert (lost.state, lost.reason) == ("lost", "the node is down")
    text = progress.summary(read(sweep, engine))
    assert text == "4 runs: 0 done, 0 running, 0 failed, 2 waiting, 1 lost, 1 queued"


def test_the_end_of_metrics_is_read_without_a_half_written_line(sweep):
    folder = start(sweep, 0)
    with (folder / "metrics.jsonl").open("wb") as file:
        file.write(b"no JSON\n" * 500_000)  # reading it would fail
        for step in range(1, 401):
            record = {"step": step, **RECORD, **({"dev_ppl": float(step)} if step == 200 else {})}
            file.write(json.dumps(record).encode() + b"\n")
        file.write(b'{"step": 401, "lo')
    found = read(sweep)[0]
    assert (found.step, found.dev_ppl) == (400, 200.0)


def test_a_damaged_run_hides_no_other(sweep):
    (start(sweep, 0) / "metrics.jsonl").write_text('{"step": "two"}\n')
    start(sweep, 1, {"step": 2, **RECORD})
    assert "metrics.jsonl is damaged" in read(sweep)[0].reason
    assert read(sweep)[1].step == 2


def test_finished_runs_are_left_out_first_then_waiting_ones():
    states = ["done", "running", "waiting", "failed", "done"]
    runs = [progress.Progress("row", seed, state, 12) for seed, state in enumerate(states)]
    for room, seeds in ((5, [0, 1, 2, 3, 4]), (3, [1, 2, 3]), (2, [1, 3]), (-1, [])):
        assert [run.seed for run in progress.select(runs, room)] == seeds


def test_status_prints_the_table(server, sweep):
    record = json.loads((sweep / "sweep.json").read_text())
    (sweep / "sweep.json").write_text(json.dumps({**record, "table": "table3"}))
    done = server.run("experiments.table3", f"--workdir={sweep}", "--status")
    assert done.code == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert sum("waiting" in line for line in lines) == 5
    assert lines[-1] == "4 runs: 0 done, 0 running, 0 failed, 4 waiting"
    assert "\x1b" not in done.stdout.decode()
