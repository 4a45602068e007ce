"""One way to start a command: flag and config errors are one line on stderr and exit code 2."""

import logging
import os
import pathlib
import select
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags

from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.distributed import hosts, memory, preemption


def run(main: Callable[..., int | None], *arguments: str) -> NoReturn:
    """Parses the command line, calls `main` and exits with its result.

    Args:
      main: called with the command line's arguments besides flags.
      *arguments: their names, for messages: `[DIR]` is optional, and a last name that ends in `...`
        may be repeated.
    """
    memory.keep_freed_memory()
    memory.one_step_at_a_time()
    app.run(lambda argv: _guarded(main, argv[1:], arguments), flags_parser=_parse)
    raise AssertionError("app.run exits")


def define_config(*, required: bool = True) -> flags.FlagHolder:
    """--config=FILE, whose fields can be overridden as --config.model.d_k=16."""
    holder = config_flags.DEFINE_config_file(
        "config", None, "Config file, such as configs/toy.py.", lock_config=True
    )
    if required:
        flags.register_validator(
            "config",
            lambda value: value is not None,
            "give a file: --config=configs/toy.py, whose get_config() returns a ConfigDict",
        )
    return holder


def read_config(holder: flags.FlagHolder) -> config_lib.Config:
    """The configuration that --config and its overrides describe, checked.

    Raises:
      UserError: the file cannot be read, or a value is not allowed.
    """
    values = holder.value
    name = config_flags.get_config_filename(flags.FLAGS["config"])
    try:  # in place of a file that is missing stands an object that raises its error
        is_config = hasattr(values, "to_dict")
    except OSError as error:
        raise errors.UserError(f"--config={name} is not a config file: {error}") from error
    if not is_config:
        raise errors.UserError(
            f"--config={name}: get_config() should return a ConfigDict, but returns a "
            f"{type(values).__name__}"
        )
    return config_lib.from_mapping(values.to_dict())


def cache_dir(name: str, workdir: files.Path) -> pathlib.Path:
    """The folder that --cache_dir names: by default the workdir's, unless that is in a bucket."""
    if name:
        return files.local_path(name)
    return workdir / "cache" if isinstance(workdir, pathlib.Path) else pathlib.Path("cache")


def overrides() -> dict[str, object]:
    """The config fields that the command line sets, by dotted name."""
    return dict(config_flags.get_override_values(flags.FLAGS["config"]))


def sizes(name: str, texts: Sequence[str]) -> list[int]:
    """Returns the sizes that a flag lists, ascending, each once.

    Raises:
      UserError: one of them is no whole number of at least 1, or there are fewer than two.
    """
    for text in texts:
        if not text.strip().isdecimal() or int(text) < 1:
            raise errors.UserError(f"--{name}: {text!r} should be a whole number, at least 1")
    found = sorted({int(text) for text in texts})
    if len(found) < 2:
        raise errors.UserError(f"--{name} needs two different sizes or more")
    return found


def _guarded(
    main: Callable[..., int | None], given: Sequence[str], arguments: Sequence[str]
) -> int | None:
    repeats = any(name.endswith("...") for name in arguments[-1:])
    if len(given) > len(arguments) and not repeats:
        return _complain(f"unexpected argument {given[len(arguments)]!r}: flags begin with --")
    if len(given) < sum(not name.startswith("[") for name in arguments):
        return _complain(f"{arguments[len(given)]} is missing: give {' '.join(arguments)}")
    if "workdir" in flags.FLAGS and flags.FLAGS.workdir == "":
        return _complain("--workdir is empty: name a folder; . is the one you are in")
    _show_log()
    try:
        status = main(*given)
        sys.stdout.flush()
        return status
    except errors.UserError as error:
        return _complain(str(error))
    except preemption.PreemptedError as error:
        return _complain(str(error), hosts.RUN_AGAIN)
    except errors.RunError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        keeps = "cache_dir" in flags.FLAGS  # so do all that train or prepare
        goes_on = "; the same command goes on from what it has saved" * keeps
        return _complain(f"interrupted{goes_on}", 130)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():  # as `head`, has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
            return 1
        if files.met_in_a_bucket(error):
            return _complain(f"the bucket fails: {type(error).__name__}: {error}", 1)
        if isinstance(error, OSError) and error.errno is not None:  # the system's, not our own
            return _complain(str(error), 1)
        raise


def _nobody_reads() -> bool:
    """Whether it is standard output whose other end is closed."""
    (poll := select.poll()).register(sys.stdout, 0)  # 0: only what is wrong with it
    return bool(poll.poll(0))


def _parse(argv: Sequence[str]) -> list[str]:
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError:  # it would end up in files that have to be UTF-8
            sys.exit(_complain(f"the argument {argument!r} is not UTF-8"))
    absl_logging.set_verbosity(absl_logging.ERROR)  # what is wrong is said below, once
    for module, defined in flags.FLAGS.flags_by_module_dict().items():  # which --help then lists
        if module.split(".")[0] in ("transformer_jax", "experiments", "launch"):
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(argv[0], flag)
    try:
        return flags.FLAGS(list(argv))
    # Whatever a config file raises, an override of a field it lacks included, ends up here.
    except Exception as error:
        sys.exit(_complain(_describe(error, argv)))


def _describe(error: BaseException, argv: Sequence[str]) -> str:
    while error.args and isinstance(error.args[0], BaseException):  # ml_collections wraps errors
        error = error.args[0]
    text = str(error)
    if isinstance(error, flags.Error):  # of a config file, its traceback, whose last line matters
        lines = text.splitlines()
        return f"{lines[0]} {lines[-1]}" if len(lines) > 1 else text
    if isinstance(error, KeyError | AttributeError) and "get_config" not in text:
        return f"there is no such config field: {error.args[0] if error.args else text}"
    config_file = next((each for each in argv if each.startswith("--config=")), "--config")
    return f"{config_file} fails: {type(error).__name__}: {text}"


def _complain(message: str, code: int = 2) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code


def _report_unraisable(error: Any) -> None:
    """Reports an exception that nothing can catch, unless a failed write has caused it.

    After a failed write Orbax closes its event loop, and TensorStore's threads fail on it. The
    write's own error is raised; dozens of tracebacks would hide it.
    """
    if str(error.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(error)


def _show_log() -> None:
    """Our own log lines go to stderr, as "12:34:56 text"; those of libraries only as warnings."""
    absl_logging.set_verbosity(absl_logging.WARNING)
    # They log with its traceback what they then raise, which is where we say it.
    absl_logging.get_absl_handler().addFilter(
        lambda record: (
            record.levelno < logging.ERROR
            or not any(name in record.pathname for name in ("orbax", "gcsfs"))
        )
    )
    sys.unraisablehook = _report_unraisable
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("transformer_jax")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False
