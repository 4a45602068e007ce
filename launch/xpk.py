"""xpk: a workload on a GKE cluster for each cell, which the cluster starts again."""

import pathlib
import shlex
import subprocess
from collections.abc import Sequence

from launch import jobs as jobs_lib

MAX_RESTARTS = 100  # xpk starts a workload again that ends with 42, or with 127 and above


def require() -> None:
    """Raises EngineError unless xpk is here."""
    remedy = "install it in an environment of its own, as in: uv tool install xpk"
    jobs_lib.require("xpk", "xpk", remedy)


def commands(
    jobs: Sequence[jobs_lib.Remote],
    *,
    setup: str,
    accelerator: str,
    spot: bool,
    nodes: int,
    options: Sequence[str],
) -> list[list[str]]:
    """The command that creates each cell's workload.

    Args:
      jobs: the cells.
      setup: a shell command that installs what cells need, in the checkout.
      accelerator: the type of a slice, v5litepod-8.
      spot: whether machines may be taken away.
      nodes: slices of each cell.
      options: more of xpk's, such as --cluster, --project and --zone.
    """
    together = ["--distributed"]  # JAX finds the hosts of its slices, also where there is just one
    return [
        [
            "xpk",
            "workload",
            "create",
            "--quiet",  # one that has failed, of the same name, is replaced
            f"--workload={job.label}",
            f"--tpu-type={accelerator}",
            f"--num-slices={nodes}",
            f"--max-restarts={MAX_RESTARTS}",
            "--base-docker-image=python:3.12",
            f"--script-dir={pathlib.Path.cwd()}",
            # exec: the notice that a machine goes away reaches the cell.
            f"--command={setup} && exec {shlex.join([*job.command, *together])}",
            *(["--spot"] if spot else []),
            *options,
        ]
        for job in jobs
    ]


def submit(creations: Sequence[Sequence[str]], options: Sequence[str]) -> None:
    """Creates all workloads, or none.

    Args:
      creations: see `commands`.
      options: as there.

    Raises:
      EngineError: xpk refuses one; it and those before it are deleted, as they are when this is
        interrupted.
    """
    asked: list[str] = []
    try:
        for creation in creations:
            asked.append(next(part for part in creation if part.startswith("--workload=")))
            jobs_lib.ask(creation, "xpk workload create")
    except BaseException:
        for workload in asked:
            delete = ["xpk", "workload", "delete", "--force", workload, *_where(options)]
            subprocess.run(delete, check=False)
        raise


def queue(labels: Sequence[str], options: Sequence[str]) -> dict[str, str]:
    """Those of some workloads that have not ended, and whether they run.

    xpk goes by a workload's latest condition and has none for some: they count as queued, since to
    create one that is there deletes it.

    Args:
      labels: of the workloads.
      options: see `commands`.

    Raises:
      EngineError: xpk does not answer.
    """
    listed: dict[str, set[str]] = {}
    for state in ("EVERYTHING", "RUNNING", "FINISHED"):
        command = ["xpk", "workload", "list", f"--filter-by-status={state}", *_where(options)]
        listed[state] = {*jobs_lib.ask(command, "xpk workload list").split()}
    return {
        label: "running" if label in listed["RUNNING"] else "queued"
        for label in labels
        if label in listed["EVERYTHING"] - listed["FINISHED"]
    }


def _where(options: Sequence[str]) -> list[str]:
    """Those of the options that name a cluster."""
    names = ("--cluster", "--project", "--zone", "--namespace")
    return [option for option in options if option.startswith(names)]
