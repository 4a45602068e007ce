"""Helpers for tests of error messages: tables of cases, file damage, and the expected form."""

import json
import re
import shutil
from collections.abc import Callable

import pytest

from tests import tiny

TINY = {
    **tiny.OVERRIDES,
    "train.num_steps": 4,
    "data.toy_held_out_pairs": 4,
    "model.num_layers": 1,
    "decode.beam_size": 2,
}
TOY = ["--config=configs/toy.py", *(f"--config.{name}={value}" for name, value in TINY.items())]
FOLDER = object()  # a folder where a file should be
Damage = bytes | Callable[[bytes], bytes] | object | None  # None: the file is not there


def assert_refused(done, message):
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.code == 2, done.stderr
    assert len(errors) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == errors[0]
    assert re.search(message, errors[0]), errors[0]
    assert "Traceback" not in done.stderr
    assert not re.findall(r"^[IWEF]\d{4} ", done.stderr, re.MULTILINE)  # libraries' log lines
    assert done.stdout == b""


def damage(path, how: Damage):
    content = path.read_bytes() if path.is_file() else b""
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
    if how is FOLDER:
        path.mkdir()
    elif callable(how):
        path.write_bytes(how(content))
    elif isinstance(how, bytes):
        path.write_bytes(how)


def table(*cases):
    """Parameters of a test; what a case is called comes first."""
    return pytest.mark.parametrize(
        "case", [case[1:] for case in cases], ids=[case[0] for case in cases]
    )


def changed(field, value) -> Callable[[bytes], bytes]:
    """JSON with a field set to another value."""

    def change(content):
        record = json.loads(content)
        *path, last = field.split("/")
        place = record
        for name in path:
            place = place[name]
        place[last] = value
        return json.dumps(record).encode()

    return change
