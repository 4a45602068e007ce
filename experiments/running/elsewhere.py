"""Cells on machines that share no disk with this one: what they run, and how results come back.

Each such machine has a copy of the checkout. A run's folder lies in a bucket, under a name with a
part of its config_hash, so that an edited sweep finds no other run in its place; what a report
needs of it is copied into the sweep's folder here.
"""

import dataclasses
import logging
import pathlib
import re
from collections.abc import Sequence

from absl import flags
from ml_collections import config_flags

from experiments.sweep import cells as cells_lib
from experiments.sweep import results
from launch import jobs as jobs_lib
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.runs import run_folder

_log = logging.getLogger("transformer_jax.sweep")

PYTHON = ".venv/bin/python"
LEFT_THERE = ("checkpoints/", "profile/", ".lock")  # what no report reads
NAME = "clouds.json"  # in the sweep's folder: what engines were given
REMEDY = "delete it; starting the sweep again finds what is done"
LAST = ("result.json", "failure.json")  # their presence says that the rest is there


def setup(extra: str) -> str:
    """A shell command that installs what cells need, in the checkout, of the versions here.

    Args:
      extra: of setup.py, for the devices: "tpu" or "cuda".
    """
    return (
        "python3 -m pip install --quiet uv && python3 -m uv venv --quiet --clear --python 3.12 "
        f".venv && python3 -m uv pip install --quiet --python {PYTHON} -c requirements.lock "
        f"-e '.[{extra},gcs]'"
    )


def check(bucket: str, accelerator: str, base: config_lib.Config) -> None:
    """Raises UserError if cells elsewhere could not run, or leave their results."""
    if not bucket.startswith("gs://"):
        raise errors.UserError(
            "results of this engine go to a bucket: give --bucket=gs://BUCKET/FOLDER"
        )
    files.path(bucket)
    if not accelerator:
        raise errors.UserError(
            "this engine needs --accelerator, as it names it: tpu-v5litepod-8 or H100:8 for "
            "skypilot, v5litepod-8 for xpk and tpu-vm"
        )
    _in_checkout("--config", config_flags.get_config_filename(flags.FLAGS["config"]))
    if base.data.corpus == "text":
        for name in ("train", "dev", "test"):
            for prefix in filter(None, getattr(base.data, name).split(",")):
                _in_checkout(f"data.{name}", prefix)


def _in_checkout(name: str, path: str) -> None:
    if pathlib.Path(path).is_absolute() or ".." in pathlib.Path(path).parts:
        raise errors.UserError(
            f"{name}={path}: other machines have a copy of this folder only: put it below "
            f"{pathlib.Path.cwd()}, where git does not ignore it, and name it from there"
        )


def label(cell: cells_lib.Cell) -> str:
    """A name that engines take, of no other run: "a-h-1-s0-0f3a9c12"."""
    row = name_for_engines(cell.row, "row")[:20].strip("-")
    return f"{row}-s{cell.seed}-{cell.digest[:8]}"


def name_for_engines(text: str, kind: str) -> str:
    """Small letters, digits and dashes, a letter first: "A h=1" is "a-h-1", a row "1" "row-1"."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name if name[:1].isalpha() else f"{kind}-{name}".strip("-")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a cell's run lies.

    Attributes:
      row: its row.
      seed: its seed.
      label: see `label`.
      digest: its config_hash.
      here: its folder in the sweep's.
      there: its folder in the bucket.
    """

    row: str
    seed: int
    label: str
    digest: str
    here: str
    there: str

    def folders(self) -> list[files.Path]:
        """Both folders."""
        return [files.path(self.here), files.path(self.there)]


def place(cell: cells_lib.Cell, bucket: str) -> Place:
    """Where a cell's run lies, here and in the bucket."""
    slug = re.sub(r"[*?\[\]#]", "-", results.slug(cell.row))
    there = f"{bucket.rstrip('/')}/{slug}/seed{cell.seed}.{cell.digest[:8]}"
    return Place(cell.row, cell.seed, label(cell), cell.digest, str(cell.folder), there)


def remote(cells: Sequence[cells_lib.Cell], bucket: str) -> list[jobs_lib.Remote]:
    """What other machines run."""
    return [
        jobs_lib.Remote(
            cell.name,
            label(cell),
            [
                PYTHON,
                "-m",
                "transformer_jax.train",
                *cells_lib.arguments(cell),
                f"--workdir={place(cell, bucket).there}",
                "--cache_dir=cache",
            ],
        )
        for cell in cells
    ]


def fetch(places: Sequence[Place]) -> None:
    """Copies what runs have left in the bucket, checkpoints aside, into the sweep's folder.

    Raises:
      UserError: a run there is not of the configuration that it was handed over with.
    """
    for each in places:
        here, there = each.folders()
        if (here / "result.json").exists() or _is_of_another(here, each):
            continue
        names = [name for name in files.below(there) if not name.startswith(LEFT_THERE)]
        if "run.json" in names:
            found = run_folder.read_record(there)["config_hash"]
            if found != each.digest:
                raise errors.UserError(
                    f"{there} holds a run of another config_hash ({found[:8]}): the machines had "
                    "another state of the code or the text than this one; delete it there"
                )
        for name in sorted(names, key=lambda name: name in LAST):
            files.write(here / name, (there / name).read_bytes())


def _is_of_another(here: files.Path, place: Place) -> bool:
    """Whether a run of another configuration lies where this one's is to be copied."""
    if not (here / "run.json").exists():
        return False
    return run_folder.read_record(here)["config_hash"] != place.digest


_ENTRY = {field.name: int if field.name == "seed" else str for field in dataclasses.fields(Place)}
_SUBMISSION = {"launcher": str, "options": [str], "cells": [_ENTRY]}


@dataclasses.dataclass(frozen=True)
class Submission:
    """What an engine was given at one start.

    Attributes:
      launcher: its name.
      options: of the engine, which say where it is.
      cells: what it was given.
    """

    launcher: str
    options: Sequence[str]
    cells: Sequence[Place]


def remember(workdir: pathlib.Path, submissions: Sequence[Submission]) -> None:
    """Writes down what engines were given, for `remembered`."""
    record = [dataclasses.asdict(each) for each in submissions]
    files.write_json(workdir / NAME, {"submissions": record})


def remembered(workdir: pathlib.Path) -> list[Submission]:
    """What engines were given, the last at the end.

    Raises:
      UserError: the record is damaged.
    """
    path = workdir / NAME
    if not path.exists():
        return []
    record = files.read_json(path, {"submissions": [_SUBMISSION]}, REMEDY)
    return [
        Submission(each["launcher"], each["options"], [Place(**cell) for cell in each["cells"]])
        for each in record["submissions"]
    ]


def forget(workdir: pathlib.Path, cells: Sequence[cells_lib.Cell]) -> None:
    """Strikes out cells that now run on this machine or on its disk.

    What comes out of the bucket later would get into their way.
    """
    before, labels = remembered(workdir), {label(cell) for cell in cells}
    after = []
    for each in before:
        kept = [place for place in each.cells if place.label not in labels]
        if len(kept) < len(each.cells):
            _log.warning("cells that %s was given run here now: cancel them there", each.launcher)
        after.append(dataclasses.replace(each, cells=kept))
    if after != before:
        remember(workdir, [each for each in after if each.cells])
