"""What can happen to a run, done to real ones. Each fault raises if something was lost."""

import contextlib
import dataclasses
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.faults import processes
from transformer_jax import files

RUN_AGAIN = 42
SILENCE = 10  # seconds, where several processes train together


@dataclasses.dataclass(frozen=True)
class Bench:
    """Where faults are tried.

    Attributes:
      folder: for their runs.
      cache_dir: of all runs, filled.
      expected: the outcome of an undisturbed run.
      seconds: that it took.
    """

    folder: pathlib.Path
    cache_dir: pathlib.Path
    expected: dict[str, Any]
    seconds: float

    def ends_as_expected(self, workdir: pathlib.Path) -> str:
        """Lets a run end, compares it with the undisturbed one; returns what it printed."""
        text = processes.finish(workdir, self.cache_dir)
        processes.assert_same(processes.outcome(workdir), self.expected)
        return text

    def stopped(self, name: str) -> pathlib.Path:
        """The folder of a run that was stopped after two checkpoints."""
        workdir = self.folder / name
        run = processes.start(workdir, self.cache_dir)
        assert run.until(lambda: len(processes.checkpoints(workdir)) == 2), run.text()
        run.kill()
        return workdir


def make_bench(folder: pathlib.Path) -> Bench:
    """Runs once to fill the cache, and once more to be compared with."""
    cache_dir = folder / "cache"
    processes.finish(folder / "first", cache_dir)
    start = time.monotonic()
    processes.finish(folder / "undisturbed", cache_dir)
    seconds = time.monotonic() - start
    expected = processes.outcome(folder / "undisturbed")
    processes.assert_same(processes.outcome(folder / "first"), expected)
    return Bench(folder, cache_dir, expected, seconds)


def _newer(path: pathlib.Path, than: pathlib.Path) -> bool:
    """Whether a file was written after a run's log was begun."""
    started = than.with_name(f"{than.name}.started").stat().st_mtime_ns
    return path.exists() and path.stat().st_mtime_ns > started


# When a run is killed: what it has just printed or written, and what it is then doing.
MOMENTS: dict[str, Callable[[processes.Run, pathlib.Path], bool]] = {
    "starting": lambda run, workdir: True,
    "compiling": lambda run, workdir: run.until_printed("packing fills"),
    "training": lambda run, workdir: run.until_printed(r"step \d+ of"),
    "writing a checkpoint": lambda run, workdir: run.until(
        lambda: (
            "step" in run.text() and any((workdir / "checkpoints").glob("*.orbax-checkpoint-tmp*"))
        )
    ),
    "evaluating": lambda run, workdir: run.until_printed(f"step {processes.STEPS} of"),
    "writing its report": lambda run, workdir: run.until(
        lambda: "dev: ppl" in run.text() or _newer(workdir / "hypotheses.txt", run.log)
    ),
}


def kills(bench: Bench, number: int, seed: int) -> dict[str, int]:
    """SIGKILL at so many random moments; whatever was left must lead to the same end.

    Returns:
      How often which work was interrupted.
    """
    chance = random.Random(seed)
    done = dict.fromkeys(MOMENTS, 0)
    workdir = bench.folder / f"killed{seed}"
    while sum(done.values()) < number:
        run = processes.start(workdir, bench.cache_dir)
        moment = min(MOMENTS, key=lambda each: (done[each], chance.random()))
        if MOMENTS[moment](run, workdir):
            time.sleep(chance.expovariate(1 / (0.02 * bench.seconds)))
        if run.process.exitcode is None:
            run.kill()
            done[moment] += 1
        else:  # it had come to its end, undisturbed this time
            assert run.wait() == 0, run.text()
        if (workdir / "result.json").exists():
            processes.assert_same(processes.outcome(workdir), bench.expected)
            shutil.rmtree(workdir)
    bench.ends_as_expected(workdir)
    return done


def sigterm(bench: Bench) -> None:
    """A checkpoint no older than one step, exit code 42, and the same end."""
    workdir = bench.folder / "sigterm"
    for printed in ("step 3 of", "step 13 of"):
        run = processes.start(workdir, bench.cache_dir)
        assert run.until_printed(printed), run.text()
        before = int(re.findall(r"step (\d+) of", run.text())[-1])
        run.process.terminate()
        assert run.wait() == RUN_AGAIN, run.text()
        assert processes.checkpoints(workdir)[-1] >= before
        said = re.search(r"the checkpoint of step (\d+) is written", run.text())
        assert said, run.text()
        assert int(said[1]) == processes.checkpoints(workdir)[-1]
        after = int(re.findall(r"step (\d+) of", run.text())[-1])
        assert processes.checkpoints(workdir)[-1] >= after
    bench.ends_as_expected(workdir)


def sigterm_while_compiling(bench: Bench) -> None:
    """Nothing is there to be saved: exit code 42 at once."""
    workdir = bench.folder / "early"
    run = processes.start(workdir, bench.cache_dir)
    assert run.until_printed("packing fills"), run.text()
    run.process.terminate()
    assert run.wait() == RUN_AGAIN, run.text()
    bench.ends_as_expected(workdir)


def _largest(folder: files.Path) -> files.Path:
    paths = [folder / name for name in files.below(folder)]
    return max(paths, key=lambda path: len(path.read_bytes()))


def _flip(folder: files.Path) -> None:
    content = bytearray(_largest(folder).read_bytes())
    content[len(content) // 2] ^= 1
    _largest(folder).write_bytes(bytes(content))


def _truncate(folder: files.Path) -> None:
    content = _largest(folder).read_bytes()
    _largest(folder).write_bytes(content[: len(content) // 2])


def _empty(folder: pathlib.Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGES: dict[str, Callable[[Any], object]] = {
    "a flipped bit": _flip,
    "a file cut short": _truncate,
    "a file missing": lambda folder: _largest(folder).unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a manifest cut short": lambda folder: (folder / "manifest.json").write_text('{"sha256": {'),
    "a file too many": lambda folder: (folder / "state" / "more").write_text("?"),
    "an empty folder": _empty,
}


def damaged_checkpoint(bench: Bench, damage: str) -> None:
    """The newest one is set aside with a warning, and the one before is gone on from."""
    workdir = bench.stopped(f"damaged-{damage.replace(' ', '-')}")
    before, newest = processes.checkpoints(workdir)
    DAMAGES[damage](workdir / "checkpoints" / str(newest))
    text = bench.ends_as_expected(workdir)
    assert f"the checkpoint of step {newest} cannot be read" in text
    assert f"going on from the checkpoint of step {before}" in text
    assert (workdir / "checkpoints" / f"unreadable-{newest}").exists()


def lost_checkpoints(bench: Bench) -> None:
    """All of them are unreadable: the run begins anew, and says so."""
    workdir = bench.stopped("lost")
    for step in processes.checkpoints(workdir):
        _flip(workdir / "checkpoints" / str(step))
    text = bench.ends_as_expected(workdir)
    assert "cannot be read" in text
    assert "going on from" not in text


class NoDiskError(Exception):
    """This user may not mount a disk."""


@contextlib.contextmanager
def _small_disk(folder: pathlib.Path, kilobytes: int) -> Iterator[None]:
    """A folder on a disk of its own. Raises NoDiskError where one may not mount one."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        raise NoDiskError from error
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _remount(folder: pathlib.Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def _one_line(run: processes.Run) -> str:
    """The one line that a run ends with."""
    lines = [line for line in run.text().splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, run.text()
    assert "Traceback" not in run.text(), run.text()
    return lines[0]


def full_disk(bench: Bench) -> None:
    """One clear line; with more room the run goes on and ends the same."""
    used = sum(p.stat().st_size for p in (bench.folder / "undisturbed").rglob("*") if p.is_file())
    disk = bench.folder / "disk"
    with _small_disk(disk, used // 1024 * 7 // 10):
        log = bench.folder / "full.log"
        run = processes.start(disk / "run", bench.cache_dir, log=log)
        assert run.wait() == 1, run.text()
        assert "No space left" in _one_line(run)
        _remount(disk, f"size={used // 1024 * 8}k")
        bench.ends_as_expected(disk / "run")


def read_only_folder(bench: Bench) -> None:
    """One clear line; made writable again, the run goes on."""
    disk = bench.folder / "fixed"
    with _small_disk(disk, 100_000):
        workdir = disk / "run"
        run = processes.start(workdir, bench.cache_dir)
        assert run.until(lambda: len(processes.checkpoints(workdir)) == 1), run.text()
        run.kill()
        log = bench.folder / "fixed.log"
        _remount(disk, "ro")
        run = processes.start(workdir, bench.cache_dir, log=log)
        assert run.wait() in (1, 2), run.text()
        assert "Read-only file system" in _one_line(run)
        _remount(disk, "rw")
        bench.ends_as_expected(workdir)


def _leap() -> None:
    """Lets the time of day leap to and fro; Orbax gives up a save after ten minutes of leaps."""
    now, now_ns, chance = time.time, time.time_ns, random.Random(0)
    time.time = lambda: now() + chance.uniform(-20, 20)
    time.time_ns = lambda: now_ns() + int(chance.uniform(-2e10, 2e10))


def jumping_clock(bench: Bench) -> None:
    """A clock on which nothing can be built."""
    workdir = bench.folder / "leaping"
    run = processes.start(workdir, bench.cache_dir, before=_leap)
    assert run.until(lambda: len(processes.checkpoints(workdir)) == 2), run.text()
    run.kill()
    run = processes.start(workdir, bench.cache_dir, before=_leap)
    assert run.wait() == 0, run.text()
    processes.assert_same(processes.outcome(workdir), bench.expected)


def two_in_one_folder(bench: Bench) -> None:
    """The second refuses; the first ends as if nothing had been."""
    workdir = bench.folder / "shared"
    first = processes.start(workdir, bench.cache_dir)
    assert first.until_printed("step 1 of"), first.text()
    second = processes.start(workdir, bench.cache_dir, name="second")
    assert second.wait() == 2, second.text()
    assert "another process is at work in" in _one_line(second)
    assert first.wait() == 0, first.text()
    processes.assert_same(processes.outcome(workdir), bench.expected)


def one_of_four_killed(bench: Bench, killed: int, number_again: int) -> None:
    """The others end within a bounded time, with its name; so many go on and end the same."""
    workdir = bench.folder / f"four-{killed}"
    flags = (f"--silence_timeout={SILENCE}", "--start_timeout=120")
    runs = processes.start_together(4, workdir, bench.cache_dir, *flags)
    assert runs[0].until_printed("step 10 of"), runs[0].text()
    runs[killed].kill()
    others = [run for number, run in enumerate(runs) if number != killed]
    codes = processes.ends(others, 4 * SILENCE)
    if killed:
        assert RUN_AGAIN in codes, (codes, *(run.text() for run in others))
        for code, run in zip(codes, others, strict=True):
            # Gloo, which carries a CPU's collectives, itself ends a process whose peer dies in the
            # middle of a message; accelerators have other carriers.
            if code == -signal.SIGABRT and "gloo::EnforceNotMet" in run.text():
                continue
            assert code == RUN_AGAIN, (code, run.text())
            assert f"process {killed} (" in _one_line(run)  # perhaps with one that Gloo has ended
    else:  # it coordinates: JAX ends the others, as docs/operations.md says
        assert set(codes) == {-signal.SIGABRT}, (codes, *(run.text() for run in others))
    again = processes.start_together(number_again, workdir, bench.cache_dir, *flags)
    processes.end_well(again)
    assert "going on from the checkpoint" in again[0].text()
    same_but_for_rounding(workdir, bench)


def sigterm_to_one_of_two(bench: Bench) -> None:
    """Both write one checkpoint of the same step, and go on from it."""
    workdir = bench.folder / "two"
    runs = processes.start_together(2, workdir, bench.cache_dir)
    assert runs[0].until_printed("step 10 of"), runs[0].text()
    runs[1].process.terminate()
    assert processes.ends(runs, processes.LONGEST) == [RUN_AGAIN] * 2, runs[0].text()
    said = [re.search(r"the checkpoint of step (\d+) is written", run.text()) for run in runs]
    assert None not in said
    assert len({match[1] for match in said if match}) == 1
    again = processes.start_together(2, workdir, bench.cache_dir)
    processes.end_well(again)
    same_but_for_rounding(workdir, bench)


def one_of_three_missing(bench: Bench) -> None:
    """Those that came name the one that did not, in time."""
    workdir = bench.folder / "three"
    runs = processes.start_together(3, workdir, bench.cache_dir, "--start_timeout=15")
    runs[1].kill()
    for code, run in zip(processes.ends([runs[0], runs[2]], 120), (runs[0], runs[2]), strict=True):
        assert code == 2, run.text()
        assert "process 1 of 3 did not come within 15 seconds" in _one_line(run)


def same_but_for_rounding(workdir: pathlib.Path, bench: Bench) -> None:
    """The losses are those of one device, each step's once, and so is the perplexity."""
    found, expected = processes.losses(workdir), bench.expected["losses"]
    assert [step for step, _ in found] == [step for step, _ in expected]
    for (step, loss), (_, wanted) in zip(found, expected, strict=True):
        assert abs(loss - wanted) < 1e-3 * wanted, (step, loss, wanted)
    result = json.loads((workdir / "result.json").read_text(encoding="utf-8"))
    assert abs(result["ppl"] - bench.expected["ppl"]) < 1e-2 * bench.expected["ppl"]
    hypotheses = (workdir / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
    assert len(hypotheses) == processes.OVERRIDES["data.toy_held_out_pairs"]
