"""Which cells have results: their own, those set aside earlier, or another sweep's."""

import contextlib
import functools
import logging
import os
import pathlib
import shutil
from collections.abc import Collection, Mapping, Sequence

from experiments.sweep import cells as cells_lib
from transformer_jax import errors, files
from transformer_jax.runs import run_folder, starting_weights

_log = logging.getLogger("transformer_jax.sweep")


def finished(workdir: pathlib.Path) -> dict[str, pathlib.Path]:
    """The folders of a sweep's finished runs, those that were set aside too, by config hash.

    A result without a run.json, as published earlier, does not say what it is of.
    """
    if not (workdir / "sweep.json").exists():
        raise errors.UserError(
            f"--reuse={workdir} holds no sweep: it has no sweep.json; name a sweep's folder"
        )
    return {
        run_folder.read_record(record.parent)["config_hash"]: record.parent
        for record in sorted(workdir.glob("*/seed*/run.json"))
        if record.with_name("result.json").exists()
    }


def missing(
    cells: Sequence[cells_lib.Cell], reusable: Mapping[str, pathlib.Path]
) -> list[cells_lib.Cell]:
    """The cells without a result, once what can be has been brought back or taken over.

    A run whose checkpoints are not there, as in a published copy, is not taken over where a cell
    without a result starts from its weights.
    """
    hashes: dict[files.Path, str] = {cell.folder.resolve(): cell.digest for cell in cells}
    begun = cells_lib.starts(cells)
    wanted: set[files.Path] = set()
    left: set[pathlib.Path] = set()
    for cell in sorted(cells, key=lambda cell: -begun[cell.folder]):
        if not is_done(cell, reusable, hashes, wanted):
            left.add(cell.folder)
            if cell.source and starting_weights.are_read(cell.config, cell.folder):
                wanted.add(cell.source)
    return [cell for cell in cells if cell.folder in left]


def require_weights(cells: Sequence[cells_lib.Cell], others: Sequence[cells_lib.Cell] = ()) -> None:
    """Raises UserError if a cell without a result starts from weights that nobody makes.

    Args:
      cells: those of a sweep, also those that have a result.
      others: of the table's other rows, those from whose weights some of these start.
    """
    left = [cell for cell in cells if not (cell.folder / "result.json").exists()]
    made: set[files.Path] = {cell.folder.resolve() for cell in left}
    known: dict[files.Path, cells_lib.Cell] = {
        cell.folder.resolve(): cell for cell in (*others, *cells)
    }
    for cell in left:
        if not cell.source or cell.source in made:
            continue
        if not starting_weights.are_read(cell.config, cell.folder):
            continue
        other = known.get(cell.source)
        if fault := _fault(cell.source, other):
            remedy = "train that run first"
            if other:
                chosen = other in cells
                remedy = "delete that folder" if chosen else f"choose row {other.row!r} too"
            raise errors.UserError(
                f"row {cell.row!r} starts from the weights in {cell.source}, which holds {fault}: "
                f"{remedy}, or leave this row out (--rows)"
            )


def _fault(folder: files.Path, expected: cells_lib.Cell | None) -> str:
    """What a folder holds in place of a run that others can start from; "": it holds one."""
    if not (folder / "result.json").exists():
        return "no finished run"
    if not (folder / "checkpoints").exists():
        return "a run without its checkpoints"
    record = folder / "run.json"
    if not expected or not expected.digest or not record.exists():
        return ""
    is_it = run_folder.read_record(folder)["config_hash"] == expected.digest
    return "" if is_it else "a run of another config"


def is_done(
    cell: cells_lib.Cell,
    reusable: Mapping[str, pathlib.Path],
    hashes: Mapping[files.Path, str],
    wanted: Collection[files.Path] = (),
) -> bool:
    """Whether the cell has a result, once what can be has been brought back or taken over.

    A run of another config in its place is set aside, under a part of its hash; one of this config
    that was set aside earlier is brought back.

    Args:
      cell: the cell.
      reusable: other sweeps' finished runs, by config_hash.
      hashes: the config_hash of each of this sweep's cells, by its whole path. A run that began
        with other weights than the cell would is not taken over.
      wanted: the folders of cells whose weights others need; see `missing`.
    """
    record_path = cell.folder / "run.json"
    if record_path.exists():
        found = run_folder.read_record(cell.folder)["config_hash"]
        if found != cell.digest:
            aside = _aside(cell.folder, found)
            while aside.exists():  # the same config, run twice
                aside = aside.with_name(f"{aside.name}-again")
            with run_folder.only_run_in(cell.folder):
                cell.folder.rename(aside)
            _log.info("%s: its config has changed; the earlier run is now %s", cell.name, aside)
    if not record_path.exists() and _aside(cell.folder, cell.digest).exists():
        if cell.folder.exists():  # of a start that ended before it began
            with run_folder.only_run_in(cell.folder):
                shutil.rmtree(cell.folder)
        _aside(cell.folder, cell.digest).rename(cell.folder)
        _log.info("%s: a run of this config was set aside earlier; it is back", cell.name)
    found = reusable.get(cell.digest)
    if found and not (cell.folder / "result.json").exists():
        if _begins_otherwise(cell, found, hashes):
            _log.info("%s: not taken over from %s: its first weights were others", cell.name, found)
        elif cell.folder.resolve() in wanted and not (found / "checkpoints").exists():
            _log.info("%s: not taken over from %s: it has no checkpoints", cell.name, found)
        else:
            _log.info("%s: taken over from %s", cell.name, found)
            _take(found, cell)
    return (cell.folder / "result.json").exists()


def _begins_otherwise(
    cell: cells_lib.Cell, found: pathlib.Path, hashes: Mapping[files.Path, str]
) -> bool:
    """Whether a run of the cell's config_hash is known to have begun with other weights."""
    if not cell.source or cell.source not in hashes:
        return False
    theirs = found.resolve().parents[1] / cell.source.parent.name / cell.source.name
    if not (theirs / "run.json").exists():
        return False
    return run_folder.read_record(theirs)["config_hash"] != hashes[cell.source]


def _take(found: pathlib.Path, cell: cells_lib.Cell) -> None:
    """Copies a finished run in place of one that has not ended, under the row's name here.

    Checkpoints, which nobody changes, are linked where that can be done.
    """
    folder, about = cell.folder, {"row": cell.row, "overrides": dict(cell.overrides)}
    folder.mkdir(parents=True, exist_ok=True)
    with run_folder.only_run_in(folder):
        copy = folder.with_name(f".{folder.name}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        try:
            link_or_copy = functools.partial(_link_or_copy, found)
            shutil.copytree(found, copy, symlinks=True, copy_function=link_or_copy)
            result = {**run_folder.read_result(found), **about}
            files.write_json(copy / "result.json", result)
            shutil.rmtree(folder)
            copy.rename(folder)
        except OSError as error:
            raise errors.UserError(f"cannot copy {found} to {folder}: {error}") from error


def _link_or_copy(run: pathlib.Path, source: str, target: str) -> None:
    if "checkpoints" in pathlib.Path(source).relative_to(run).parts:
        with contextlib.suppress(OSError):  # another disk, or one without links
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _aside(folder: pathlib.Path, config_hash: str) -> pathlib.Path:
    return folder.with_name(f"{folder.name}.{config_hash[:8]}")
