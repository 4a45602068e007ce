"""Files that are there whole or not at all, and JSON that holds what it should.

A run's folder may be one of this machine or lie in a bucket of Google Cloud Storage. What is
written there is in both a `Path`; what must be mapped into memory or locked is a `pathlib.Path`.
"""

import dataclasses
import hashlib
import importlib.util
import json
import math
import os
import pathlib
import re
import tempfile
import traceback
import typing
from collections.abc import Mapping
from typing import Any, NoReturn, final

import fsspec.config
import fsspec.core
from etils import epath

from transformer_jax import errors

Path = pathlib.Path | epath.Path


def path(name: str) -> Path:
    """A file or folder, by its name: on this machine, or gs://BUCKET/NAME.

    Raises:
      UserError: it is an address of another kind, or what reads buckets is not installed.
    """
    if not _ADDRESS.match(name):
        return pathlib.Path(name)
    if not re.fullmatch(r"gs://[^/*?\[\]#]+(/[^*?\[\]#]*)?", name):  # to gcsfs, patterns
        raise errors.UserError(
            f"{name} is neither a folder of this machine nor one in a bucket, gs://BUCKET/FOLDER, "
            "without any of *?[]#"
        )
    if not importlib.util.find_spec("gcsfs"):
        raise errors.UserError(f"{name} needs gcsfs: pip install 'transformer_jax[gcs]'")
    os.environ.setdefault("EPATH_USE_TF", "false")  # fsspec also where TensorFlow is installed
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # Orbax's arrays reach the bucket past fsspec, whose listings would be old.
    fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
    return epath.Path(name)


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")  # of one slash too: what pathlib makes of two


def local_path(name: str) -> pathlib.Path:
    """A file or folder of this machine, by its name; raises UserError if it is an address."""
    if _ADDRESS.match(name):
        raise errors.UserError(f"{name} is no folder of this machine, which is needed here")
    return pathlib.Path(name)


def below(folder: Path) -> list[str]:
    """The paths, from a folder, of all files in it and its folders, in order."""
    if isinstance(folder, pathlib.Path):
        found = (path for path in folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(folder).as_posix() for path in found)
    # epath would ask for each whether it is a folder, and take no answer for a no.
    system, root = fsspec.core.url_to_fs(str(folder))
    return sorted(name.removeprefix(f"{root}/") for name in system.find(root))


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    file: Any
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def met_in_a_bucket(error: BaseException) -> bool:
    """Whether an error comes from reading or writing a bucket: such errors share no class."""
    names = (frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__))
    # Not protobuf, which is google's too.
    theirs = ("gcsfs", "google.api_core", "google.auth", "google.cloud", "google.resumable_media")
    return any(name.startswith(theirs) for name in names)


def make_folder(folder: Path, what: str) -> None:
    """Makes a folder, and those around it; raises UserError, which says what it should be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise errors.UserError(f"cannot make {what}: {error}") from error


def write(path: Path, content: bytes) -> None:
    """Writes a file atomically, also if several processes write it at once.

    Raises:
      OSError: this machine does not take it.
      RunError: a bucket does not.
    """
    if not isinstance(path, pathlib.Path):
        try:
            path.write_bytes(content)  # in a bucket a file appears when it is whole
        except Exception as error:  # gcsfs's, Google's or the network's: they share no class
            raise errors.RunError(f"cannot write {path}: {error}") from error
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}."
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=prefix, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object atomically."""
    write_lines(path, [json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)])


def write_lines(path: Path, lines: list[str]) -> None:
    """Writes one line each, atomically."""
    write(path, "".join(f"{line}\n" for line in lines).encode())


@final
@dataclasses.dataclass(frozen=True)
class Maybe:
    """In the shape of an object: what a field has to be where there is one."""

    shape: Any
    null: bool = False  # whether it may be null as well


def read_json(path: Path, shape: Any, remedy: str) -> Any:
    """The content of a JSON file.

    Its shape is str, bool, int or float, or one of these within a range, as in `fields`; object for
    anything; [shape] for a list of such; {str: shape} for an object of such; {"name": shape, ...}
    for an object that has at least these, but for those that are `Maybe`.

    Raises:
      UserError: it cannot be read, is no JSON, or holds something else; the message ends with the
        remedy.
    """
    try:
        return parse_json(path.read_bytes(), shape)
    except OSError as error:
        raise errors.UserError(f"cannot read {path}: {error}; {remedy}") from error
    except ValueError as error:
        raise errors.UserError(f"{path} is damaged ({error}): {remedy}") from error


def parse_json(content: bytes, shape: Any) -> Any:
    """The value that JSON stands for, of a shape as in `read_json`; ValueError if it is none."""
    try:
        value = json.loads(content, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    require(value, shape)
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def require(value: Any, shape: Any, name: str = "it") -> None:
    """Raises ValueError unless a JSON value is of a shape; see `read_json`."""
    if isinstance(shape, Maybe):
        if value is not None or not shape.null:
            require(value, shape.shape, name)
        return
    shape, *rules = typing.get_args(shape) or (shape,)
    kind = shape if isinstance(shape, type) else type(shape)
    accepted = (int, float) if kind is float else kind
    if kind is not object and (
        not isinstance(value, accepted)
        or isinstance(value, bool) != (kind is bool)
        or value in (math.inf, -math.inf)  # as 1e999 is read
    ):
        written = json.dumps(value)
        raise ValueError(f"{name} is {written[:40]}, which is no {_KINDS[kind]}")
    if kind is int and abs(value) > _MOST:
        raise ValueError(f"{name} is {str(value)[:40]}, which is too large")
    if kind is str and re.search("[\ud800-\udfff]", value):
        raise ValueError(f"{name} holds half of a character")
    for rule in rules:
        try:
            rule.require(name, value)
        except errors.UserError as error:
            raise ValueError(str(error)) from error
    if isinstance(shape, list):
        for index, item in enumerate(value):
            require(item, shape[0], f"{name}[{index}]")
    elif isinstance(shape, dict):
        for key, inner in shape.items():
            if key is not str and key not in value and not isinstance(inner, Maybe):
                raise ValueError(f"{name} has no {key}")
            for field in value if key is str else value.keys() & {key}:
                require(value[field], inner, f"{name}.{field}")


_MOST = 2**63 - 1  # of a whole number
_KINDS = {
    str: "text",
    bool: "truth value",
    int: "whole number",
    float: "number",
    list: "list",
    dict: "object",
}
