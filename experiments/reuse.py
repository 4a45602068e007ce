"""Finished runs of another sweep, taken over where their configuration is the same."""

import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from transformer_jax import config as config_lib
from transformer_jax import files, run_folder


def finished(workdir: pathlib.Path) -> dict[str, pathlib.Path]:
    """The folders of a sweep's finished runs, those that were set aside too, by config hash.

    Raises:
      UserError: it holds no sweep, or a file of it is damaged.
    """
    if not (workdir / "sweep.json").exists():
        raise config_lib.UserError(f"--reuse={workdir} holds no sweep: it has no sweep.json")
    return {
        run_folder.read_record(result.parent)["config_hash"]: result.parent
        for result in sorted(workdir.glob("*/seed*/result.json"))
    }


def take(found: pathlib.Path, folder: pathlib.Path, about: Mapping[str, Any]) -> None:
    """Copies a finished run; its result, which is written last, says what it is called here.

    Args:
      found: its folder.
      folder: where it shall be; what lies there has not ended, and goes.
      about: the row's name and overrides here.
    """
    result = {**run_folder.read_result(found), **about}
    with run_folder.only_run_in(folder):
        for path in folder.iterdir():
            if path.name != ".lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        ignored = shutil.ignore_patterns(".lock", "result.json")
        shutil.copytree(found, folder, ignore=ignored, dirs_exist_ok=True)
        files.write_json(folder / "result.json", result)
