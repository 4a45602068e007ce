"""An undisturbed run to compare with, and faults of several processes that train together."""

import dataclasses
import json
import pathlib
import re
import signal
import time
from typing import Any

from tests.faults import processes
from transformer_jax import files

RUN_AGAIN = 42
SILENCE = 10  # seconds, where several processes train together


@dataclasses.dataclass(frozen=True)
class Bench:
    """A folder for runs, and the outcome of an undisturbed one.

    Attributes:
      folder: parent of the runs' folders.
      cache_dir: cache that all runs share.
      expected: outcome of the undisturbed run.
      seconds: its duration.
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


def flip_a_bit(folder: files.Path) -> None:
    """Changes one bit of a checkpoint's largest file."""
    paths = [folder / name for name in files.below(folder)]
    largest = max(paths, key=lambda path: len(path.read_bytes()))
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(bytes(content))


def one_line(run: processes.Run) -> str:
    """Returns the one line of error that a run ends with."""
    lines = [line for line in run.text().splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, run.text()
    assert "Traceback" not in run.text(), run.text()
    return lines[0]


def one_of_four_killed(bench: Bench, killed: int, number_again: int) -> None:
    """Kills one of four processes: the others end in time and name it; the run resumes."""
    workdir = bench.folder / f"four-{killed}"
    flags = (f"--silence_timeout={SILENCE}", "--start_timeout=120")
    runs = processes.start_together(4, workdir, bench.cache_dir, *flags)
    # The checkpoint of step 8 is complete before that of step 16 is written.
    assert runs[0].until_printed("step 18 of"), runs[0].text()
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
            assert f"process {killed} (" in one_line(run)  # perhaps with one that Gloo has ended
    else:  # it coordinates: JAX ends the others, as docs/howto/operations.md says
        for code, run in zip(codes, others, strict=True):
            if code == RUN_AGAIN:  # it noticed before JAX ended it
                assert "process 0 (" in one_line(run)
            else:
                assert code == -signal.SIGABRT, (code, run.text())
    again = processes.start_together(number_again, workdir, bench.cache_dir, *flags)
    processes.end_well(again)
    assert "resuming from the checkpoint" in again[0].text()
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
    """The others end in time, with one line."""
    workdir = bench.folder / "three"
    runs = processes.start_together(3, workdir, bench.cache_dir, "--start_timeout=15")
    runs[1].kill()
    for code, run in zip(processes.ends([runs[0], runs[2]], 120), (runs[0], runs[2]), strict=True):
        assert code == 2, run.text()
        assert "not all processes started and found their devices within 15" in one_line(run)


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
