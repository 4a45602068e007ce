"""Slurm: a sweep as a job array, and its report as a job that waits for the array.

What is submitted lies in a folder, to be read and submitted by hand as well: a script for each
cell, one for the report, and submit.sh with the two commands. Queueing, retries and rendezvous are
Slurm's: `slurm.sh` asks for another turn for a cell that was stopped.
"""

import pathlib
import shlex
import shutil
from collections.abc import Collection, Sequence
from typing import final

from launch import engine

SCRIPT = pathlib.Path(__file__).with_name("slurm.sh")
# What this module sets itself, or cannot work with.
OWN_OPTIONS = {
    "--array", "-a", "--nodes", "-N", "--output", "-o", "--parsable", "--wait", "-W", "--wrap",
    "--test-only", "--clusters", "-M", "--hold", "-H", "--dependency", "-d",
}  # fmt: skip
# Options that the report's job shares with the cells'; it needs no device and no second node.
SHARED_OPTIONS = ("--partition", "-p", "--account", "-A", "--qos", "-q", "--time", "-t")

_CELL = """# {name}
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


@final
class Slurm(engine.Queue):
    """Tasks of job arrays, by their numbers: 12_3."""

    name = "slurm"
    takes = frozenset({"parallel", "nodes", "launcher_options", "slurm_script"})
    programs = ("sbatch", "squeue", "scancel", "scontrol")
    remedy = "start the sweep on a machine from which jobs are submitted"
    shares_disk = True

    @property
    def _script(self) -> pathlib.Path:
        """What runs a task."""
        return pathlib.Path(self.settings.slurm_script or SCRIPT)

    def check(self) -> None:
        super().check()
        if not self._script.is_file():
            raise engine.EngineError(
                f"--slurm_script={self.settings.slurm_script} is no file: name a changed copy of "
                "launch/slurm.sh"
            )
        for option in self.settings.options:
            if _is_among(OWN_OPTIONS, option):
                raise engine.EngineError(
                    f"{_name(option)} is not for --launcher_options: a sweep sets it itself "
                    "(--nodes, --parallel), or cannot work with it"
                )

    def render(
        self, submission: engine.Submission, folder: pathlib.Path
    ) -> tuple[list[str], list[str]]:
        """Writes what is to be submitted into a new folder.

        Returns the command that submits the array, and the report's without its dependency.
        """

        def write(name: str, text: str) -> None:
            (folder / name).write_text(f"#!/bin/bash\n{text}", encoding="utf-8")

        folder = folder.absolute()
        folder.mkdir(parents=True)
        checkout = shlex.quote(str(pathlib.Path.cwd()))
        together = ["--distributed"] if self.settings.nodes > 1 else []
        for index, job in enumerate(submission.jobs):
            text = _CELL.format(
                name=" ".join(job.name.split()),
                log=shlex.quote(str(job.log.absolute())),
                folder=shlex.quote(str(job.log.parent.absolute())),
                checkout=checkout,
                command=shlex.join([*job.command, *together]),
            )
            write(f"{index}.sh", text)
        write("report.sh", f"cd {checkout} && exec {shlex.join(submission.report)}\n")
        limit = f"%{self.settings.parallel}" if self.settings.parallel else ""
        array = [
            *("sbatch", "--parsable", f"--job-name={submission.name}"),
            *(f"--array=0-{len(submission.jobs) - 1}{limit}", f"--nodes={self.settings.nodes}"),
            *(f"--output={folder}/%a.txt", *self.settings.options),
            *(str(self._script.absolute()), str(folder)),
        ]
        after = [
            *("sbatch", "--parsable", f"--job-name={submission.name}-report"),
            f"--output={folder}/report.txt",
            *(each for each in self.settings.options if _is_among(SHARED_OPTIONS, each)),
            f"{folder}/report.sh",
        ]
        dependency = '"--dependency=afterany:${array%%;*}"'
        submit = f"{after[0]} {dependency} {shlex.join(after[1:])}"
        write("submit.sh", f"array=$({shlex.join(array)})\n{submit}\n")
        return array, after

    def submit(self, submission: engine.Submission, remember: engine.Remember) -> str:
        taken = [int(path.name) for path in (submission.folder / "slurm").glob("[0-9]*")]
        folder = submission.folder / "slurm" / str(max(taken, default=0) + 1)
        array, report = self.render(submission, folder)
        submitted: list[str] = []
        try:
            submitted.append(_number(_ask([array[0], "--hold", *array[1:]])))
            dependency = f"--dependency=afterany:{submitted[0]}"
            submitted.append(_number(_ask([report[0], dependency, *report[1:]])))
            remember([f"{submitted[0]}_{index}" for index in range(len(submission.jobs))])
            _ask(["scontrol", "release", submitted[0]])  # what is not written down does not begin
        except BaseException as error:
            if submitted:
                command = self.cancelling(*submitted)
                try:
                    _ask(command)
                except engine.EngineError as silent:  # then all stays as it is
                    raise engine.EngineError(
                        f"{error}; and {silent}: give {shlex.join(command)} before you start the "
                        "sweep again"
                    ) from error
                remember([])
            shutil.rmtree(folder)
            raise
        return (
            f"submitted as array {submitted[0]} of {len(submission.jobs)} tasks, and the report as "
            f"{submitted[1]}; see --status"
        )

    def queue(self, names: Sequence[str]) -> dict[str, str]:
        wanted = set(names)
        found: dict[str, str] = {}
        answer = _ask(["squeue", "--me", "--noheader", "--array", "--format=%F|%K|%T|%r"])
        for line in answer.splitlines():
            job, index, state, reason = line.strip().split("|", 3)
            if f"{job}_{index}" in wanted:
                word = "running" if state in ("RUNNING", "COMPLETING") else "queued"
                silent = word == "running" or reason in ("None", "Priority")
                found[f"{job}_{index}"] = word if silent else f"{word}: {reason}"
        return found

    def cancelling(self, *names: str) -> list[str]:
        return ["scancel", *names]


def _number(answer: str) -> str:
    """A job's number, as --parsable gives it: number;cluster."""
    return answer.strip().split(";")[0]


def _name(option: str) -> str:
    """Of --partition=gpu, and of -pgpu."""
    return option.split("=")[0] if option.startswith("--") else option[:2]


def _is_among(options: Collection[str], option: str) -> bool:
    """Whether sbatch takes it for one of them, which it does of --depend=… too."""
    return any(each.startswith(_name(option)) for each in options)


def _ask(command: Sequence[str]) -> str:
    return engine.ask(command, command[0], seconds=120)
