"""A run's folder: whose it is, who is at work in it, what went wrong there, what it has trained."""

import contextlib
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
from transformer_jax.decoding import translator
from transformer_jax.distributed import sharding
from transformer_jax.models import interface
from transformer_jax.runs import shapes
from transformer_jax.training import checkpoint, metrics
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)

_ALL_DEVICES = config_lib.MeshConfig(data=-1, fsdp=1, tensor=1)


def read_config(workdir: files.Path) -> config_lib.Config:
    """A run's configuration; raises UserError if it is damaged, or another version wrote it."""
    path = workdir / "config.json"
    values = files.read_json(path, {str: dict}, "restore it, or train in another --workdir")
    try:
        return config_lib.from_record(values)
    except errors.UserError as error:
        raise errors.UserError(
            f"{path}: {error}; if another version of transformer_jax wrote it, use that one"
        ) from error


def read_record(workdir: files.Path) -> dict[str, Any]:
    """What run.json says: `config_hash` and `digests`; raises UserError if it is damaged."""
    path, remedy = workdir / "run.json", "restore it, or choose another --workdir"
    record = files.read_json(path, {"config_hash": str, "digests": {str: str}}, remedy)
    if not re.fullmatch("[0-9a-f]{64}", record["config_hash"]):  # a part of it names a folder
        raise errors.UserError(f"{path} is damaged (config_hash is no SHA-256): {remedy}")
    return record


def read_result(workdir: files.Path) -> dict[str, Any]:
    """What result.json says; raises UserError if it is damaged."""
    path = workdir / "result.json"
    remedy = "delete it and start the run again, which then only evaluates"
    found = files.read_json(path, shapes.RESULT, remedy)
    writes = found.get("bleu") != {} and all(found["data"]["languages"])
    files.read_json(path, shapes.scores(writes, bool(found["test_sha256"])), remedy)
    for is_wrong, what in (
        (found["params"] < 1, "a model without parameters"),
        (found.get("devices") == [], "a run on no device"),
        (writes and not found["bleu_by_length"], "no sentence of any length"),
    ):
        if is_wrong:
            raise errors.UserError(f"{path} is damaged ({what}): {remedy}")
    return found


def read_error(workdir: files.Path) -> str:
    """What failure.json says went wrong, as one line; raises UserError if it is damaged."""
    path = workdir / "failure.json"
    failure = files.read_json(path, {"error": str}, "delete it and start the run again")
    return " ".join(failure["error"].split())


def read_tokenizer(workdir: files.Path, config: config_lib.Config) -> tokenizer_lib.Tokenizer:
    """The tokenizer of a run, which is as sure to be its own as run.json is.

    Raises:
      UserError: it is damaged, or tokenizer.model, config.json and run.json are of several runs.
    """
    path = workdir / "tokenizer.model"
    tokenizer = tokenizer_lib.read(path, "restore it, or train in another --workdir")
    if not (workdir / "run.json").exists():
        return tokenizer
    record = read_record(workdir)
    for name, here, there in (
        ("tokenizer.model", tokenizer.digest, record["digests"].get("tokenizer")),
        ("config.json", config_lib.fingerprint(config, record["digests"]), record["config_hash"]),
    ):
        if here != there:
            raise errors.UserError(
                f"{workdir / name} is not the one that this run was trained with, as run.json "
                "says: restore it, or train in another --workdir"
            )
    return tokenizer


@contextlib.contextmanager
def only_run_in(workdir: files.Path) -> Iterator[None]:
    """Holds the folder's lock, which the system frees when the process ends, however it ends.

    A bucket locks nothing: there `.lock` only says which process came last.

    Raises:
      UserError: another process holds it, or the folder cannot be written into.
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
        yield


def has_begun(workdir: files.Path) -> bool:
    """Whether a run has written checkpoints there."""
    return any((workdir / "checkpoints").glob("[0-9]*"))


def claim(workdir: files.Path, config: config_lib.Config, dataset: dataset_lib.Dataset) -> str:
    """Makes the folder this run's, or checks that it is; returns the run's config hash.

    What has no result yet goes on as the config says, which may log, save or be sharded otherwise.

    Raises:
      UserError: it holds a run of another config or of other data.
    """
    digests = _digests(workdir, config, dataset)
    config_hash = config_lib.fingerprint(config, digests)
    record_path = workdir / "run.json"
    started = has_begun(workdir)
    if started and not record_path.exists():
        raise errors.UserError(
            f"{workdir} holds checkpoints, but no run.json says of which run: restore it, or "
            "choose another --workdir"
        )
    if record_path.exists():
        record, is_done = read_record(workdir), (workdir / "result.json").exists()
        if record["config_hash"] == config_hash:
            if is_done:
                return config_hash
        elif started or is_done:
            differences = _differences(read_config(workdir), config, record["digests"], digests)
            raise errors.UserError(
                f"{workdir} holds a run of another config ({differences}): "
                "choose another --workdir or delete this one"
            )
        else:
            _log.info("%s held a run of another config that had not begun; it is replaced", workdir)
    files.write_json(workdir / "config.json", config_lib.to_dict(config))
    files.write(workdir / "tokenizer.model", dataset.tokenizer.model)
    about = {"digests": digests, "data": dict(dataset.provenance)}
    files.write_json(record_path, {"config_hash": config_hash, **about})
    return config_hash


def _digests(
    workdir: files.Path, config: config_lib.Config, dataset: dataset_lib.Dataset
) -> dict[str, str]:
    """Returns the digests of the dataset and of the run that train.start_from names."""
    digests = dict(dataset.digests)
    if name := config.train.start_from:
        source = files.path(name)
        if (source / "run.json").exists():
            digests["start_from"] = read_record(source)["config_hash"]
        elif (workdir / "run.json").exists():  # a run that has started no longer needs its source
            digests["start_from"] = read_record(workdir)["digests"].get("start_from", "")
        if not digests.get("start_from"):
            raise errors.UserError(
                f"train.start_from={name}: {source} holds no finished run; train it first"
            )
    return digests


def record_failure(workdir: files.Path, error: BaseException) -> None:
    """Leaves failure.json: what went wrong, where in the code, and at which logged step."""
    try:
        steps = [0, *(record["step"] for record in metrics.read(workdir))]
    except errors.UserError:  # metrics.jsonl is damaged too, and the error comes first
        steps = [None]
    said, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    record = {"error": said, "traceback": trace, "step": steps[-1]}
    files.write_json(workdir / "failure.json", record)


def _differences(
    old: config_lib.Config,
    new: config_lib.Config,
    old_digests: Mapping[str, str],
    new_digests: Mapping[str, str],
) -> str:
    """The first few fields in which two runs differ."""
    before, after = config_lib.flatten(old), config_lib.flatten(new)
    found = [
        f"{name} is {before[name]!r} there, {after[name]!r} here"
        for name in filter(config_lib.is_hashed, after)
        if before[name] != after[name]
    ]
    there, here = old.checkpoint.every, new.checkpoint.every
    if there != here and new.evaluation.average_checkpoints > 1:  # else it changes no result
        found.append(f"averaged checkpoints are {there} steps apart there, {here} here")
    found += [
        f"the {name} differs"
        for name in new_digests
        if old_digests.get(name) != new_digests[name]
        and (name != "test" or new.evaluation.score_test)
    ]
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


class Trained(NamedTuple):
    """What a run has come to."""

    model: interface.Architecture
    params: Any
    tokenizer: tokenizer_lib.Tokenizer
    config: config_lib.Config

    def ready(self) -> translator.Translator | None:
        """Ready to translate; None if its model writes no sentences."""
        if not isinstance(self.model, interface.Decoder):
            return None
        return translator.Translator(self.model, *self[1:], sharding.make_mesh(_ALL_DEVICES))


def load(workdir: str | files.Path) -> translator.Translator:
    """A trained run, ready to translate: `load("runs/X").translate(["A dog sleeps."])`.

    Raises:
      UserError: as `load_model`, or the run's model writes no sentences.
    """
    trained = load_model(workdir)
    if not (found := trained.ready()):
        raise errors.UserError(
            f"{workdir} holds a model.architecture={trained.config.model.architecture}, which "
            "writes no sentences: name the folder of one that does"
        )
    return found


def load_model(workdir: str | files.Path) -> Trained:
    """A trained run, whatever its model.

    Only data is read: config.json, tokenizer.model and the newest checkpoint, or as many as
    evaluation.average_checkpoints says.

    Raises:
      UserError: the folder holds no run, none with a checkpoint, or a damaged one.
    """
    folder = files.path(os.fspath(workdir))
    for name in ("config.json", "tokenizer.model", "checkpoints/"):
        there = folder / name
        try:
            is_there = there.is_dir() if name.endswith("/") else there.exists()
        except OSError as error:
            raise errors.UserError(f"cannot read {folder}: {error}") from error
        if not is_there:
            raise errors.UserError(
                f"{folder} holds no trained run: it has no {name}; name the folder that was the "
                "--workdir of one"
            )
    config = read_config(folder)
    tokenizer = read_tokenizer(folder, config)
    model = models.build(config.model, vocabulary.size(config))
    params = restore_params(config, sharding.make_mesh(_ALL_DEVICES), folder, tokenizer)
    if not (folder / "result.json").exists():
        _log.warning("%s holds a run that has not ended: its newest checkpoint is used", folder)
    return Trained(model, params, tokenizer, config)


def restore_params(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    workdir: files.Path,
    tokenizer: tokenizer_lib.Tokenizer,
) -> Any:
    """A run's newest parameters, or the mean of as many as evaluation.average_checkpoints says."""
    model = models.build(config.model, vocabulary.size(config))
    checkpoints = checkpoint.Checkpoints(workdir / "checkpoints", config, tokenizer.digest)
    with contextlib.closing(checkpoints):
        return checkpoints.averaged(step_lib.state_shapes(model, config, mesh))
