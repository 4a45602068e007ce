"""Files that are there whole or not at all."""

import json
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any


def write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file atomically, also if several processes write it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_json(path: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object atomically."""
    write(
        path, (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    )


def write_lines(path: pathlib.Path, lines: list[str]) -> None:
    """Writes one line each, atomically."""
    write(path, "".join(f"{line}\n" for line in lines).encode())
