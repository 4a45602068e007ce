"""Base classes of engines, which run jobs on this machine or submit them to a queue of machines."""

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
PYTHON = ".venv/bin/python"  # the interpreter that `environment` installs in a copy of the checkout
TIME_LIMIT = 600  # seconds; a command of an engine that takes longer has failed
Record = Callable[[Sequence[str]], None]  # called with job ids; see `Queue.submit`


class EngineError(Exception):
    """Raised if an engine refuses a request or fails. The message is one line with the remedy."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A command for an engine to run.

    The command exits with 0 when it is finished, or with RUN_AGAIN to be started again.

    Attributes:
      name: the name in messages, such as "A h=1, seed 0".
      label: the name in the engine: unique, at most 40 lower-case letters, digits and dashes.
      command: the command, which is run in the checkout.
      log: the file to which the output is written, if the engine's machines share this disk.
      after: the name of a job that has to end before this job starts; "" for none.
    """

    name: str
    label: str
    command: Sequence[str]
    log: pathlib.Path
    after: str = ""


@dataclasses.dataclass(frozen=True)
class Submission:
    """Jobs that are submitted together.

    Attributes:
      name: the name of the jobs together: lower-case letters, digits and dashes.
      jobs: the jobs, in the order in which they should start.
      folder: the folder to which scripts and other files for the engine are written.
      report: a command to run when all jobs have ended. Engines other than Slurm ignore it.
    """

    name: str
    jobs: Sequence[Job]
    folder: pathlib.Path
    report: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of an engine: for each attribute, the value of the flag with the same name."""

    parallel: int = 0
    nodes: int = 1
    launcher_options: str = ""
    slurm_script: str = ""
    bucket: str = ""
    accelerator: str = ""
    spot: bool = False

    @property
    def options(self) -> list[str]:
        """The value of --launcher_options, split into arguments as a shell splits a command."""
        try:
            return shlex.split(self.launcher_options)
        except ValueError as error:
            raise EngineError(f"--launcher_options={self.launcher_options}: {error}") from error

    def find(self, options: Sequence[Sequence[str]]) -> dict[str, str]:
        """Returns the values of those of the given options that --launcher_options contains.

        Args:
          options: the spellings of each option, such as ("--time", "-t"). A unique prefix of the
            first spelling, such as --ti, is recognized too.

        Returns:
          The value of each option found, by the option's first spelling. The value is "" if none
          was given.
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
    """Base class of the ways to run jobs: on this machine, or in the queue of a cluster."""

    name: ClassVar[str]  # value of --launcher
    takes: ClassVar[frozenset[str]]  # names of the settings that the engine uses
    programs: ClassVar[tuple[str, ...]] = ()  # programs that have to be installed on this machine
    remedy: ClassVar[str] = ""  # advice for installing missing programs
    # Options in --launcher_options that name the cluster, such as --zone.
    location: ClassVar[tuple[str, ...]] = ()
    # True if the machines that run the jobs share this machine's disk. Otherwise each of them has a
    # copy of the checkout and writes results to a bucket.
    shares_disk: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def check(self) -> None:
        """Raises EngineError if a wrong setting or a missing program prevents all jobs."""
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
        """The options in --launcher_options that name the cluster, such as --zone=Z, sorted."""
        values = self.settings.find([[option] for option in self.location])
        return sorted(f"{option}={value}" for option, value in values.items())


class Queue(Engine, abc.ABC):
    """An engine that accepts jobs, gives them ids, and runs them when machines are free."""

    @abc.abstractmethod
    def states(self, jobs: Sequence[str]) -> dict[str, str]:
        """Returns the states of jobs by id; a job that has ended has no state.

        Args:
          jobs: ids of jobs.

        Returns:
          A state for each job that has not ended, such as "running" or "queued".

        Raises:
          EngineError: the engine does not answer.
        """

    @abc.abstractmethod
    def submit(self, submission: Submission, record: Record) -> str:
        """Submits all jobs, or none if the engine refuses one of them.

        Args:
          submission: the jobs.
          record: called with the ids of all jobs before the first job can start. If the jobs are
            cancelled, it is called again, with an empty list.

        Returns:
          A message for the user.

        Raises:
          EngineError: the engine refused a job. The jobs submitted before it have been cancelled.
            If a job could not be cancelled, the message has the command that cancels it. An
            interruption (KeyboardInterrupt) cancels submitted jobs too.
        """

    @abc.abstractmethod
    def cancel_command(self, job: str) -> list[str]:
        """Returns the command that cancels the job with an id."""

    def submit_each(self, commands: Mapping[str, Sequence[str]], record: Record) -> None:
        """Implements `submit` for engines that have one command per job.

        Args:
          commands: the command that submits each job, by the id that the job will have.
          record: see `submit`.
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
        """Cancels submitted jobs after an error, the last job first.

        Args:
          jobs: ids of the jobs.
          cause: the error, which the caller raises again.

        Raises:
          EngineError: a job could not be cancelled. The message has the command that cancels it.
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
    """Converts a text to a name of lower-case letters, digits and dashes that starts with a letter.

    For example, "A h=1" becomes "a-h-1". A text that does not start with a letter gets `kind` as
    prefix: with the kind "row", "1" becomes "row-1".
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name if name[:1].isalpha() else f"{kind}-{name}".strip("-")


def environment(extra: str) -> str:
    """Returns a shell command that installs Python and this package in a copy of the checkout.

    The versions of packages are those of requirements.lock. The interpreter is PYTHON.

    Args:
      extra: the extra of setup.py for the devices, "tpu" or "cuda".
    """
    return (
        "python3 -m pip install --quiet uv && python3 -m uv venv --quiet --clear --python 3.12 "
        f".venv && python3 -m uv pip install --quiet --python {PYTHON} -c requirements.lock "
        f"-e '.[{extra},gcs]'"
    )


def ask(command: Sequence[str], what: str = "") -> str:
    """Runs a command of an engine, such as squeue, and returns its output.

    The command gets no standard input, so that it cannot wait for an answer of the user.

    Args:
      command: the command.
      what: the beginning of error messages; "" for the words before the command's first option.

    Raises:
      EngineError: the command failed, or took more than TIME_LIMIT seconds. The message has the
        command's error output in one line.
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
