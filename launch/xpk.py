"""The engine that runs each job as an xpk workload on a cluster of GKE.

The cluster restarts a workload whose machines were lost.
"""

import pathlib
import shlex
from collections.abc import Sequence
from typing import final

from launch import engine

MAX_RESTARTS = 100  # of a workload; exit codes of 42, and of 127 and above, cause a restart


@final
class Xpk(engine.Queue):
    """Runs jobs as xpk workloads. A job's id is its label, which is the name of the workload."""

    name = "xpk"
    takes = frozenset({"nodes", "launcher_options", "bucket", "accelerator", "spot"})
    location = ("--cluster", "--namespace", "--project", "--zone")
    programs = ("xpk",)
    remedy = "install it in a separate environment, as in: uv tool install xpk"

    def create_command(self, job: engine.Job) -> list[str]:
        """Returns the command that creates the workload of a job."""
        # With --distributed, JAX finds the hosts of all slices, also of a single slice.
        # With exec, the run receives the signal that announces the loss of a machine.
        run = f"exec {shlex.join([*job.command, '--distributed'])}"
        command = [
            "xpk",
            "workload",
            "create",
            "--quiet",  # replaces a failed workload of the same name
            f"--workload={job.label}",
            f"--tpu-type={self.settings.accelerator}",
            f"--num-slices={self.settings.nodes}",
            f"--max-restarts={MAX_RESTARTS}",
            "--base-docker-image=python:3.12",
            f"--script-dir={pathlib.Path.cwd()}",
            f"--command={engine.environment('tpu')} && {run}",
        ]
        if self.settings.spot:
            command.append("--spot")
        return command + self.settings.options

    def submit(self, submission: engine.Submission, record: engine.Record) -> str:
        commands = {job.label: self.create_command(job) for job in submission.jobs}
        path = submission.folder / "xpk.sh"
        lines = ["#!/bin/bash", *map(shlex.join, commands.values())]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.submit_each(commands, record)
        return f"created {len(commands)} workloads, as in {path}"

    def states(self, jobs: Sequence[str]) -> dict[str, str]:
        # A workload without a condition is listed under EVERYTHING only. It counts as queued, since
        # creating a workload of the same name would delete it.
        listed: dict[str, set[str]] = {}
        for status in ("EVERYTHING", "RUNNING", "FINISHED"):
            command = ["xpk", "workload", "list", f"--filter-by-status={status}", *self.where]
            listed[status] = set(engine.ask(command).split())
        return {
            job: "running" if job in listed["RUNNING"] else "queued"
            for job in jobs
            if job in listed["EVERYTHING"] - listed["FINISHED"]
        }

    def cancel_command(self, job: str) -> list[str]:
        return ["xpk", "workload", "delete", "--force", f"--workload={job}", *self.where]
