"""Jobs on this machine: in their order, and again if they say so."""

import os
import signal
import sys

import pytest

from launch import engine, local


def test_a_job_that_was_stopped_from_outside_is_started_again(tmp_path):
    marker = tmp_path / "marker"
    stop_once = (
        f"import pathlib, sys; path = pathlib.Path({str(marker)!r}); there = path.exists(); "
        f"path.touch(); sys.exit(0 if there else {engine.RUN_AGAIN})"
    )
    codes = {"stopped": stop_once, "failing": "import sys; sys.exit(3)"}
    jobs = [
        engine.Job(name, name, [sys.executable, "-c", code], tmp_path / name / "log.txt")
        for name, code in codes.items()
    ]
    ended = []
    one_at_a_time = local.share("cpu", 1, 1)
    local.run(
        jobs, one_at_a_time, lambda job, code: ended.append((job.name, code)), lambda running: None
    )
    assert ended == [("stopped", 0), ("failing", 3)]


def test_a_job_begins_when_the_one_that_it_comes_after_has_ended(tmp_path):
    marker = tmp_path / "marker"
    codes = {
        "needy": f"import pathlib, sys; sys.exit(not pathlib.Path({str(marker)!r}).exists())",
        "slow": f"import pathlib, time; time.sleep(2); pathlib.Path({str(marker)!r}).touch()",
        "free": "",
    }
    jobs = [
        engine.Job(name, name, [sys.executable, "-c", code], tmp_path / name / "log.txt", after)
        for (name, code), after in zip(codes.items(), ("slow", "elsewhere", ""), strict=True)
    ]
    ended = []
    two_at_a_time = local.share("cpu", 1, 2)
    local.run(
        jobs, two_at_a_time, lambda job, code: ended.append((job.name, code)), lambda running: None
    )
    assert ended == [("free", 0), ("slow", 0), ("needy", 0)]


def test_interrupted_or_terminated_it_stops_its_jobs_first(tmp_path):
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    code = (
        "import pathlib, signal, sys, time\n"
        f"save = lambda *_: sys.exit(pathlib.Path({str(saved)!r}).touch())\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)"
    )
    job = engine.Job("slow", "slow", [sys.executable, "-c", code], tmp_path / "log")
    handler = signal.getsignal(signal.SIGTERM)

    def terminate(running):
        if ready.exists():
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        local.run([job], local.share("cpu", 1, 1), lambda job, code: None, terminate)
    assert saved.exists()
    assert signal.getsignal(signal.SIGTERM) == handler


@pytest.mark.parametrize(
    ("jobs", "cores"), [(1, ["01"]), (2, ["0", "1"]), (5, ["0", "0", "0", "1", "1"])]
)
def test_jobs_at_a_time_have_cores_of_their_own_while_there_are_some(
    tmp_path, monkeypatch, jobs, cores
):
    there = os.sched_getaffinity(0)
    if len(there) < 2:
        pytest.skip("this machine has one core")
    two = sorted(there)[:2]
    monkeypatch.setattr(local, "_cores", lambda: two)
    write = (
        "import os, sys; own = os.sched_getaffinity(0); "
        f"open(sys.argv[1], 'w').write(''.join(str(i) for i, c in enumerate({two}) if c in own))"
    )
    paths = [tmp_path / str(i) for i in range(jobs)]
    commands = [[sys.executable, "-c", write, str(path)] for path in paths]
    some = [engine.Job(str(i), "", command, tmp_path / "log") for i, command in enumerate(commands)]
    try:
        local.run(some, local.share("cpu", 1, jobs), lambda job, code: None, lambda running: None)
    finally:
        os.sched_setaffinity(0, there)
    assert sorted(path.read_text() for path in paths) == cores


def test_jobs_at_a_time_have_devices_that_no_other_has():
    devices = local.share("gpu", 8, 3)
    shares = [devices.environment(slot)["CUDA_VISIBLE_DEVICES"].split(",") for slot in range(3)]
    assert shares == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert devices.for_each == 2
    assert local.share("gpu", 2, 2, visible="3,5").environment(1) == {"CUDA_VISIBLE_DEVICES": "5"}
    chips = local.share("tpu", 4, 2)
    assert chips.environment(1)["TPU_VISIBLE_DEVICES"] == "2,3"
    assert chips.environment(1)["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "1,2,1"
    assert local.share("gpu", 4, 0).environment(0) == {}  # one job has all
    assert local.share("cpu", 1, 4).environment(3) == {}


def test_jobs_that_share_a_gpu_share_its_memory():
    devices = local.share("gpu", 2, 8)
    shares = [devices.environment(slot) for slot in range(8)]
    assert sorted(share["CUDA_VISIBLE_DEVICES"] for share in shares) == 4 * ["0"] + 4 * ["1"]
    assert 4 * float(shares[0]["XLA_CLIENT_MEM_FRACTION"]) == local.GPU_MEMORY < 1
    assert not shares[0]["XLA_PYTHON_CLIENT_MEM_FRACTION"]  # which JAX refuses beside the other
    assert devices.for_each == 1


@pytest.mark.parametrize(
    ("kind", "count", "parallel"), [("gpu", 2, 3), ("tpu", 6, 2), ("tpu", 4, 8)]
)
def test_jobs_that_devices_do_not_fit_are_refused(kind, count, parallel):
    with pytest.raises(engine.EngineError, match=f"--parallel={parallel}: .*: give a"):
        local.share(kind, count, parallel)


def test_what_a_job_is_shown_is_its_environment(tmp_path):
    write = "import os, sys; open(sys.argv[1], 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])"
    jobs = [
        engine.Job(
            str(i), str(i), [sys.executable, "-c", write, str(tmp_path / str(i))], tmp_path / "log"
        )
        for i in range(2)
    ]
    local.run(jobs, local.share("gpu", 2, 2), lambda job, code: None, lambda running: None)
    assert {(tmp_path / str(i)).read_text() for i in range(2)} == {"0", "1"}
