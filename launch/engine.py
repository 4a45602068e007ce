"""What every engine is: it takes some flags, and runs jobs or hands them over."""

import abc
import dataclasses
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

RUN_AGAIN = 42  # exit code of a job that was stopped from outside and has saved what it had
Remember = Callable[[Sequence[str]], None]  # is told engines' names of jobs; see `Queue.submit`
PYTHON = ".venv/bin/python"  # of a machine that has a copy of the checkout; see `environment`


class EngineError(Exception):
    """What an engine refuses, or why it cannot be asked: one line with the remedy."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A command, which ends with 0 when all is done, and with RUN_AGAIN if it is to go on later."""

    name: str  # for people: progress and errors
    label: str  # for engines: small letters, digits and dashes, at most 40, its own
    command: Sequence[str]  # for a machine elsewhere, to be run in the checkout
    log: pathlib.Path  # beside its results, takes what it prints, where it shares this disk
    after: str = ""  # the name of a job that has to end before this one can begin


@dataclasses.dataclass(frozen=True)
class Submission:
    """Jobs that are handed over together."""

    name: str  # small letters, digits and dashes
    jobs: Sequence[Job]  # in the order in which they should begin
    folder: pathlib.Path  # takes what is handed over, to be read and run by hand as well
    report: Sequence[str]  # runs here when all have ended, if the engine can wait for that


@dataclasses.dataclass(frozen=True)
class Settings:
    """How jobs are to be run: the values of the flags of these names, which say what each means."""

    parallel: int = 0
    nodes: int = 1
    launcher_options: str = ""
    slurm_script: str = ""
    bucket: str = ""
    accelerator: str = ""
    spot: bool = False

    @property
    def options(self) -> list[str]:
        """--launcher_options as arguments: "--zone z -t 60" as ["--zone=z", "-t60"].

        Raises EngineError if a quotation does not end.
        """
        found: list[str] = []
        try:
            for option in shlex.split(self.launcher_options):
                if option[:1] == "-" or not found or "=" in found[-1]:
                    found.append(option)
                else:
                    found[-1] += f"={option}" if found[-1][:2] == "--" else option
        except ValueError as error:
            raise EngineError(f"--launcher_options={self.launcher_options}: {error}") from error
        return found


class Engine:
    """Runs jobs."""

    name: ClassVar[str]  # its value of --launcher
    takes: ClassVar[frozenset[str]]  # the settings that it has a use for
    programs: ClassVar[tuple[str, ...]] = ()  # that it needs here
    remedy: ClassVar[str] = ""  # what to do without them
    location: ClassVar[tuple[str, ...]] = ()  # how options begin that say where it is
    # Whether its machines read and write this one's disk; else they have a copy of the checkout,
    # and leave what they make in a bucket.
    shares_disk: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def check(self) -> None:
        """Raises EngineError if nothing could be run so, before anything is written."""
        for field in dataclasses.fields(Settings):
            given = getattr(self.settings, field.name) != field.default
            if given and field.name not in self.takes:
                raise EngineError(f"--{field.name} is not for --launcher={self.name}: leave it out")
        for program in self.programs:
            if not shutil.which(program):
                raise EngineError(
                    f"--launcher={self.name} needs {program}, which is not installed here: "
                    f"{self.remedy}"
                )

    @property
    def where(self) -> list[str]:
        """Those of the options that say where it is, such as its cluster, in one order."""
        options = self.settings.options
        return sorted(option for option in options if option.startswith(self.location))


class Queue(Engine, abc.ABC):
    """Takes jobs over, and runs them when there is room."""

    @abc.abstractmethod
    def queue(self, names: Sequence[str]) -> dict[str, str]:
        """Returns the states of those of some jobs, by the engine's names, that have not ended.

        Raises EngineError if the engine does not answer.
        """

    @abc.abstractmethod
    def submit(self, submission: Submission, remember: Remember) -> str:
        """Hands jobs over, all or none; returns what was done, in one line.

        `remember` is called with the engine's own names of all of them before one can begin, and
        with none if they were taken back. Raises EngineError if the engine refuses one; what it has
        taken by then is cancelled, as it is when this is interrupted.
        """

    @abc.abstractmethod
    def cancelling(self, *names: str) -> list[str]:
        """The command that takes jobs back, by the engine's names."""

    def create(self, creations: Mapping[str, Sequence[str]], what: str, remember: Remember) -> None:
        """Runs the command that creates each job, by its name; see `submit`."""
        asked: list[str] = []
        remember(list(creations))
        try:
            for name, creation in creations.items():
                asked.append(name)
                ask(creation, what)
        except BaseException:
            left = [each for each in asked if not self._is_taken_back(each, what)]
            if left in ([], asked[-1:]):  # the last may not be there to be taken back
                remember([])
            raise

    def _is_taken_back(self, name: str, what: str) -> bool:
        try:
            print(ask(self.cancelling(name), what), end="")
        except EngineError as error:
            print(f"not taken back: {name}: {error}", file=sys.stderr)
            return False
        return True


def label(text: str, kind: str) -> str:
    """Small letters, digits and dashes, a letter first: "A h=1" is "a-h-1", a row "1" "row-1"."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name if name[:1].isalpha() else f"{kind}-{name}".strip("-")


def environment(extra: str) -> str:
    """A shell command that makes PYTHON in a copy of the checkout, with the versions of this one.

    The extra of setup.py is that of the devices: "tpu" or "cuda".
    """
    return (
        "python3 -m pip install --quiet uv && python3 -m uv venv --quiet --clear --python 3.12 "
        f".venv && python3 -m uv pip install --quiet --python {PYTHON} -c requirements.lock "
        f"-e '.[{extra},gcs]'"
    )


def ask(command: Sequence[str], what: str, whole: bool = True, seconds: float = 600) -> str:
    """What a command of an engine prints, which has so many seconds for its answer.

    Raises EngineError if it fails or does not end, which says `what` it is and its own words:
    the `whole` of them, or their last line.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,  # no engine is to wait for an answer that nobody is asked for
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{what}: no answer within {seconds:g} seconds") from error
    except FileNotFoundError as error:
        raise EngineError(f"{what}: {command[0]} is not installed here") from error
    except ValueError as error:  # a NUL in an argument
        raise EngineError(f"{what}: {error}") from error
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        said = " ".join(" ".join(lines if whole else lines[-1:]).split())
        raise EngineError(f"{what}: {said} (exit code {done.returncode})")
    return done.stdout
