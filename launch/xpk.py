"""xpk: a workload on a GKE cluster for each cell, which the cluster starts again."""

import pathlib
import shlex
from collections.abc import Sequence
from typing import final

from launch import engine

MAX_RESTARTS = 100  # xpk starts a workload again that ends with 42, or with 127 and above


@final
class Xpk(engine.Queue):
    """Workloads, by their labels."""

    name = "xpk"
    takes = frozenset({"nodes", "launcher_options", "bucket", "accelerator", "spot"})
    location = ("--cluster=", "--project=", "--zone=", "--namespace=")
    programs = ("xpk",)
    remedy = "install it in an environment of its own, as in: uv tool install xpk"

    def creation(self, job: engine.Job) -> list[str]:
        """The command that creates a cell's workload."""
        # JAX finds the hosts of its slices, also where there is just one; exec, so that the notice
        # that a machine goes away reaches the cell.
        run = f"exec {shlex.join([*job.command, '--distributed'])}"
        return [
            *("xpk", "workload", "create"),
            "--quiet",  # one that has failed, of the same name, is replaced
            f"--workload={job.label}",
            f"--tpu-type={self.settings.accelerator}",
            f"--num-slices={self.settings.nodes}",
            f"--max-restarts={MAX_RESTARTS}",
            "--base-docker-image=python:3.12",
            f"--script-dir={pathlib.Path.cwd()}",
            f"--command={engine.environment('tpu')} && {run}",
            *(["--spot"] if self.settings.spot else []),
            *self.settings.options,
        ]

    def submit(self, submission: engine.Submission, remember: engine.Remember) -> str:
        creations = {job.label: self.creation(job) for job in submission.jobs}
        path = submission.folder / "xpk.sh"
        lines = ["#!/bin/bash", *map(shlex.join, creations.values())]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.create(creations, "xpk workload create", remember)
        return f"created {len(creations)} workloads, as in {path}"

    def queue(self, names: Sequence[str]) -> dict[str, str]:
        """Those of some workloads that have not ended, and whether they run.

        xpk goes by a workload's latest condition and has none for some: they count as queued, since
        to create one that is there deletes it.
        """
        listed: dict[str, set[str]] = {}
        for state in ("EVERYTHING", "RUNNING", "FINISHED"):
            command = ["xpk", "workload", "list", f"--filter-by-status={state}", *self.where]
            listed[state] = {*engine.ask(command, "xpk workload list").split()}
        return {
            name: "running" if name in listed["RUNNING"] else "queued"
            for name in names
            if name in listed["EVERYTHING"] - listed["FINISHED"]
        }

    def cancelling(self, *names: str) -> list[str]:
        workloads = [f"--workload={name}" for name in names]
        return ["xpk", "workload", "delete", "--force", *workloads, *self.where]
