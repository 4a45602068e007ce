"""SkyPilot: managed jobs on Cloud TPU slices and GPU clouds, from one YAML for the whole sweep.

Each cell is a job of the same task, told apart by the variable CELL; machines, spot instances and
recovery are SkyPilot's.
"""

import json
import pathlib
import re
import shlex
import shutil
from collections.abc import Sequence
from typing import final

from launch import engine

NO_JOBS = "No in-progress managed jobs"
_TASK = """\
# The sweep {name}: sky jobs launch --env CELL=0 {file} runs its first cell.
name: {name}
workdir: {checkout}
num_nodes: {nodes}
resources:
  accelerators: {accelerator}
  use_spot: {spot}
  job_recovery:
    # Stopped and saved; and killed by a signal, as when a peer is lost. Not mistakes and failures.
    max_restarts_on_errors: 0
    recover_on_exit_codes: [{again}, 134, 137, 143]
envs:
  CELL: "0"
setup: |
  set -e
  {setup}
run: |
  # All machines of a cell train it together; a slice's hosts are such machines too.
  machines=$(echo "$SKYPILOT_NODE_IPS" | wc -l)
  together=
  if [ "$machines" -gt 1 ]; then
    first=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)
    together="--coordinator=$first:8476 --processes=$machines --process=$SKYPILOT_NODE_RANK"
  fi
  case $CELL in
{cells}
  *) echo "there is no cell $CELL" >&2; exit 2 ;;
  esac
"""


@final
class SkyPilot(engine.Queue):
    """Managed jobs, by their labels."""

    name = "skypilot"
    takes = frozenset({"nodes", "launcher_options", "bucket", "accelerator", "spot"})
    programs = ("sky",)
    remedy = (
        "install SkyPilot with its clouds in an environment of its own, as in: uv tool install "
        "'skypilot[gcp]'"
    )

    def task(self, submission: engine.Submission, path: pathlib.Path) -> str:
        """The task for a file; raises EngineError if a command cannot be written into it."""
        for job in submission.jobs:
            if any(not part.isprintable() for part in job.command):
                raise engine.EngineError(
                    f"{job.name}: a value with a line break or control character cannot be handed "
                    "over"
                )
        accelerator = self.settings.accelerator
        return _TASK.format(
            name=submission.name,
            file=path.name,
            checkout=json.dumps(str(pathlib.Path.cwd())),  # which is a string of YAML too
            nodes=self.settings.nodes,
            accelerator=accelerator,
            spot="true" if self.settings.spot else "false",
            again=engine.RUN_AGAIN,
            setup=engine.environment("tpu" if accelerator.startswith("tpu") else "cuda"),
            cells="\n".join(
                f"  {index})  # {' '.join(job.name.split())}\n"
                f"    exec {shlex.join(job.command)} $together ;;"
                for index, job in enumerate(submission.jobs)
            ),
        )

    def submit(self, submission: engine.Submission, remember: engine.Remember) -> str:
        path = submission.folder / "skypilot.yaml"
        path.write_text(self.task(submission, path), encoding="utf-8")
        require_accepted(path)
        launch = ["sky", "jobs", "launch", "--yes", "--detach-run"]
        creations = {
            job.label: [*launch, f"--name={job.label}", f"--env=CELL={index}",
                        *self.settings.options, str(path)]
            for index, job in enumerate(submission.jobs)
        }  # fmt: skip
        self.create(creations, "sky jobs launch", remember)
        return f"submitted {len(creations)} managed jobs, which {path} describes"

    def queue(self, names: Sequence[str]) -> dict[str, str]:
        command = ["sky", "jobs", "queue", "--skip-finished", "--all", "--output=json"]
        try:
            answer = engine.ask(command, "sky jobs queue")
        except engine.EngineError as error:
            if NO_JOBS in str(error):  # there is no controller, or it has stopped for want of jobs
                return {}
            raise
        try:
            records = json.loads(answer[answer.index("[") :])
            states = {record["job_name"]: record["status"].lower() for record in records}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise engine.EngineError(f"sky jobs queue: no list of jobs: {answer[:80]!r}") from error
        return {name: states[name] for name in names if name in states}

    def cancelling(self, *names: str) -> list[str]:
        return ["sky", "jobs", "cancel", "--yes", *(f"--name={name}" for name in names)]


def require_accepted(path: pathlib.Path) -> None:
    """Raises EngineError, in SkyPilot's words, unless it takes a task's file."""
    sky = pathlib.Path(shutil.which("sky") or "sky")
    # Its own Python, which is usually of another environment than ours, stands at its beginning.
    found = re.search(r"(/\S*python\S*)", sky.read_text(encoding="utf-8")[:500])
    if not found:
        raise engine.EngineError(f"{sky} does not say with which Python it runs")
    question = "import sys, sky; sky.Task.from_yaml(sys.argv[1])"
    command = [found[1], "-c", question, str(path)]
    engine.ask(command, "SkyPilot refuses the task", whole=False)
