"""Base classes of the engines that run jobs: this machine, or a queue that accepts them."""

import abc
import argparse
import contextlib
import dataclasses
import itertools
import pathlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NoReturn

RUN_AGAIN = 42  # exit code of a job that was stopped from outside and saved its state
PYTHON = ".venv/bin/python"  # on a machine with a copy of the checkout; see `environment`
TIME_LIMIT = 600  # seconds for a command of an engine
Record = Callable[[Sequence[str]], None]  # called with job ids; see `Queue.submit`


class EngineError(Exception):
    """A failed or refused request to an engine; its message is one line with the remedy."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A command; it exits with 0 when it is finished, or with RUN_AGAIN to be started again."""

    name: str  # for people: in progress and error messages
    label: str  # for engines: unique, at most 40 lower-case letters, digits and dashes
    command: Sequence[str]  # run in the checkout
    log: pathlib.Path  # collects the output, in the job's folder, if the engine shares this disk
    after: str = ""  # name of a job that has to end before this one starts


@dataclasses.dataclass(frozen=True)
class Submission:
    """Jobs that are submitted together."""

    name: str  # lower-case letters, digits and dashes
    jobs: Sequence[Job]  # in the order in which they should start
    folder: pathlib.Path  # where the engine's input files are written
    report: Sequence[str]  # command to run when all jobs have ended, if the engine supports that


@dataclasses.dataclass(frozen=True)
class Settings:
    """The values of the flags that have the same names as the attributes."""

    parallel: int = 0
    nodes: int = 1
    launcher_options: str = ""
    slurm_script: str = ""
    bucket: str = ""
    accelerator: str = ""
    spot: bool = False

    @property
    def options(self) -> list[str]:
        """The arguments in --launcher_options, split by shell rules."""
        try:
            return shlex.split(self.launcher_options)
        except ValueError as error:
            raise EngineError(f"--launcher_options={self.launcher_options}: {error}") from error

    def find(self, options: Sequence[Sequence[str]]) -> dict[str, str]:
        """Returns the values of options that --launcher_options sets.

        Args:
          options: the spellings of each option, as ("--time", "-t"). A unique prefix of the first
            is recognized too.

        Returns:
          Values by the first spelling; "" for an option without a value.
        """
        parser = _OptionParser(add_help=False)
        for spellings in options:
            parser.add_argument(*spellings, dest=spellings[0], nargs="?", const="")
        values, _ = parser.parse_known_args(self.options)
        return {name: value for name, value in vars(values).items() if value is not None}


class _OptionParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise EngineError(f"--launcher_options: {message}")


class Engine:
    """A way to run jobs."""

    name: ClassVar[str]  # value of --launcher
    takes: ClassVar[frozenset[str]]  # names of the settings that the engine uses
    programs: ClassVar[tuple[str, ...]] = ()  # programs it needs on this machine
    remedy: ClassVar[str] = ""  # advice if they are missing
    location: ClassVar[tuple[str, ...]] = ()  # options that name the cluster of the queue
    # True if the engine's machines share this machine's disk. Otherwise they have a copy of the
    # checkout and write results to a bucket.
    shares_disk: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def check(self) -> None:
        """Raises EngineError if a setting or a missing program prevents all jobs."""
        for field in dataclasses.fields(Settings):
            is_set = getattr(self.settings, field.name) != field.default
            if is_set and field.name not in self.takes:
                raise EngineError(f"--{field.name} is not for --launcher={self.name}: leave it out")
        for program in self.programs:
            if not shutil.which(program):
                raise EngineError(
                    f"--launcher={self.name} needs {program}, which is not installed here: "
                    f"{self.remedy}"
                )

    @property
    def where(self) -> list[str]:
        """The options in --launcher_options that name the cluster of the queue, sorted."""
        values = self.settings.find([[option] for option in self.location])
        return sorted(f"{option}={value}" for option, value in values.items())


class Queue(Engine, abc.ABC):
    """An engine that accepts jobs, gives them ids, and runs them when machines are free."""

    @abc.abstractmethod
    def states(self, jobs: Sequence[str]) -> dict[str, str]:
        """Returns the states of those jobs that have not ended.

        Raises:
          EngineError: the engine does not answer.
        """

    @abc.abstractmethod
    def submit(self, submission: Submission, record: Record) -> str:
        """Submits all jobs or none; returns a message for the user.

        `record` is called with the ids of all jobs before the first can start, and with none if the
        jobs were cancelled.

        Raises:
          EngineError: the engine refused a job. Submitted jobs are cancelled, as they are on an
            interruption; if that fails, the message names the remaining commands.
        """

    @abc.abstractmethod
    def cancel_command(self, job: str) -> list[str]:
        """Returns the command that cancels a job."""

    def submit_each(self, commands: Mapping[str, Sequence[str]], record: Record) -> None:
        """Submits jobs one by one, as `submit` describes.

        Args:
          commands: the command that submits each job, by the id that the command gives to the job.
          record: called with the ids; see `submit`.
        """
        submitted: list[str] = []
        record(list(commands))
        try:
            for job, command in commands.items():
                submitted.append(job)
                ask(command)
        except BaseException as error:
            for job in submitted[-1:]:
                with contextlib.suppress(EngineError):  # the job may not exist
                    ask(self.cancel_command(job))
            self.cancel(submitted[:-1], error)
            record([])
            raise

    def cancel(self, jobs: Sequence[str], cause: BaseException) -> None:
        """Cancels jobs, the last one first, after an error that the caller raises again.

        Raises:
          EngineError: a job was not cancelled; the message names the remaining commands.
        """
        failed: list[str] = []
        for job in reversed(jobs):
            try:
                ask(self.cancel_command(job))
            except EngineError as error:
                failed.append(f"{error}: run {shlex.join(self.cancel_command(job))}")
        if failed:
            reason = str(cause) or "interrupted"
            raise EngineError(
                f"{reason}; and submitted jobs were not cancelled: {'; '.join(failed)} before you "
                "start the sweep again"
            ) from cause


def label(text: str, kind: str) -> str:
    """Returns text as lower-case letters, digits and dashes that start with a letter.

    "A h=1" becomes "a-h-1"; "1" of the kind "row" becomes "row-1".
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name if name[:1].isalpha() else f"{kind}-{name}".strip("-")


def environment(extra: str) -> str:
    """Returns a shell command that installs PYTHON and the locked packages in a checkout.

    Args:
      extra: the extra of setup.py for the devices, "tpu" or "cuda".
    """
    return (
        "python3 -m pip install --quiet uv && python3 -m uv venv --quiet --clear --python 3.12 "
        f".venv && python3 -m uv pip install --quiet --python {PYTHON} -c requirements.lock "
        f"-e '.[{extra},gcs]'"
    )


def ask(command: Sequence[str], what: str = "") -> str:
    """Returns the output of an engine's command.

    Args:
      command: the command; it has no standard input, so that no program waits for an answer.
      what: description for error messages; the words before the command's first option if empty.

    Raises:
      EngineError: the command failed, with its error output in one line, or did not end in time.
    """
    what = what or " ".join(itertools.takewhile(lambda word: word[:1] != "-", command))
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=TIME_LIMIT,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{what}: no answer within {TIME_LIMIT} seconds") from error
    except (OSError, ValueError) as error:
        raise EngineError(f"{what}: {command[0]} cannot be run here ({error})") from error
    if done.returncode:
        output = done.stderr.strip() or done.stdout.strip() or "no error message"
        if "Traceback (most recent call last)" in output:
            output = output.splitlines()[-1]
        raise EngineError(f"{what}: {' '.join(output.split())} (exit code {done.returncode})")
    return done.stdout
