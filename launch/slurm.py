"""Slurm: a sweep as a job array, and its report as a job that waits for the array.

What is submitted lies in a folder, to be read and submitted by hand as well: a script for each
cell, one for the report, and submit.sh with the two commands. Queueing, retries and rendezvous are
Slurm's: `slurm.sh` asks for another turn for a cell that was stopped.
"""

import pathlib
import shlex
from collections.abc import Iterable, Sequence

from launch import jobs as jobs_lib

SCRIPT = pathlib.Path(__file__).with_name("slurm.sh")
# What this module sets itself, or cannot work with.
OWN_OPTIONS = {
    "--array", "-a", "--nodes", "-N", "--output", "-o", "--parsable", "--wait", "-W", "--wrap",
    "--test-only", "--clusters", "-M", "--hold", "-H", "--dependency", "-d",
}  # fmt: skip
# Options that the report's job shares with the cells'; it needs no device and no second node.
SHARED_OPTIONS = ("--partition", "-p", "--account", "-A", "--qos", "-q", "--time", "-t")

_CELL = """#!/bin/bash
# {name}
log={log}
if [ "$1" = died ]; then  # with exit code $2; one that was refused (2) has said so itself
  [ "$2" = 2 ] && exit
  cd {folder} || exit
  [ -e result.json ] || [ -e failure.json ] || printf \\
    '{{"error": "exit code %d (see log.txt)", "traceback": "", "step": null}}\\n' "$2" \\
    > failure.json
  exit
fi
mkdir -p {folder} "$(dirname "$log")"
cd {checkout} && exec {command} >> "$log" 2>&1
"""


def require(options: Sequence[str]) -> None:
    """Raises EngineError unless Slurm's commands are here, and take these options from us."""
    for option in options:
        if _name(option) in OWN_OPTIONS:
            raise jobs_lib.EngineError(
                f"{option} is not for --launcher_options: a sweep sets it itself (--nodes, "
                "--parallel), or cannot work with it"
            )
    for program in ("sbatch", "squeue", "scancel", "scontrol"):
        jobs_lib.require(
            program, "slurm", "start the sweep on a machine from which jobs are submitted"
        )


def render(
    jobs: Sequence[jobs_lib.Job],
    report: Sequence[str],
    folder: pathlib.Path,
    *,
    name: str,
    nodes: int,
    parallel: int,
    options: Sequence[str],
    script: pathlib.Path,
) -> tuple[list[str], list[str]]:
    """Writes what is to be submitted, and returns the commands that submit it.

    Args:
      jobs: the array's tasks, in its order.
      report: the command that runs when all of them have ended.
      folder: where to write.
      name: the jobs'.
      nodes: of each task.
      parallel: tasks at a time; 0 for as many as there is room for.
      options: more of sbatch's.
      script: that runs a task; see slurm.sh.

    Returns:
      The array's command, and the report's without its dependency.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True)
    checkout = shlex.quote(str(pathlib.Path.cwd()))
    for index, job in enumerate(jobs):
        text = _CELL.format(
            name=" ".join(job.name.split()),
            log=shlex.quote(str(job.log.absolute())),
            folder=shlex.quote(str(job.folder.absolute())),
            checkout=checkout,
            command=shlex.join(job.command),
        )
        (folder / f"{index}.sh").write_text(text, encoding="utf-8")
    (folder / "report.sh").write_text(
        f"#!/bin/bash\ncd {checkout} && exec {shlex.join(report)}\n", encoding="utf-8"
    )
    limit = f"%{parallel}" if parallel else ""
    array = [
        "sbatch",
        "--parsable",
        f"--job-name={name}",
        f"--array=0-{len(jobs) - 1}{limit}",
        f"--nodes={nodes}",
        f"--output={folder}/%a.txt",
        *options,
        str(script.absolute()),
        str(folder),
    ]
    after = [
        "sbatch",
        "--parsable",
        f"--job-name={name}-report",
        f"--output={folder}/report.txt",
        *_shared(options),
        f"{folder}/report.sh",
    ]
    (folder / "submit.sh").write_text(
        f"#!/bin/bash\narray=$({shlex.join(array)})\n"
        f'{after[0]} "--dependency=afterany:${{array%%;*}}" {shlex.join(after[1:])}\n',
        encoding="utf-8",
    )
    return array, after


def submit(array: Sequence[str], report: Sequence[str]) -> tuple[str, str]:
    """Submits an array, held back until `release`, and the report that waits for it, or nothing.

    Returns:
      The numbers of both jobs.

    Raises:
      EngineError: sbatch refuses one of them.
    """
    job = _ask([array[0], "--hold", *array[1:]]).strip().split(";")[0]
    try:
        after = _ask([report[0], f"--dependency=afterany:{job}", *report[1:]])
    except BaseException as error:
        cancel(error, job)
        raise
    return job, after.strip().split(";")[0]


def cancel(why: BaseException, *jobs: str) -> None:
    """Takes jobs back.

    Raises:
      EngineError: Slurm does not answer; it says why they were to be taken back, too.
    """
    try:
        _ask(["scancel", *jobs])
    except jobs_lib.EngineError as error:
        raise jobs_lib.EngineError(
            f"{why}; and {error}: give scancel {' '.join(jobs)} before you start the sweep again"
        ) from why


def release(job: str) -> None:
    """Lets an array begin.

    Raises:
      EngineError: Slurm does not answer.
    """
    _ask(["scontrol", "release", job])


def queue(submitted: Iterable[str]) -> dict[tuple[str, int], str]:
    """The tasks of arrays that Slurm still has, and their states: {("12", 3): "running", …}.

    Raises:
      EngineError: Slurm does not answer.
    """
    wanted = set(submitted)
    found: dict[tuple[str, int], str] = {}
    for line in _ask(
        ["squeue", "--me", "--noheader", "--array", "--format=%F|%K|%T|%r"]
    ).splitlines():
        job, index, state, reason = line.strip().split("|", 3)
        if job in wanted and index.isdecimal():
            word = {"RUNNING": "running", "COMPLETING": "running"}.get(state, "queued")
            why = f": {reason}" if word == "queued" and reason not in ("None", "Priority") else ""
            found[job, int(index)] = word + why
    return found


def _shared(options: Sequence[str]) -> list[str]:
    """Those of sbatch's options that the report's job needs too."""
    found: list[str] = []
    for place, option in enumerate(options):
        if _name(option) in SHARED_OPTIONS:
            found.append(option)
            if option in SHARED_OPTIONS:  # its value comes next
                found += options[place + 1 : place + 2]
    return found


def _name(option: str) -> str:
    """Of --partition=gpu, and of -pgpu."""
    return option.split("=")[0] if option.startswith("--") else option[:2]


def _ask(command: Sequence[str]) -> str:
    return jobs_lib.ask(command, command[0], seconds=120)
