"""What an engine is given to run, and how it says no."""

import dataclasses
import pathlib
import shutil
import subprocess
from collections.abc import Sequence

RUN_AGAIN = 42  # exit code of a job that was stopped from outside and has saved what it had


class EngineError(Exception):
    """What an engine refuses, or why it cannot be asked: one line with the remedy."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A command, which ends with 0 when all is done, and with RUN_AGAIN if it is to go on later.

    Attributes:
      name: for progress and errors.
      command: program and arguments.
      log: file that takes what it prints.
      folder: where it leaves its result, or what failed.
    """

    name: str
    command: Sequence[str]
    log: pathlib.Path
    folder: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Remote:
    """A command for a machine that has a copy of the checkout, and leaves its results in a bucket.

    Attributes:
      name: for people.
      label: for engines: small letters, digits and dashes, at most 40, its own.
      command: program and arguments, to be run in the checkout.
    """

    name: str
    label: str
    command: Sequence[str]


def require(program: str, launcher: str, remedy: str) -> None:
    """Raises EngineError unless a program of an engine is here."""
    if not shutil.which(program):
        raise EngineError(
            f"--launcher={launcher} needs {program}, which is not installed here: {remedy}"
        )


def ask(command: Sequence[str], what: str, whole: bool = True, seconds: float = 600) -> str:
    """What a command of an engine prints.

    Args:
      command: program and arguments.
      what: it is, for the error.
      whole: whether all that it says of an error is to be repeated, or the last line.
      seconds: it has for its answer.

    Raises:
      EngineError: it fails, or does not end.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,  # no engine is to wait for an answer that nobody is asked for
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{what}: no answer within {seconds:g} seconds") from error
    except FileNotFoundError as error:
        raise EngineError(f"{what}: {command[0]} is not installed here") from error
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        said = " ".join(" ".join(lines if whole else lines[-1:]).split())
        raise EngineError(f"{what}: {said} (exit code {done.returncode})")
    return done.stdout
