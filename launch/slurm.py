"""The engine that runs jobs as a Slurm job array, followed by a job that writes the report.

The scripts of the runs and of the report, and their outputs, are in WORKDIR/slurm/1 for the first
submission, WORKDIR/slurm/2 for the second, and so on. `slurm.sh` runs one task of the array.
"""

import pathlib
import shlex
import shutil
from collections.abc import Sequence
from typing import final

from launch import engine

SCRIPT = pathlib.Path(__file__).with_name("slurm.sh")
# Options of sbatch that this module sets, or that conflict with it.
RESERVED_OPTIONS = (
    ("--array", "-a"),
    ("--clusters", "-M"),
    ("--dependency", "-d"),
    ("--hold", "-H"),
    ("--nodes", "-N"),
    ("--output", "-o"),
    ("--parsable",),
    ("--test-only",),
    ("--wait", "-W"),
    ("--wrap",),
)
# Options of the runs that the job of the report gets too. It needs no devices and one node only.
REPORT_OPTIONS = (("--account", "-A"), ("--partition", "-p"), ("--qos", "-q"), ("--time", "-t"))

# `slurm.sh` calls the script without arguments to run it, and with "died CODE" to note a failure
# that the run could not note itself. A run that exits with 2 was refused and has said why.
_RUN = """\
#!/bin/bash
# {name}
log={log}
if [ "$1" = died ]; then
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
    """Runs jobs as the tasks of a Slurm job array. The id of task 3 of array 12 is 12_3."""

    name = "slurm"
    takes = frozenset({"parallel", "nodes", "launcher_options", "slurm_script"})
    programs = ("sbatch", "squeue", "scancel", "scontrol")
    remedy = "start the sweep on a machine from which jobs are submitted"
    shares_disk = True

    @property
    def _script(self) -> pathlib.Path:
        return pathlib.Path(self.settings.slurm_script or SCRIPT)

    def check(self) -> None:
        super().check()
        if not self._script.is_file():
            raise engine.EngineError(
                f"--slurm_script={self._script} is no file: name a changed copy of launch/slurm.sh"
            )
        for option in self.settings.find(RESERVED_OPTIONS):
            raise engine.EngineError(
                f"{option} is not for --launcher_options: the sweep sets it (--nodes, --parallel) "
                "or cannot work with it"
            )

    def write_scripts(self, submission: engine.Submission, folder: pathlib.Path) -> None:
        """Writes a script for each job (0.sh, 1.sh, …), and report.sh, to `folder`."""
        checkout = shlex.quote(str(pathlib.Path.cwd()))
        distributed = ["--distributed"] if self.settings.nodes > 1 else []
        for index, job in enumerate(submission.jobs):
            log = job.log.absolute()
            text = _RUN.format(
                name=" ".join(job.name.split()),
                log=shlex.quote(str(log)),
                folder=shlex.quote(str(log.parent)),
                checkout=checkout,
                command=shlex.join([*job.command, *distributed]),
            )
            (folder / f"{index}.sh").write_text(text, encoding="utf-8")
        report = f"#!/bin/bash\ncd {checkout} && exec {shlex.join(submission.report)}\n"
        (folder / "report.sh").write_text(report, encoding="utf-8")

    def array_command(self, submission: engine.Submission, folder: pathlib.Path) -> list[str]:
        """Returns the command that submits the job array.

        Slurm holds the array until it is released, so that its id can be recorded first.
        """
        limit = f"%{self.settings.parallel}" if self.settings.parallel else ""
        return [
            "sbatch",
            "--parsable",
            "--hold",
            f"--job-name={submission.name}",
            f"--array=0-{len(submission.jobs) - 1}{limit}",
            f"--nodes={self.settings.nodes}",
            f"--output={folder}/%a.txt",
            *self.settings.options,
            str(self._script.absolute()),
            str(folder),
        ]

    def report_command(
        self, submission: engine.Submission, folder: pathlib.Path, array: str
    ) -> list[str]:
        """Returns the command that submits the job of the report.

        Args:
          submission: the jobs.
          folder: the folder of report.sh.
          array: the id of the job array; the report is written when the array has ended.
        """
        options = self.settings.find(REPORT_OPTIONS)
        return [
            "sbatch",
            "--parsable",
            f"--job-name={submission.name}-report",
            f"--dependency=afterany:{array}",
            f"--output={folder}/report.txt",
            *(f"{option}={value}" for option, value in options.items()),
            f"{folder}/report.sh",
        ]

    def submit(self, submission: engine.Submission, record: engine.Record) -> str:
        parent = submission.folder.absolute() / "slurm"
        numbers = [int(path.name) for path in parent.glob("[0-9]*")]
        folder = parent / str(max(numbers, default=0) + 1)
        folder.mkdir(parents=True)
        self.write_scripts(submission, folder)
        submitted: list[str] = []
        try:
            array = _job_id(engine.ask(self.array_command(submission, folder)))
            submitted.append(array)
            report = _job_id(engine.ask(self.report_command(submission, folder, array)))
            submitted.append(report)
            record([f"{array}_{index}" for index in range(len(submission.jobs))])
            engine.ask(["scontrol", "release", array])
        except BaseException as error:
            self.cancel(submitted, error)
            if submitted:
                record([])
            shutil.rmtree(folder)
            raise
        return (
            f"submitted array {array} of {len(submission.jobs)} tasks, and the report as {report}; "
            "see --status"
        )

    def states(self, jobs: Sequence[str]) -> dict[str, str]:
        states: dict[str, str] = {}
        output = engine.ask(["squeue", "--me", "--noheader", "--array", "--format=%F|%K|%T|%r"])
        for line in output.splitlines():
            array, index, state, reason = line.strip().split("|", 3)
            if state in ("RUNNING", "COMPLETING"):
                states[f"{array}_{index}"] = "running"
            elif reason in ("None", "Priority"):
                states[f"{array}_{index}"] = "queued"
            else:
                states[f"{array}_{index}"] = f"queued: {reason}"
        return {job: states[job] for job in jobs if job in states}

    def cancel_command(self, job: str) -> list[str]:
        return ["scancel", job]


def _job_id(output: str) -> str:
    """Returns the id in the output of `sbatch --parsable`, which is "ID" or "ID;CLUSTER"."""
    return output.strip().split(";")[0]
