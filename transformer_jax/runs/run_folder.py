"""The folder of a run: its configuration, lock, records and trained model."""

import contextlib
import errno
import fcntl
import logging
import os
import pathlib
import re
import socket
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax

from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.data import vocabulary
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.distributed import sharding
from transformer_jax.models import interface
from transformer_jax.training import checkpoint, metrics
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)

_ALL_DEVICES = config_lib.MeshConfig(data=-1, fsdp=1, tensor=1)
_MOST_DIFFERENCES = 3  # shown when a folder holds another run
# Keys that every result.json has, with the types of their values.
_RESULT = {
    "params": int,
    "ppl": float,
    "wall_seconds": float,
    "data": dict,
    "decode": dict,
    "data_sha256": str,
    "tokenizer_sha256": str,
    "test_sha256": str,
}


def read_config(workdir: files.Path) -> config_lib.Config:
    """Returns a run's configuration; raises UserError if config.json is damaged or not valid."""
    path = workdir / "config.json"
    values = files.read_json(path, {}, "restore it, or train in another --workdir")
    try:
        return config_lib.from_record(values)
    except errors.UserError as error:
        raise errors.UserError(
            f"{path}: {error}; if another version of transformer_jax wrote it, use that one"
        ) from error


def read_record(workdir: files.Path) -> dict[str, Any]:
    """Returns the content of run.json: `config_hash`, `digests` and `data`.

    Raises:
      UserError: run.json cannot be read or is damaged.
    """
    path = workdir / "run.json"
    remedy = "restore it, or choose another --workdir"
    record = files.read_json(path, {"config_hash": str, "digests": dict}, remedy)
    if not re.fullmatch("[0-9a-f]{64}", record["config_hash"]):  # it is used as a folder's name
        raise errors.UserError(f"{path} is damaged (config_hash is no SHA-256): {remedy}")
    return record


def read_result(workdir: files.Path) -> dict[str, Any]:
    """Returns the content of result.json; raises UserError if the file is damaged."""
    remedy = "delete it and start the run again, which then only evaluates"
    return files.read_json(workdir / "result.json", _RESULT, remedy)


def read_error(workdir: files.Path) -> str:
    """Returns the error message in failure.json as one line.

    Raises:
      UserError: failure.json cannot be read or is damaged.
    """
    path = workdir / "failure.json"
    failure = files.read_json(path, {"error": str}, "delete it and start the run again")
    return " ".join(failure["error"].split())


def read_tokenizer(workdir: files.Path, config: config_lib.Config) -> tokenizer_lib.Tokenizer:
    """Returns the tokenizer of a run.

    Raises:
      UserError: tokenizer.model is damaged, or tokenizer.model or config.json does not match
        run.json.
    """
    path = workdir / "tokenizer.model"
    tokenizer = tokenizer_lib.read(path, "restore it, or train in another --workdir")
    if not (workdir / "run.json").exists():
        return tokenizer
    record = read_record(workdir)
    config_hash = config_lib.fingerprint(config, record["digests"])
    for name, matches in (
        ("tokenizer.model", tokenizer.digest == record["digests"].get("tokenizer")),
        ("config.json", config_hash == record["config_hash"]),
    ):
        if not matches:
            raise errors.UserError(
                f"{workdir / name} is not the one that this run was trained with, as run.json "
                "says: restore it, or train in another --workdir"
            )
    return tokenizer


@contextlib.contextmanager
def only_run_in(workdir: files.Path) -> Iterator[None]:
    """Holds a lock on a run's folder during the body, so that no other process runs in it.

    The system releases the lock when the process ends. In a bucket, which has no locks, the file
    `.lock` only names the process that started last.

    Raises:
      UserError: another process holds the lock, or the folder is not writable.
    """
    if not isinstance(workdir, pathlib.Path):
        try:
            files.write_lines(workdir / ".lock", [f"{socket.gethostname()}, process {os.getpid()}"])
        except errors.RunError as error:
            raise errors.UserError(str(error)) from error
        yield
        return
    try:
        lock = (workdir / ".lock").open("a")
    except OSError as error:
        raise errors.UserError(f"cannot write into {workdir}: {error}") from error
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise errors.UserError(
                f"another process is at work in {workdir}: wait for it, or stop it"
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOTSUP):
                raise
            _log.warning("%s has no locks: start no other process in it", workdir)
        yield


def has_checkpoints(workdir: files.Path) -> bool:
    """Returns whether a run's folder contains checkpoints."""
    return any((workdir / "checkpoints").glob("[0-9]*"))


def claim(workdir: files.Path, config: config_lib.Config, dataset: dataset_lib.Dataset) -> str:
    """Writes a run's config.json, tokenizer.model and run.json, and returns its config_hash.

    A run without a result may be resumed with other mesh, checkpoint and log settings. The files of
    a finished run are not changed.

    Raises:
      UserError: the folder holds a run of another configuration or of other data.
    """
    digests = _digests(workdir, config, dataset)
    config_hash = config_lib.fingerprint(config, digests)
    record_path = workdir / "run.json"
    has_started = has_checkpoints(workdir)
    if has_started and not record_path.exists():
        raise errors.UserError(
            f"{workdir} holds checkpoints, but no run.json says of which run: restore it, or "
            "choose another --workdir"
        )
    if record_path.exists():
        record = read_record(workdir)
        is_finished = (workdir / "result.json").exists()
        if record["config_hash"] == config_hash:
            if is_finished:
                return config_hash
        elif has_started or is_finished:
            differences = _differences(read_config(workdir), config, record["digests"], digests)
            raise errors.UserError(
                f"{workdir} holds a run of another config ({differences}): "
                "choose another --workdir or delete this one"
            )
        else:
            _log.info("%s held a run of another config that had not started; replaced", workdir)
    files.write_json(workdir / "config.json", config_lib.to_dict(config))
    files.write(workdir / "tokenizer.model", dataset.tokenizer.model)
    record = {"config_hash": config_hash, "digests": digests, "data": dict(dataset.provenance)}
    files.write_json(record_path, record)
    return config_hash


def _digests(
    workdir: files.Path, config: config_lib.Config, dataset: dataset_lib.Dataset
) -> dict[str, str]:
    """Returns the digests that `config_lib.fingerprint` covers.

    These are the dataset's digests and, as "start_from", the config_hash of the run in
    train.start_from.
    """
    digests = dict(dataset.digests)
    if name := config.train.start_from:
        source = files.path(name)
        if (source / "run.json").exists():
            digests["start_from"] = read_record(source)["config_hash"]
        elif (workdir / "run.json").exists():  # a run that has started may have lost its source
            digests["start_from"] = read_record(workdir)["digests"].get("start_from", "")
        if not digests.get("start_from"):
            raise errors.UserError(
                f"train.start_from={name}: {source} holds no finished run; train it first"
            )
    return digests


def _differences(
    old: config_lib.Config,
    new: config_lib.Config,
    old_digests: Mapping[str, str],
    new_digests: Mapping[str, str],
) -> str:
    """Returns a text with the first few differences between two runs' configs and data.

    Args:
      old: the config of the run in the folder.
      new: the config of the run that is started.
      old_digests: the digests in run.json.
      new_digests: the digests of the run that is started.
    """
    before, after = config_lib.flatten(old), config_lib.flatten(new)
    differences = [
        f"{name} is {before[name]!r} there, {after[name]!r} here"
        for name in after
        if config_lib.is_hashed(name) and before[name] != after[name]
    ]
    if new.evaluation.average_checkpoints > 1 and old.checkpoint.every != new.checkpoint.every:
        differences.append(
            f"averaged checkpoints are {old.checkpoint.every} steps apart there, "
            f"{new.checkpoint.every} here"
        )
    differences += [
        f"the {name} differs"
        for name, digest in new_digests.items()
        if old_digests.get(name) != digest and (name != "test" or new.evaluation.score_test)
    ]
    more = len(differences) - _MOST_DIFFERENCES
    shown = "; ".join(differences[:_MOST_DIFFERENCES])
    return f"{shown}; and {more} more" if more > 0 else shown


def record_failure(workdir: files.Path, error: BaseException) -> None:
    """Writes failure.json: the error, its traceback and the last logged step."""
    try:
        step = max((record["step"] for record in metrics.read(workdir)), default=0)
    except errors.UserError:  # a damaged metrics.jsonl must not hide the error
        step = None
    failure = {
        "error": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
        "step": step,
    }
    files.write_json(workdir / "failure.json", failure)


class Trained(NamedTuple):
    """A trained model with its tokenizer and configuration."""

    model: interface.Architecture
    params: Any
    tokenizer: tokenizer_lib.Tokenizer
    config: config_lib.Config

    def translator(self) -> translator_lib.Translator | None:
        """Returns a translator on all devices, or None if the model is encoder-only."""
        if not isinstance(self.model, interface.Decoder):
            return None
        mesh = sharding.make_mesh(_ALL_DEVICES)
        return translator_lib.Translator(self.model, self.params, self.tokenizer, self.config, mesh)


def load(workdir: str | files.Path) -> translator_lib.Translator:
    """Returns a translator with the model of a trained run.

    For example, `load("runs/X").translate(["A dog sleeps."])` returns a list of one translation.

    Args:
      workdir: the folder of a run, or a published folder with a model.

    Raises:
      UserError: the folder holds no run, a run without checkpoints, a damaged run or an
        encoder-only model.
    """
    trained = load_model(workdir)
    translator = trained.translator()
    if not translator:
        raise errors.UserError(
            f"{workdir} holds a model.architecture={trained.config.model.architecture}, which "
            "writes no sentences: name the folder of one that does"
        )
    return translator


def load_model(workdir: str | files.Path) -> Trained:
    """Returns the trained model in a run's folder, with its tokenizer and configuration.

    The parameters are the mean of the newest evaluation.average_checkpoints checkpoints. No code
    from the folder is executed.

    Args:
      workdir: the folder of a run, or a published folder with a model.

    Raises:
      UserError: the folder holds no run, a run without checkpoints, or a damaged run.
    """
    folder = files.path(os.fspath(workdir))
    if (folder / "model").is_dir():
        folder /= "model"
    for name in ("config.json", "tokenizer.model", "checkpoints/"):
        path = folder / name
        try:
            exists = path.is_dir() if name.endswith("/") else path.exists()
        except OSError as error:
            raise errors.UserError(f"cannot read {folder}: {error}") from error
        if not exists:
            raise errors.UserError(
                f"{folder} holds no trained run: it has no {name}; name the folder that was the "
                "--workdir of one"
            )
    config = read_config(folder)
    tokenizer = read_tokenizer(folder, config)
    model = models.build(config.model, vocabulary.size(config))
    params = restore_params(config, sharding.make_mesh(_ALL_DEVICES), folder, tokenizer)
    if not (folder / "result.json").exists():
        _log.warning("%s holds an unfinished run: its newest checkpoint is used", folder)
    return Trained(model, params, tokenizer, config)


def restore_params(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    workdir: files.Path,
    tokenizer: tokenizer_lib.Tokenizer,
) -> Any:
    """Returns the mean parameters of the newest evaluation.average_checkpoints checkpoints."""
    model = models.build(config.model, vocabulary.size(config))
    checkpoints = checkpoint.Checkpoints(workdir / "checkpoints", config, tokenizer.digest)
    with contextlib.closing(checkpoints):
        return checkpoints.averaged(step_lib.state_shapes(model, config, mesh))
