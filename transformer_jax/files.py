"""Paths on this machine and in buckets, atomic writes, and JSON records.

A run's folder is on this machine or in a bucket of Google Cloud Storage. The type `Path` stands for
paths of both kinds. Files that are memory-mapped or locked must be on this machine; functions that
do so take a `pathlib.Path`.
"""

import hashlib
import importlib.util
import json
import os
import pathlib
import re
import tempfile
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

import fsspec.config
import fsspec.core
from etils import epath

from transformer_jax import errors

Path = pathlib.Path | epath.Path


def path(name: str) -> Path:
    """Returns the path of a file or folder on this machine or at gs://BUCKET/NAME.

    Raises:
      UserError: the name is an address that does not begin with gs://, an address contains one of
        the characters *?[]#, gcsfs is not installed, or `local_path` raises UserError.
    """
    if not _ADDRESS.match(name):
        return local_path(name)
    if not re.fullmatch(
        r"gs://[^/*?\[\]#]+(/[^*?\[\]#]*)?", name
    ):  # gcsfs takes these characters for patterns
        raise errors.UserError(
            f"{name} is neither a folder of this machine nor one in a bucket, gs://BUCKET/FOLDER, "
            "without any of *?[]#"
        )
    if not importlib.util.find_spec("gcsfs"):
        raise errors.UserError(f"{name} needs gcsfs: pip install 'transformer_jax[gcs]'")
    os.environ.setdefault("EPATH_USE_TF", "false")  # use fsspec even if TensorFlow is installed
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # Orbax writes arrays to the bucket without fsspec, whose cached listings would be outdated.
    fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
    return epath.Path(name)


_PATTERN = re.compile(r"[*?\[\]{}\\]")  # TensorStore reads the last, \, as /
# One slash is enough, because pathlib merges two.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def expanded(name: str) -> pathlib.Path:
    """Returns a path in which ~ is replaced by the home folder; UserError if there is none."""
    try:
        return pathlib.Path(name).expanduser()
    except RuntimeError as error:
        raise errors.UserError(f"{name}: {error}") from error


def local_path(name: str) -> pathlib.Path:
    """Returns a path on this machine, in which ~ is replaced by the home folder.

    Raises:
      UserError: the name is an address such as gs://BUCKET, or the path contains a backslash or one
        of the characters *?[]{}, by which libraries would take it for a pattern.
    """
    if _ADDRESS.match(name):
        raise errors.UserError(f"{name} is no folder of this machine, which is needed here")
    path = expanded(name)
    if found := _PATTERN.search(str(path.absolute())):
        raise errors.UserError(
            f"{path.absolute()} contains {found[0]!r}, which Orbax and TensorStore do not take "
            "literally: choose a folder without it"
        )
    return path


def below(folder: Path) -> list[str]:
    """Returns the sorted relative paths of all files in a folder and its subfolders."""
    if isinstance(folder, pathlib.Path):
        paths = (path for path in folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(folder).as_posix() for path in paths)
    # epath would send a request for each file, and treat a failed one as "not a folder".
    system, root = fsspec.core.url_to_fs(str(folder))
    return sorted(name.removeprefix(f"{root}/") for name in system.find(root))


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal."""
    file: Any
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def met_in_a_bucket(error: BaseException) -> bool:
    """Returns whether an error was raised while a bucket was read or written.

    Errors of buckets have no common class. They are recognised by the modules in their tracebacks.
    """
    modules = (frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__))
    # Not the whole of `google`, because protobuf is a part of it.
    of_google = [f"google.{name}" for name in ("api_core", "auth", "cloud", "resumable_media")]
    of_buckets = ("gcsfs", *of_google)
    return any(name.startswith(of_buckets) for name in modules)


def make_folder(folder: Path, what: str) -> None:
    """Creates a folder and its parents.

    Args:
      folder: the folder.
      what: a description of the folder for the error message, such as "the run's folder".

    Raises:
      UserError: the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise errors.UserError(f"cannot make {what}: {error}") from error


def write(path: Path, content: bytes) -> None:
    """Writes a file atomically, even if several processes write it at once.

    Raises:
      OSError: writing on this machine failed.
      RunError: writing to a bucket failed.
    """
    if not isinstance(path, pathlib.Path):
        try:
            path.write_bytes(content)  # in a bucket a file appears once it is complete
        except Exception as error:  # errors of gcsfs, Google and the network have no common class
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
    """Writes lines of text atomically."""
    write(path, "".join(f"{line}\n" for line in lines).encode())


def read_json(path: Path, required: Mapping[str, type], remedy: str) -> dict[str, Any]:
    """Returns the JSON object that a file holds.

    Args:
      path: the file.
      required: keys that the object must have, with the types of their values.
      remedy: the end of the error message, which says what the user can do about a damaged file.

    Raises:
      UserError: the file cannot be read, is not JSON, or lacks a required key.
    """
    try:
        return parse_json(path.read_bytes(), required)
    except OSError as error:
        raise errors.UserError(f"cannot read {path}: {error}; {remedy}") from error
    except ValueError as error:
        raise errors.UserError(f"{path} is damaged ({error}): {remedy}") from error


def parse_json(content: bytes, required: Mapping[str, type]) -> dict[str, Any]:
    """Returns the JSON object that bytes hold.

    Args:
      content: the bytes.
      required: keys that the object must have, with the types of their values.

    Raises:
      ValueError: the bytes are not a JSON object, or a required key is missing or has another type.
    """
    value = json.loads(content, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise ValueError(f"it is {json.dumps(value)[:40]}, not an object")
    require(value, required)
    return value


def require(value: Mapping[str, Any], required: Mapping[str, type]) -> None:
    """Raises ValueError unless a JSON object has values of the required types."""
    for key, kind in required.items():
        if key not in value:
            raise ValueError(f"it has no {key}")
        accepted = (int, float) if kind is float else kind
        is_kind = isinstance(value[key], accepted)
        if not is_kind or isinstance(value[key], bool) != (kind is bool):
            raise ValueError(f"{key} is {json.dumps(value[key])[:40]}, which is no {_KINDS[kind]}")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_KINDS = {
    str: "text",
    bool: "truth value",
    int: "whole number",
    float: "number",
    list: "list",
    dict: "object",
}
