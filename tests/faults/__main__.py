"""Does every fault to real runs and counts what was lost: python -m tests.faults [--kills=50]."""

import argparse
import functools
import pathlib
import sys
import tempfile
import time
import traceback
from collections.abc import Callable

import jax

from tests.faults import faults


def main() -> int:
    """Tries all faults; returns 1 if a run was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="How often to send SIGKILL.")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000, help="Of the moments.")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    tried = lost = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        bench = faults.make_bench(pathlib.Path(name))
        print(f"an undisturbed run takes {bench.seconds:.1f} s; seed {arguments.seed}", flush=True)
        singles = [
            faults.sigterm,
            faults.sigterm_while_compiling,
            faults.lost_checkpoints,
            faults.full_disk,
            faults.read_only_folder,
            faults.jumping_clock,
            faults.two_in_one_folder,
            faults.sigterm_to_one_of_two,
            faults.one_of_three_missing,
        ]
        calls: dict[str, Callable[[], object]] = {
            fault.__name__: functools.partial(fault, bench) for fault in singles
        }
        for damage in faults.DAMAGES:
            calls[damage] = functools.partial(faults.damaged_checkpoint, bench, damage)
        for killed, number_again in ((0, 4), (1, 1), (2, 2)):
            calls[f"process {killed} of 4 killed, {number_again} go on"] = functools.partial(
                faults.one_of_four_killed, bench, killed, number_again
            )
        calls["kills"] = functools.partial(faults.kills, bench, arguments.kills, arguments.seed)
        for fault, call in calls.items():
            number = arguments.kills if fault == "kills" else 1
            start = time.monotonic()
            try:
                found = call()
                said = f"survived {found or ''}"
                tried += number
            except AssertionError:
                traceback.print_exc()
                lost, tried, said = lost + 1, tried + number, "LOST"
            except faults.NoDiskError:
                said = "not tried: this user may not mount a disk"
            print(f"{fault:40} {said} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"faults tried {tried}, survived {tried - lost}, lost {lost}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
