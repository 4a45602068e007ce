"""A run's folder: whose it is, who is at work in it, and what went wrong there."""

import contextlib
import fcntl
import json
import logging
import pathlib
import traceback
from collections.abc import Iterator, Mapping
from typing import IO

from transformer_jax import config as config_lib
from transformer_jax import files
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.training import metrics

_log = logging.getLogger(__name__)


def read_config(workdir: pathlib.Path) -> config_lib.Config:
    """The configuration of the run in a folder."""
    return config_lib.from_mapping(
        json.loads((workdir / "config.json").read_text(encoding="utf-8"))
    )


def _open_lock(workdir: pathlib.Path) -> IO[str]:
    try:
        return (workdir / ".lock").open("a")
    except OSError as error:
        raise config_lib.UserError(f"cannot write into {workdir}: {error}") from error


@contextlib.contextmanager
def only_run_in(workdir: pathlib.Path) -> Iterator[None]:
    """Holds the folder's lock, which the system frees when the process ends, however it ends.

    Raises:
      UserError: another process holds it.
    """
    with _open_lock(workdir) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise config_lib.UserError(
                f"another process is at work in {workdir}: wait for it, or stop it"
            ) from error
        yield


def claim(workdir: pathlib.Path, config: config_lib.Config, dataset: dataset_lib.Dataset) -> str:
    """Makes the folder this run's, or checks that it is; returns the run's config hash.

    Raises:
      UserError: it holds a run of another config or of other data.
    """
    config_hash = config_lib.fingerprint(config, dataset.digests)
    record_path = workdir / "run.json"
    if record_path.exists():
        record = json.loads(record_path.read_text(encoding="utf-8"))
        if record["config_hash"] == config_hash:
            return config_hash
        started = list((workdir / "checkpoints").glob("[0-9]*"))
        if started or (workdir / "result.json").exists():
            differences = _differences(read_config(workdir), config, record["digests"], dataset)
            raise config_lib.UserError(
                f"{workdir} holds a run of another config ({differences}): "
                "choose another --workdir or delete this one"
            )
        _log.info("%s held a run of another config that had not begun; it is replaced", workdir)
    files.write_json(workdir / "config.json", config_lib.to_dict(config))
    files.write(workdir / "tokenizer.model", dataset.tokenizer.model)
    files.write_json(
        record_path,
        {
            "config_hash": config_hash,
            "digests": dict(dataset.digests),
            "data": dict(dataset.provenance),
        },
    )
    return config_hash


def record_failure(workdir: pathlib.Path, error: BaseException) -> None:
    """Leaves failure.json: what went wrong, where in the code, and at which logged step."""
    steps = [record["step"] for record in metrics.read(workdir)]
    files.write_json(
        workdir / "failure.json",
        {
            "error": f"{type(error).__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
            "step": steps[-1] if steps else 0,
        },
    )


def _differences(
    old: config_lib.Config,
    new: config_lib.Config,
    old_digests: Mapping[str, str],
    dataset: dataset_lib.Dataset,
) -> str:
    """The first few fields in which two runs differ."""
    before, after = config_lib.to_dict(old), config_lib.to_dict(new)
    found = [
        f"{section}.{field} is {before[section][field]!r} there, {after[section][field]!r} here"
        for section in ("model", "train", "data", "decode", "evaluation")
        for field in after[section]
        if before[section][field] != after[section][field]
    ]
    found += [
        f"the {name} differs"
        for name in dataset.digests
        if old_digests.get(name) != dataset.digests[name]
    ]
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
