"""What is shown of a sweep while it runs: from its files, and without disturbing it."""

import fcntl
import json

import pytest

from experiments.sweep import progress, results
from transformer_jax import config as config_lib
from transformer_jax.evaluation import bleu
from transformer_jax.runs import run_folder

RECORD = {"loss": 2.5, "tokens_per_second": 900.0, "seconds_per_step": 0.5}


@pytest.fixture
def sweep(tmp_path, make_config):
    """A sweep's folder: base at two seeds, A tuned, and a row that was not chosen."""
    record = {
        "table": "mine",
        "base": config_lib.to_dict(make_config()),
        "rows": {"base": {}, "A h=1": {"train.num_steps": 200}, "unchosen": {}},
        "tune": {"train.warmup_steps": [10, 20]},
        "seeds": {"base": 2, "A h=1": 1, "A h=1 warmup_steps=20": 1},
    }
    (tmp_path / "sweep.json").write_text(json.dumps(record))
    return tmp_path


def begin(workdir, row, seed, *records):
    folder = results.cell_folder(workdir, row, seed)
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(lines)
    return folder


def cell(workdir, row, seed, **engine):
    (found,) = [c for c in progress.read(workdir, **engine) if (c.row, c.seed) == (row, seed)]
    return found


def test_all_chosen_rows_and_seeds_are_there_and_wait(sweep):
    cells = progress.read(sweep)
    assert [(c.row, c.seed, c.state, c.steps) for c in cells] == [
        ("base", 0, "waiting", 12),
        ("base", 1, "waiting", 12),
        ("A h=1", 0, "waiting", 200),
        ("A h=1 warmup_steps=20", 0, "waiting", 200),
    ]
    assert progress.summary(cells) == "4 runs: 0 done, 0 running, 0 failed, 4 waiting"


def test_a_run_is_running_while_a_process_holds_its_lock_which_is_left_alone(sweep):
    folder = begin(sweep, "base", 0, {"step": 2, **RECORD}, {"step": 4, **RECORD, "dev_ppl": 7.5})
    assert cell(sweep, "base", 0).state == "stopped"
    with run_folder.only_run_in(folder):
        running = cell(sweep, "base", 0)
        assert (running.state, running.step, running.loss) == ("running", 4, 2.5)
        assert (running.dev_ppl, running.tokens_per_second) == (7.5, 900.0)
        assert running.seconds_left == (12 - 4) * 0.5
    stopped = cell(sweep, "base", 0)
    assert (stopped.state, stopped.step, stopped.seconds_left) == ("stopped", 4, None)


def test_one_who_waits_for_a_lock_does_not_run(sweep, tmp_path, monkeypatch):
    lock = begin(sweep, "base", 1) / ".lock"
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        inode = f":{lock.stat().st_ino} "
        (holder,) = [each for each in progress.LOCKS.read_text().splitlines() if inode in each]
    number, rest = holder.split(" ", 1)
    monkeypatch.setattr(progress, "LOCKS", tmp_path / "locks")
    for line, state in ((holder, "running"), (f"{number} -> {rest}", "stopped")):
        progress.LOCKS.write_text(f"{line}\n")
        assert cell(sweep, "base", 1).state == state


def test_what_is_done_or_failed_says_so_whatever_an_engine_says(sweep, trained):
    folder = begin(sweep, "base", 0, {"step": 12, **RECORD})
    result = (trained / "result.json").read_text(encoding="utf-8")
    (folder / "result.json").write_text(result, encoding="utf-8")
    folder = begin(sweep, "base", 1, {"step": 6, **RECORD})
    (folder / "failure.json").write_text('{"error": "DivergedError:\\nstep 7"}')
    engine = {("base", 0): "queued", ("base", 1): "queued"}
    done = cell(sweep, "base", 0, engine=engine)
    assert done.state == "done"
    assert done.dev_ppl == json.loads(result)["ppl"]
    assert done.score == json.loads(result)["bleu"][bleu.MAIN]["score"]
    failed = cell(sweep, "base", 1, engine=engine)
    assert (failed.state, failed.step, failed.reason) == ("failed", 6, "DivergedError: step 7")
    with run_folder.only_run_in(folder):  # begun again
        assert cell(sweep, "base", 1).state == "running"


def test_an_engines_queue_knows_more_than_the_files(sweep):
    engine = {("base", 0): "queued", ("base", 1): "lost: the node is down"}
    assert cell(sweep, "base", 0, engine=engine).state == "queued"
    lost = cell(sweep, "base", 1, engine=engine)
    assert (lost.state, lost.reason) == ("lost", "the node is down")
    text = progress.summary(progress.read(sweep, engine))
    assert text == "4 runs: 0 done, 0 running, 0 failed, 2 waiting, 1 lost, 1 queued"


def test_a_sweep_of_an_earlier_version_shows_the_seeds_that_have_begun(sweep):
    record = json.loads((sweep / "sweep.json").read_text())
    del record["seeds"]
    (sweep / "sweep.json").write_text(json.dumps(record))
    begin(sweep, "base", 1)
    begin(sweep, "unchosen", 0)
    (sweep / "base" / "seed0.01234567").mkdir()
    assert [(c.row, c.seed) for c in progress.read(sweep)] == [("base", 1), ("unchosen", 0)]


def test_of_long_metrics_the_end_is_read_and_a_half_written_line_left_out(sweep):
    folder = begin(sweep, "base", 0)
    with (folder / "metrics.jsonl").open("wb") as file:
        file.write(b"no JSON\n" * 500_000)  # which would be refused, were it read
        for step in range(1, 401):
            record = {"step": step, **RECORD, **({"dev_ppl": float(step)} if step == 200 else {})}
            file.write(json.dumps(record).encode() + b"\n")
        file.write(b'{"step": 401, "lo')
    found = cell(sweep, "base", 0)
    assert (found.step, found.dev_ppl) == (400, 200.0)


def test_a_damaged_run_is_shown_as_such_and_the_others_too(sweep):
    (begin(sweep, "base", 0) / "metrics.jsonl").write_text('{"step": "two"}\n')
    begin(sweep, "base", 1, {"step": 2, **RECORD})
    assert "metrics.jsonl is damaged" in cell(sweep, "base", 0).reason
    assert cell(sweep, "base", 1).step == 2
    record = json.loads((sweep / "sweep.json").read_text())
    (sweep / "sweep.json").write_text(json.dumps({**record, "table": "table4"}))
    assert {c.scored_by for c in progress.read(sweep)} == {"F1"}


def test_where_there_is_no_room_the_done_go_first_then_the_waiting():
    states = ["done", "running", "waiting", "failed", "done"]
    cells = [progress.Standing("row", seed, state, 12) for seed, state in enumerate(states)]
    assert [c.seed for c in progress.fitting(cells, 5)] == [0, 1, 2, 3, 4]
    assert [c.seed for c in progress.fitting(cells, 3)] == [1, 2, 3]
    assert [c.seed for c in progress.fitting(cells, 2)] == [1, 3]
    assert progress.fitting(cells, -1) == []


def test_status_prints_the_table(server, sweep):
    record = json.loads((sweep / "sweep.json").read_text())
    (sweep / "sweep.json").write_text(json.dumps({**record, "table": "table3"}))
    done = server.run("experiments.table3", f"--workdir={sweep}", "--status")
    assert done.code == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert sum("waiting" in line for line in lines) == 5
    assert lines[-1] == "4 runs: 0 done, 0 running, 0 failed, 4 waiting"
    assert "\x1b" not in done.stdout.decode()
