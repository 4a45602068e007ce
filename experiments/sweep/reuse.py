"""Finished runs of another sweep, taken over where their configuration is the same."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from transformer_jax import errors, files
from transformer_jax.runs import run_folder


def finished(workdir: pathlib.Path) -> dict[str, pathlib.Path]:
    """The folders of a sweep's finished runs, those that were set aside too, by config hash.

    A result without a run.json, as published earlier, does not say what it is of.
    """
    if not (workdir / "sweep.json").exists():
        raise errors.UserError(f"--reuse={workdir} holds no sweep: it has no sweep.json")
    return {
        run_folder.read_record(record.parent)["config_hash"]: record.parent
        for record in sorted(workdir.glob("*/seed*/run.json"))
        if record.with_name("result.json").exists()
    }


def take(found: pathlib.Path, folder: pathlib.Path, about: Mapping[str, Any]) -> None:
    """Copies a finished run in place of one that has not ended.

    Its result says what `about` does, the row's name and overrides here. Checkpoints, which nobody
    changes, are linked where that can be done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with run_folder.only_run_in(folder):
        copy = folder.with_name(f".{folder.name}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(found, copy, symlinks=True, copy_function=_link_or_copy)
            result = {**run_folder.read_result(found), **about}
            files.write_json(copy / "result.json", result)
            shutil.rmtree(folder)
            copy.rename(folder)
        except OSError as error:
            raise errors.UserError(f"cannot copy {found} to {folder}: {error}") from error


def _link_or_copy(source: str, target: str) -> None:
    if "checkpoints" in pathlib.Path(source).parts:
        with contextlib.suppress(OSError):  # another disk, or one without links
            os.link(source, target)
            return
    shutil.copy2(source, target)
