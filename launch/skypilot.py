"""SkyPilot: managed jobs on Cloud TPU slices and GPU clouds, from one YAML for the whole sweep.

Each cell is a job of the same task, told apart by the variable CELL; machines, spot instances and
recovery are SkyPilot's.
"""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from launch import jobs as jobs_lib

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


def require() -> None:
    """Raises EngineError unless SkyPilot is here."""
    remedy = "install SkyPilot with its clouds in an environment of its own, as in: "
    jobs_lib.require("sky", "skypilot", f"{remedy}uv tool install 'skypilot[gcp]'")


def render(
    jobs: Sequence[jobs_lib.Remote],
    path: pathlib.Path,
    *,
    name: str,
    setup: str,
    accelerator: str,
    spot: bool,
    nodes: int,
) -> None:
    """Writes the task, and has SkyPilot check it.

    Args:
      jobs: its cells.
      path: of the file.
      name: the sweep's.
      setup: a shell command that installs what cells need, in the checkout.
      accelerator: what each machine has, as SkyPilot names it: tpu-v5litepod-8, H100:8.
      spot: whether machines may be taken away.
      nodes: machines of each cell.

    Raises:
      EngineError: SkyPilot refuses it.
    """
    for job in jobs:
        if any(not part.isprintable() for part in job.command):
            raise jobs_lib.EngineError(
                f"{job.name}: a value with a line break or control character cannot be handed over"
            )
    cells = "\n".join(
        f"  {index})  # {' '.join(job.name.split())}\n"
        f"    exec {shlex.join(job.command)} $together ;;"
        for index, job in enumerate(jobs)
    )
    text = _TASK.format(
        name=name,
        file=path.name,
        checkout=json.dumps(str(pathlib.Path.cwd())),  # which is a string of YAML too
        nodes=nodes,
        accelerator=accelerator,
        spot="true" if spot else "false",
        again=jobs_lib.RUN_AGAIN,
        setup=setup,
        cells=cells,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    check(path)


def check(path: pathlib.Path) -> None:
    """Raises EngineError, in SkyPilot's words, unless it takes a task's file."""
    sky = pathlib.Path(shutil.which("sky") or "sky")
    # Its own Python, which is usually of another environment than ours, stands at its beginning.
    found = re.search(r"(/\S*python\S*)", sky.read_text(encoding="utf-8")[:500])
    if not found:
        raise jobs_lib.EngineError(f"{sky} does not say with which Python it runs")
    question = "import sys, sky; sky.Task.from_yaml(sys.argv[1])"
    command = [found[1], "-c", question, str(path)]
    jobs_lib.ask(command, "SkyPilot refuses the task", whole=False)


def queue() -> dict[str, str]:
    """The managed jobs that have not ended, and their states, by label.

    Raises:
      EngineError: SkyPilot does not answer.
    """
    command = ["sky", "jobs", "queue", "--skip-finished", "--all", "--output=json"]
    try:
        answer = jobs_lib.ask(command, "sky jobs queue")
    except jobs_lib.EngineError as error:
        if NO_JOBS in str(error):  # there is no controller, or it has stopped for want of jobs
            return {}
        raise
    try:
        records = json.loads(answer[answer.index("[") :])
        return {record["job_name"]: record["status"].lower() for record in records}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise jobs_lib.EngineError(f"sky jobs queue: no list of jobs: {answer[:80]!r}") from error


def submit(jobs: Sequence[jobs_lib.Remote], path: pathlib.Path, options: Sequence[str]) -> None:
    """Submits a managed job for each cell, or none.

    Raises:
      EngineError: SkyPilot refuses one; it and those before it are cancelled, as they are when
        this is interrupted.
    """
    asked: list[str] = []
    try:
        for index, job in enumerate(jobs):
            launch = ["sky", "jobs", "launch", "--yes", "--detach-run", f"--name={job.label}"]
            asked.append(job.label)
            jobs_lib.ask([*launch, f"--env=CELL={index}", *options, str(path)], "sky jobs launch")
    except BaseException:
        for label in asked:
            subprocess.run(["sky", "jobs", "cancel", "--yes", f"--name={label}"], check=False)
        raise
