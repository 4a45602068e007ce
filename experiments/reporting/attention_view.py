"""Where each row attends in chosen development sentences, kept in the runs' folders."""

import base64
import logging
import math
import pathlib
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from experiments.reporting import translations
from experiments.sweep import results
from transformer_jax import errors, files
from transformer_jax.evaluation import attention_weights
from transformer_jax.runs import run_folder

_log = logging.getLogger("transformer_jax.report")

_KIND = {
    "kind": str, "rows": [str], "columns": [str], "layers": int, "heads": int, "weights": str
}  # fmt: skip


def collect(sweep: results.Sweep, numbers: Collection[int]) -> dict[tuple[str, int], str]:
    """Keeps the maps of each row's first seed as attention/NUMBER.json in its folder.

    What is there already, of the same configuration, is not computed again. The target is the run's
    own translation. Sentences are numbered from 1.

    Returns:
      Why there is no map, by row and number.

    Raises:
      UserError: there are not so many sentences.
    """
    why: dict[tuple[str, int], str] = {}
    for row, seed, folder in _first_runs(sweep):
        translator, left = None, translations.read(sweep, row, seed)
        for number in sorted(numbers):
            if all(left.values()) and number > (total := len(left["sources"])):
                raise errors.UserError(
                    f"--attention={number}: the development set has {total:,} sentences"
                )
            if _kept(folder, number):
                continue
            if not all(left.values()):
                why[row.name, number] = "the run has not left its source sentences (sources.txt)"
            elif not (folder / "checkpoints").is_dir():
                why[row.name, number] = "its checkpoint is gone"
            else:
                _log.info("%s: attention in sentence %d", row.name, number)
                try:
                    translator = translator or run_folder.load(folder)
                    pair = [left[name][number - 1] for name in ("sources", "hypotheses")]
                    maps = attention_weights.collect(translator, *pair)
                    files.write_json(_path(folder, number), _record(folder, maps))
                except errors.UserError as error:
                    why[row.name, number] = str(error).replace(str(folder), folder.name)
    return why


def gather(sweep: results.Sweep, why: Mapping[tuple[str, int], str]) -> list[dict[str, Any]]:
    """All maps that are kept, as the page reads them; `why` is what `collect` gave.

    Returns:
      A list of sentences: `number`, and `rows`, of `name` and either `kinds` or `why` there are
      none. Weights are bytes, 255 for 1, of shape (layers, heads, rows, columns), deflated, in
      base 64.

    Raises:
      UserError: a kept file is damaged.
    """
    runs = _first_runs(sweep)
    asked = {number for _, number in why}
    kept = {
        int(path.stem)
        for _, _, folder in runs
        for path in (folder / "attention").glob("*.json")
        if path.stem.isascii() and path.stem.isdecimal()
    }
    found = []
    for number in sorted(asked | kept):
        rows: list[dict[str, Any]] = []
        for row, _, folder in runs:
            kinds, reason = _kept(folder, number), why.get((row.name, number), "not collected")
            rows.append({"name": row.name, **({"kinds": kinds} if kinds else {"why": reason})})
        if number in asked or any("kinds" in row for row in rows):
            found.append({"number": number, "rows": rows})
    return found


def _first_runs(sweep: results.Sweep) -> list[tuple[results.Row, int, pathlib.Path]]:
    """The rows that have results, each with its first seed and that one's folder."""
    return [
        (row, seed, results.cell_folder(sweep.workdir, row.name, seed))
        for row in sweep.rows
        for seed in list(row.results)[:1]
    ]


def _path(folder: pathlib.Path, number: int) -> pathlib.Path:
    return folder / "attention" / f"{number}.json"


def _kept(folder: pathlib.Path, number: int) -> list[dict[str, Any]] | None:
    """The maps that lie in a run's folder, if they are of its configuration."""
    path = _path(folder, number)
    if not path.exists():
        return None
    remedy = f"delete it, and give --attention={number}"
    record = files.read_json(path, {"config_hash": str, "kinds": [_KIND]}, remedy)
    try:
        for kind in record["kinds"]:
            shape = (kind["layers"], kind["heads"], len(kind["rows"]), len(kind["columns"]))
            size = math.prod(shape)
            packed = base64.b64decode(kind["weights"], validate=True)
            content = zlib.decompressobj().decompress(packed, size + 1)
            if kind["kind"] not in attention_weights.CAPTIONS or len(content) != size:
                raise ValueError("its weights are not of its shape")
    except (ValueError, zlib.error) as error:
        raise errors.UserError(f"{path} is damaged ({error}): {remedy}") from error
    return record["kinds"] if record["config_hash"] == _config_hash(folder) else None


def _config_hash(folder: pathlib.Path) -> str:
    record = files.read_json(folder / "result.json", {"config_hash": str}, "restore it")
    return record["config_hash"]


def _record(folder: pathlib.Path, all_maps: list[attention_weights.Maps]) -> dict[str, Any]:
    kinds = []
    for maps in all_maps:
        packed = zlib.compress(np.rint(255 * maps.weights).astype(np.uint8).tobytes(), 9)
        layers, heads, *_ = maps.weights.shape
        kinds.append({
            "kind": maps.kind, "rows": maps.rows, "columns": maps.columns, "layers": layers,
            "heads": heads, "weights": base64.b64encode(packed).decode(),
        })  # fmt: skip
    return {"config_hash": _config_hash(folder), "kinds": kinds}
