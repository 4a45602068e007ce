"""The engine that runs jobs as SkyPilot managed jobs, on Cloud TPU slices and GPU clouds.

All jobs of a sweep have the same task file. In each job, the environment variable RUN has the
number of the run. SkyPilot finds machines, uses spot instances and restarts jobs.
"""

import json
import pathlib
import shlex
from collections.abc import Sequence
from typing import final

from launch import engine

NO_JOBS = "No in-progress managed jobs"  # in the error message of `sky jobs queue`
_TASK = """\
# The sweep {name}: sky jobs launch --env RUN=0 {file} starts its first run.
name: {name}
workdir: {checkout}
num_nodes: {nodes}
resources:
  accelerators: {accelerator}
  use_spot: {spot}
  job_recovery:
    # Restarts a run that was stopped from outside ({again}) or killed by a signal, as when one of
    # its machines is lost. Other exit codes are failures.
    max_restarts_on_errors: 0
    recover_on_exit_codes: [{again}, 134, 137, 143]
envs:
  RUN: "0"
setup: |
  set -e
  {setup}
run: |
  # The machines of a job train one run together. The hosts of a TPU slice count as machines.
  machines=$(echo "$SKYPILOT_NODE_IPS" | wc -l)
  distributed=
  if [ "$machines" -gt 1 ]; then
    first=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)
    distributed="--coordinator=$first:8476 --processes=$machines --process=$SKYPILOT_NODE_RANK"
  fi
  case $RUN in
{runs}
  *) echo "there is no run $RUN" >&2; exit 2 ;;
  esac
"""


@final
class SkyPilot(engine.Queue):
    """Runs jobs as SkyPilot managed jobs. A job's id is its label."""

    name = "skypilot"
    takes = frozenset({"nodes", "launcher_options", "bucket", "accelerator", "spot"})
    programs = ("sky",)
    remedy = (
        "install SkyPilot with its clouds in a separate environment, as in: uv tool install "
        "'skypilot[gcp]'"
    )

    def task(self, submission: engine.Submission, path: pathlib.Path) -> str:
        """Returns the text of SkyPilot's task file for a submission.

        Args:
          submission: the jobs.
          path: the path of the task file, whose name a comment in the file repeats.

        Raises:
          EngineError: a command has a line break or another control character.
        """
        for job in submission.jobs:
            if any(not argument.isprintable() for argument in job.command):
                raise engine.EngineError(
                    f"{job.name}: a value with a line break or control character cannot be "
                    "submitted to SkyPilot"
                )
        accelerator = self.settings.accelerator
        return _TASK.format(
            name=submission.name,
            file=path.name,
            checkout=json.dumps(str(pathlib.Path.cwd())),  # JSON is YAML
            nodes=self.settings.nodes,
            accelerator=json.dumps(accelerator),
            spot=json.dumps(self.settings.spot),
            again=engine.RUN_AGAIN,
            setup=engine.environment("tpu" if accelerator.startswith("tpu") else "cuda"),
            runs="\n".join(
                f"  {index})  # {' '.join(job.name.split())}\n"
                f"    exec {shlex.join(job.command)} $distributed ;;"
                for index, job in enumerate(submission.jobs)
            ),
        )

    def submit(self, submission: engine.Submission, record: engine.Record) -> str:
        path = submission.folder / "skypilot.yaml"
        path.write_text(self.task(submission, path), encoding="utf-8")
        launch = ["sky", "jobs", "launch", "--yes", "--detach-run"]
        commands = {
            job.label: [
                *launch,
                f"--name={job.label}",
                f"--env=RUN={index}",
                *self.settings.options,
                str(path),
            ]
            for index, job in enumerate(submission.jobs)
        }
        self.submit_each(commands, record)
        return f"submitted {len(commands)} managed jobs, which {path} describes"

    def states(self, jobs: Sequence[str]) -> dict[str, str]:
        command = ["sky", "jobs", "queue", "--skip-finished", "--all", "--output=json"]
        try:
            output = engine.ask(command)
        except engine.EngineError as error:
            if NO_JOBS in str(error):  # also if SkyPilot's controller does not run
                return {}
            raise
        try:
            records = json.loads(output[output.index("[") :])
            states = {record["job_name"]: record["status"].lower() for record in records}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise engine.EngineError(f"sky jobs queue: no list of jobs: {output[:80]!r}") from error
        return {job: states[job] for job in jobs if job in states}

    def cancel_command(self, job: str) -> list[str]:
        return ["sky", "jobs", "cancel", "--yes", f"--name={job}"]
