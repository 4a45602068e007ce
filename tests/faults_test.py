"""Faults of real runs: whatever happens, the run resumes and ends as if undisturbed.

The environment variable KILLS is how many kills are tried; `make faults` tries 50.
"""

import contextlib
import os
import random
import re
import shutil
import subprocess
import time

import pytest

from tests.faults import faults, processes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return faults.make_bench(tmp_path_factory.mktemp("faults"))


def is_newer(path, log):
    """Returns whether a file was written after a run's log was opened."""
    started = log.with_name(f"{log.name}.started").stat().st_mtime_ns
    return path.exists() and path.stat().st_mtime_ns > started


# Each waits until the run is at work on something; False if the run ends before.
MOMENTS = {
    "starting": lambda run, workdir: True,
    "compiling": lambda run, workdir: run.until_printed("packing fills"),
    "training": lambda run, workdir: run.until_printed(r"step \d+ of"),
    "writing a checkpoint": lambda run, workdir: run.until(
        lambda: (
            "step" in run.text() and any((workdir / "checkpoints").glob("*.orbax-checkpoint-tmp*"))
        )
    ),
    "evaluating": lambda run, workdir: run.until_printed(f"step {processes.STEPS} of"),
    "writing its results": lambda run, workdir: run.until(
        lambda: "dev: ppl" in run.text() or is_newer(workdir / "hypotheses.txt", run.log)
    ),
}


def test_killed_at_any_moment_a_run_ends_bit_for_bit_the_same(bench):
    number = int(os.environ.get("KILLS", len(MOMENTS)))
    chance = random.Random(number)
    done = dict.fromkeys(MOMENTS, 0)
    workdir = bench.folder / "killed"
    while sum(done.values()) < number:
        run = processes.start(workdir, bench.cache_dir)
        moment = min(MOMENTS, key=lambda each: (done[each], chance.random()))
        if MOMENTS[moment](run, workdir):
            time.sleep(chance.expovariate(1 / (0.02 * bench.seconds)))
        if run.process.exitcode is None:
            run.kill()
            done[moment] += 1
        else:  # the run came to its end, undisturbed this time
            assert run.wait() == 0, run.text()
        if (workdir / "result.json").exists():
            processes.assert_same(processes.outcome(workdir), bench.expected)
            shutil.rmtree(workdir)
    bench.ends_as_expected(workdir)


def test_sigterm_leaves_a_checkpoint_of_the_last_step(bench):
    workdir = bench.folder / "sigterm"
    for printed in ("step 3 of", "step 13 of"):
        run = processes.start(workdir, bench.cache_dir)
        assert run.until_printed(printed), run.text()
        run.process.terminate()
        assert run.wait() == faults.RUN_AGAIN, run.text()
        newest = processes.checkpoints(workdir)[-1]
        assert newest >= int(re.findall(r"step (\d+) of", run.text())[-1])
        assert f"the checkpoint of step {newest} is written" in run.text()
    bench.ends_as_expected(workdir)


@pytest.mark.parametrize(
    "damage",
    [
        faults.flip_a_bit,
        lambda folder: (folder / "manifest.json").write_text('{"sha256": {'),
    ],
    ids=["a flipped bit", "a truncated manifest"],
)
def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one(bench, damage, tmp_path):
    workdir = tmp_path / "run"
    run = processes.start(workdir, bench.cache_dir)
    assert run.until(lambda: len(processes.checkpoints(workdir)) == 2), run.text()
    run.kill()
    before, newest = processes.checkpoints(workdir)
    damage(workdir / "checkpoints" / str(newest))
    text = bench.ends_as_expected(workdir)
    assert f"the checkpoint of step {newest} cannot be read" in text
    assert f"resuming from the checkpoint of step {before}" in text
    assert (workdir / "checkpoints" / f"unreadable-{newest}").exists()


@contextlib.contextmanager
def small_disk(folder, kilobytes):
    """Mounts a disk at a folder; skips the test if this user may not."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_one_line_and_with_more_room_the_run_resumes(bench):
    undisturbed = (bench.folder / "undisturbed").rglob("*")
    used = sum(path.stat().st_size for path in undisturbed if path.is_file()) // 1024
    disk = bench.folder / "disk"
    with small_disk(disk, used * 7 // 10):
        run = processes.start(disk / "run", bench.cache_dir, log=bench.folder / "full.log")
        assert run.wait() == 1, run.text()
        assert "No space left" in faults.one_line(run)
        subprocess.run(["mount", "-o", f"remount,size={used * 8}k", str(disk)], check=True)
        bench.ends_as_expected(disk / "run")
