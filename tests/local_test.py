"""Jobs on this machine: order, restarts, signals, and shares of cores and devices."""

import os
import signal
import sys
import time

import pytest

from launch import engine, local


def python(name, code, folder, after=""):
    """Returns a job that runs Python code."""
    return engine.Job(name, name, [sys.executable, "-c", code], folder / name / "log.txt", after)


def code_that_saves(ready, saved):
    """Returns code that creates a file when it is ready, and another when it receives SIGTERM."""
    return (
        "import pathlib, signal, sys, time\n"
        f"save = lambda *_: sys.exit(pathlib.Path({str(saved)!r}).touch())\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)"
    )


def ended(jobs, parallel):
    """Runs jobs; returns their names and exit codes in the order in which they ended."""
    ends = []
    devices = local.share("cpu", 1, parallel)
    local.run(jobs, devices, lambda job, code: ends.append((job.name, code)), lambda running: None)
    return ends


def test_a_job_that_was_stopped_from_outside_is_started_again(tmp_path):
    marker = tmp_path / "marker"
    stop_once = (
        f"import pathlib, sys; path = pathlib.Path({str(marker)!r}); exists = path.exists(); "
        f"path.touch(); sys.exit(0 if exists else {engine.RUN_AGAIN})"
    )
    jobs = [
        python("stopped", stop_once, tmp_path),
        python("failing", "import sys; sys.exit(3)", tmp_path),
    ]
    assert ended(jobs, 1) == [("stopped", 0), ("failing", 3)]


def test_a_job_starts_after_the_end_of_the_job_it_depends_on(tmp_path):
    marker = tmp_path / "marker"
    require = f"import pathlib, sys; sys.exit(not pathlib.Path({str(marker)!r}).exists())"
    write = f"import pathlib, time; time.sleep(2); pathlib.Path({str(marker)!r}).touch()"
    jobs = [
        python("dependent", require, tmp_path, after="slow"),
        python("slow", write, tmp_path, after="a job of another sweep"),
        python("free", "", tmp_path),
    ]
    assert ended(jobs, 2) == [("free", 0), ("slow", 0), ("dependent", 0)]


def test_a_job_that_depends_on_a_failed_job_is_not_started(tmp_path):
    jobs = [
        python("failing", "import sys; sys.exit(3)", tmp_path),
        python("dependent", "", tmp_path, after="failing"),
        python("further", "", tmp_path, after="dependent"),
        python("free", "", tmp_path),
    ]
    assert ended(jobs, 1) == [("failing", 3), ("dependent", None), ("further", None), ("free", 0)]
    assert not (tmp_path / "dependent").exists()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_on_a_signal_running_jobs_are_stopped_and_can_save(tmp_path, end):
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    code = code_that_saves(ready, saved)
    handler = signal.getsignal(end)

    def stop(running):
        if ready.exists():
            os.kill(os.getpid(), end)

    with pytest.raises(KeyboardInterrupt):
        local.run(
            [python("slow", code, tmp_path)],
            local.share("cpu", 1, 1),
            lambda job, code: None,
            stop,
        )
    assert saved.exists()
    assert signal.getsignal(end) == handler


@pytest.mark.parametrize(
    ("parallel", "cores"), [(1, ["01"]), (2, ["0", "1"]), (5, ["0", "0", "0", "1", "1"])]
)
def test_jobs_have_separate_cores_while_there_are_enough(tmp_path, monkeypatch, parallel, cores):
    available = os.sched_getaffinity(0)
    if len(available) < 2:
        pytest.skip("this machine has one core")
    two = sorted(available)[:2]
    monkeypatch.setattr(local, "_cores", lambda: two)
    write = (
        "import os; cores = os.sched_getaffinity(0); "
        f"print(''.join(str(i) for i, core in enumerate({two}) if core in cores), end='')"
    )
    try:
        ended([python(str(i), write, tmp_path) for i in range(parallel)], parallel)
    finally:
        os.sched_setaffinity(0, available)
    assert sorted(path.read_text() for path in tmp_path.glob("*/log.txt")) == cores


def test_jobs_have_separate_devices_while_there_are_enough():
    gpus = local.share("gpu", 8, 3)
    assert gpus.for_each == 2
    assert [share["CUDA_VISIBLE_DEVICES"] for share in gpus.environments] == ["0,1", "2,3", "4,5"]
    chosen = local.share("gpu", 2, 2, visible="3,5")
    assert chosen.environments[1] == {"CUDA_VISIBLE_DEVICES": "5"}
    assert local.share("tpu", 4, 2).environments[1] == {
        "TPU_VISIBLE_DEVICES": "2,3",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,2,1",
        "TPU_PROCESS_BOUNDS": "1,1,1",
    }
    assert local.share("gpu", 4, 0).environments == [{}]  # one job uses all
    assert local.share("cpu", 1, 4).environments == [{}] * 4


def test_jobs_on_one_gpu_share_its_memory():
    devices = local.share("gpu", 2, 8)
    assert devices.for_each == 1
    names = [share["CUDA_VISIBLE_DEVICES"] for share in devices.environments]
    assert sorted(names) == 4 * ["0"] + 4 * ["1"]
    share = devices.environments[0]
    assert 4 * float(share["XLA_CLIENT_MEM_FRACTION"]) == local.GPU_MEMORY < 1
    assert not share["XLA_PYTHON_CLIENT_MEM_FRACTION"]  # JAX refuses both variables together


@pytest.mark.parametrize(
    ("kind", "count", "parallel"), [("gpu", 2, 3), ("tpu", 6, 2), ("tpu", 4, 8)]
)
def test_a_number_of_jobs_that_does_not_divide_the_devices_is_an_error(kind, count, parallel):
    with pytest.raises(engine.EngineError, match=f"--parallel={parallel}: .*: give a"):
        local.share(kind, count, parallel)


def test_the_process_of_a_job_has_the_variables_of_its_share(tmp_path):
    write = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], end='')"
    jobs = [python(name, write, tmp_path) for name in ("a", "b")]
    local.run(jobs, local.share("gpu", 2, 2), lambda job, code: None, lambda running: None)
    assert {path.read_text() for path in tmp_path.glob("*/log.txt")} == {"0", "1"}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function from code to a job that runs it as a module, python -m NAME."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def write(name, code):
        (tmp_path / f"{name}.py").write_text(code)
        return engine.Job(
            name, name, [sys.executable, "-m", name, "x"], tmp_path / name / "log.txt"
        )

    return write


def test_modules_run_in_forks_of_a_process_that_has_imported_what_they_need(module):
    code = "import atexit, sys; print(sys.argv[1], __name__, 'colorsys' in sys.modules); "
    code += "atexit.register(print, 'the end'); sys.exit(7)"
    job = module("forked", code)
    ends = []
    local.run(
        [job],
        local.share("cpu", 1, 1),
        lambda _, end: ends.append(end),
        lambda _: None,
        ["colorsys"],
    )
    assert ends == [7]
    assert job.log.read_text() == "x __main__ True\nthe end\n"


def test_a_killed_job_ends_alone(module):
    jobs = [
        module("killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
        module("raising", "1 / 0"),
        module("slow", "import time; time.sleep(1.5)"),
    ]
    assert sorted(ended(jobs, 3)) == [("killed", -signal.SIGKILL), ("raising", 1), ("slow", 0)]
    assert jobs[1].log.read_text().endswith("ZeroDivisionError: division by zero\n")


def test_all_jobs_stop_if_the_process_that_starts_them_dies(module, tmp_path):
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    slow = module("slow", code_that_saves(ready, saved))
    killer = module(
        "killer",
        "import os, pathlib, signal, time\n"
        f"while not pathlib.Path({str(ready)!r}).exists(): time.sleep(0.05)\n"
        "os.kill(os.getppid(), signal.SIGKILL)",
    )
    with pytest.raises(engine.EngineError, match="the process that starts the runs has died"):
        ended([slow, killer], 2)
    deadline = time.monotonic() + 20
    while not saved.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
