"""One way to start a command: flag and config errors are one line on stderr and exit code 2."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags

from transformer_jax import config as config_lib
from transformer_jax import cpu_memory
from transformer_jax.processes import hosts, preemption


def run(main: Callable[[], int | None]) -> NoReturn:
    """Parses the command line, calls `main` and exits with what it returns."""
    cpu_memory.keep_freed_memory()
    cpu_memory.one_step_at_a_time()
    app.run(lambda argv: _guarded(main, argv), flags_parser=_parse)
    raise AssertionError("app.run exits")


def define_config() -> flags.FlagHolder:
    """--config=FILE, whose fields can be overridden as --config.model.d_k=16."""
    holder = config_flags.DEFINE_config_file(
        "config", None, "Config file, such as configs/toy.py.", lock_config=True
    )
    flags.mark_flag_as_required("config")
    return holder


def read_config(holder: flags.FlagHolder) -> config_lib.Config:
    """The configuration that --config and its overrides describe, checked.

    Raises:
      UserError: the file cannot be read, or a value is not allowed.
    """
    try:
        values = holder.value.to_dict()
    except OSError as error:
        name = config_flags.get_config_filename(flags.FLAGS["config"])
        raise config_lib.UserError(f"--config={name} is not a config file: {error}") from error
    return config_lib.from_mapping(values)


def overrides() -> dict[str, object]:
    """The config fields that the command line sets, by dotted name."""
    return dict(config_flags.get_override_values(flags.FLAGS["config"]))


def sizes(name: str, texts: Sequence[str], least: int = 2) -> list[int]:
    """The sizes of a flag, ascending, each once.

    Args:
      name: of the flag.
      texts: its values.
      least: so many different ones are needed.

    Raises:
      UserError: one of them is no whole number of at least 1, or there are too few.
    """
    for text in texts:
        if not text.strip().isdecimal() or int(text) < 1:
            raise config_lib.UserError(f"--{name}: {text!r} should be a whole number, at least 1")
    found = sorted({int(text) for text in texts})
    if len(found) < least:
        raise config_lib.UserError(f"--{name} needs {least} different sizes or more")
    return found


def _guarded(main: Callable[[], int | None], argv: Sequence[str]) -> int | None:
    if len(argv) > 1:
        return _complain(f"unexpected argument {argv[1]!r}: flags begin with --")
    _show_log()
    try:
        status = main()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who read what was printed, as `head` does, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 1
    except config_lib.UserError as error:
        return _complain(str(error))
    except preemption.PreemptedError as error:
        return _complain(str(error), hosts.RUN_AGAIN)
    except config_lib.RunError as error:
        return _complain(str(error), 1)
    except OSError as error:  # a disk, a folder or a file that cannot be read or written
        if error.errno is None:  # one of our own, not the system's
            raise
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return _complain("interrupted; the same command goes on from the last checkpoint", 130)


def _parse(argv: Sequence[str]) -> list[str]:
    try:
        return flags.FLAGS(list(argv))
    # Whatever a config file raises, an override of a field it lacks included, ends up here.
    except Exception as error:
        sys.exit(_complain(_describe(error)))


def _describe(error: BaseException) -> str:
    while error.args and isinstance(error.args[0], BaseException):  # ml_collections wraps errors
        error = error.args[0]
    if isinstance(error, KeyError | AttributeError):
        return f"there is no such config field: {error.args[0] if error.args else error}"
    lines = str(error).strip().splitlines() or ["no message"]
    # A config file that fails brings its whole traceback along; its last line says what it is.
    if "Traceback (most recent call last)" in str(error):
        lines = ["the config file fails:", lines[-1]]
    kind = "" if isinstance(error, flags.Error) else f"{type(error).__name__}: "
    return kind + " ".join(lines)


def _complain(message: str, code: int = 2) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code


def _show_log() -> None:
    """Our own log lines go to stderr, as "12:34:56 text"; those of libraries only as warnings."""
    absl_logging.set_verbosity(absl_logging.WARNING)
    # Orbax logs with its traceback what it then raises, which is where we say it.
    absl_logging.get_absl_handler().addFilter(
        lambda record: "orbax" not in record.pathname or record.levelno < logging.ERROR
    )
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("transformer_jax")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False
