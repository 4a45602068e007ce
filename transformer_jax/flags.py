"""Entry point of commands: parsing of flags and reporting of errors.

A user's mistake is reported in one line on stderr, and the command ends with exit code 2.
"""

import io
import itertools
import logging
import os
import pathlib
import re
import runpy
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NoReturn

import jax
import ml_collections
from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags

from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.distributed import hosts, memory, preemption

# Flags that functions below define belong to the modules that call them.
flags.disclaim_key_flags()

_PACKAGES = ("transformer_jax", "experiments", "launch")
_HELP = ("--help", "-help", "-?")
_REQUIRED: dict[str, str] = {}  # names of required flags, with a hint
_GROUPS: dict[str, Sequence[str]] = {}  # headings of --help, with the names of their flags


def run(main: Callable[..., int | None], *arguments: str) -> NoReturn:
    """Parses the command line, calls `main` and exits with its result.

    Args:
      main: a function that takes the positional arguments and returns the exit code or None.
      *arguments: the names of the positional arguments, for messages. An argument whose name is in
        brackets, such as `[DIR]`, is optional. If the last name ends in `...`, the argument may be
        repeated.
    """
    _open_missing_streams()
    memory.keep_freed_memory()
    memory.one_step_at_a_time()
    app.run(lambda argv: _guarded(main, argv[1:], arguments), flags_parser=_parse)
    raise AssertionError("app.run exits")


def _open_missing_streams() -> None:
    """Opens the null device for each standard stream that is closed.

    Otherwise files that are opened later would get the file descriptors of the closed streams, and
    `print` would write messages for a closed standard error to standard output. `sys.stdin` stays
    None if standard input is closed.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        absl_logging.get_absl_handler().python_handler.stream = sys.stderr
    for stream in (sys.stdout, sys.stderr):
        # A terminal of another encoding than UTF-8 shows ? for a character that it lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def standard_input() -> BinaryIO:
    """Returns standard input as a binary file; raises UserError if standard input is closed."""
    if sys.stdin is None:
        raise errors.UserError("standard input is closed: give a file, as in < test.en")
    return sys.stdin.buffer


def define_required(name: str, meaning: str) -> flags.FlagHolder:
    """Defines a required flag whose value is a string."""
    _REQUIRED[name] = ""
    return flags.DEFINE_string(name, None, meaning)


def define_config(*, required: bool = True) -> flags.FlagHolder:
    """Defines the flag --config=FILE.

    Its fields can be overridden by further flags, such as --config.model.d_k=16.
    """
    if required:
        _REQUIRED["config"] = ": give a file, such as --config=configs/toy.py"
    holder = config_flags.DEFINE_config_file(
        "config",
        None,
        "Config file, such as configs/toy.py; --config.model.d_k=16 sets a field.",
        lock_config=True,
    )
    flag = flags.FLAGS["config"]
    flag.parser = _ConfigParser(flag.parser)
    return holder


class _ConfigParser(flags.ArgumentParser):
    """Parser of --config that gives all fields their declared types.

    ml_collections parses an override such as --config.train.label_smoothing=0.1 with the type of
    the value in the config file. A file may lack the field, or give an int for a float.

    Args:
      parser: the parser that reads the file.
    """

    def __init__(self, parser: flags.ArgumentParser) -> None:
        super().__init__()
        self._parser = parser

    def parse(self, argument: str) -> ml_collections.ConfigDict:
        """Returns the content of a config file, with the defaults of missing fields."""
        config: Any = self._parser.parse(argument)
        with config.ignore_type(), config.unlocked():
            for name, default in config_lib.flatten(config_lib.DEFAULTS).items():
                section, _, field = name.partition(".")
                if section not in config:
                    config[section] = ml_collections.ConfigDict()
                values: Any = config[section]
                if not isinstance(values, ml_collections.ConfigDict):
                    continue  # reported when the config is built
                if field not in values:
                    values[field] = default
                elif isinstance(default, float) and isinstance(value := values[field], int):
                    values[field] = value if isinstance(value, bool) else float(value)
        return config


def group(heading: str, *names: str) -> None:
    """Lists flags of the caller's module under a heading of their own in --help."""
    _GROUPS[heading] = names


def read_config(holder: flags.FlagHolder) -> config_lib.Config:
    """Returns the validated configuration of --config and its overrides.

    Raises:
      UserError: a value is not allowed.
    """
    return config_lib.from_mapping(holder.value.to_dict())


def overrides() -> dict[str, object]:
    """Returns the config fields that the command line sets, by dotted name."""
    return dict(config_flags.get_override_values(flags.FLAGS["config"]))


def cache_dir(name: str, workdir: files.Path) -> pathlib.Path:
    """Returns the folder of --cache_dir.

    Args:
      name: the flag's value. If it is empty, the folder is `workdir`/cache, or ./cache if `workdir`
        is in a bucket.
      workdir: the run's folder.
    """
    if name:
        return files.local_path(name)
    return workdir / "cache" if isinstance(workdir, pathlib.Path) else pathlib.Path("cache")


def sizes(name: str, texts: Sequence[str]) -> list[int]:
    """Returns the distinct sizes that a flag lists, ascending.

    Args:
      name: the flag's name, for error messages.
      texts: the sizes as text.

    Raises:
      UserError: a size is not a whole number of at least 1, or there are fewer than two sizes.
    """
    for text in texts:
        if not text.strip().isdecimal() or int(text) < 1:
            raise errors.UserError(f"--{name}: {text!r} should be a whole number, at least 1")
    distinct = sorted({int(text) for text in texts})
    if len(distinct) < 2:
        raise errors.UserError(f"--{name} needs two different sizes or more")
    return distinct


def _parse(argv: Sequence[str]) -> list[str]:
    """Parses flags, and returns the positional arguments.

    The process exits after --help and after a mistake in the flags.
    """
    if any(argument in _HELP for argument in argv[1:]):
        print(_help())
        sys.exit(0)
    try:
        for argument in argv:
            _require_utf8(argument)
        if "config" in flags.FLAGS:
            argv = [_with_home(argument) for argument in argv]
            _require_config(argv)
        positional = flags.FLAGS(list(argv))
        for name, hint in _REQUIRED.items():
            if name in flags.FLAGS and flags.FLAGS[name].value is None:
                raise errors.UserError(f"--{name} is required{hint}")
    except (errors.UserError, flags.Error) as error:
        sys.exit(_complain(str(error)))
    return positional


def _help() -> str:
    """Returns the text of --help: the command's description and its flags, by group and module."""
    command = sys.modules["__main__"]
    own = command.__spec__.name if command.__spec__ else "__main__"
    headings = {name: heading for heading, names in _GROUPS.items() for name in names}
    sections: dict[str, list[str]] = {heading: [] for heading in ("Flags", *_GROUPS)}
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        is_own = module == sys.argv[0] or module == own
        if not is_own and module.split(".")[0] not in _PACKAGES:
            continue
        default = "Flags" if is_own else f"Flags of {module}"
        for flag in sorted(defined, key=lambda flag: flag.name):
            lines = sections.setdefault(headings.get(flag.name, default), [])
            lines.append(f"  {_described(flag)}")
    texts = [f"{name}:\n" + "\n".join(lines) for name, lines in sections.items() if lines]
    return "\n\n".join([(command.__doc__ or "").strip(), *texts])


def _described(flag: flags.Flag) -> str:
    has_default = flag.default is not None and flag.default is not False and flag.default != ""
    default = f" (default: {flag.default_as_str})" if has_default else ""
    required = " (required)" if flag.name in _REQUIRED else ""
    text = f"--{'[no]' if flag.boolean else ''}{flag.name}: {flag.help}{default}{required}"
    return flags.text_wrap(text, length=100, indent="      ", firstline_indent="")


def _with_home(argument: str) -> str:
    """Replaces ~ in --config=~/FILE, which shells do not, by the home folder."""
    flag, _, path = argument.partition("=")
    return (
        f"{flag}={files.expanded(path)}" if flag in ("--config", "-config") and path else argument
    )


def _require_utf8(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError as error:  # it would be written into files that are UTF-8
        raise errors.UserError(f"the argument {argument!r} is not UTF-8") from error


def _require_config(argv: Sequence[str]) -> None:
    """Raises UserError if the config file cannot be run, or an overridden field does not exist.

    Without this check, ml_collections would report a missing file only when the config is read, and
    would report other errors with a traceback.
    """
    for argument, following in itertools.pairwise([*argv, ""]):
        if override := re.match(r"--?(?:no)?config\.([^=]+)", argument):
            config_lib.get(config_lib.DEFAULTS, override[1])
        elif argument in ("--config", "-config"):
            _run_config_file(following)
        elif argument.startswith(("--config=", "-config=")):
            _run_config_file(argument.partition("=")[2])


def _run_config_file(argument: str) -> None:
    """Runs a config file as ml_collections does, to raise UserError if the file has a mistake.

    Args:
      argument: the value of --config, FILE or FILE:ARGUMENT.
    """
    name, *arguments = argument.split(":", 1)
    if not pathlib.Path(name).is_file():
        raise errors.UserError(f"--config: no such file: {name}")
    try:
        module = runpy.run_path(name)
        config = module["get_config"](*arguments) if "get_config" in module else None
    except Exception as error:
        raise errors.UserError(f"{name} fails: {type(error).__name__}: {error}") from error
    if "get_config" not in module:
        raise errors.UserError(f"{name} has no function get_config()")
    if not isinstance(config, ml_collections.ConfigDict):
        raise errors.UserError(
            f"{name}: get_config() should return a ConfigDict, but returns a "
            f"{type(config).__name__}"
        )


# Settings of JAX under which its programs or this package fail, with the values that work.
_JAX_SETTINGS = {
    "jax_enable_x64": False,
    "jax_disable_jit": False,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
}


def _require_jax_settings() -> None:
    """Raises UserError if a variable of the environment sets JAX to what this package lacks."""
    for name, needed in _JAX_SETTINGS.items():
        if getattr(jax.config, name) != needed:
            raise errors.UserError(
                f"{name.upper()}={os.environ.get(name.upper(), '')} is not supported: unset it"
            )


def _has_no_backend(error: Exception) -> bool:
    """Returns whether JAX raised an error while it looked for devices.

    Such errors have no class of their own, so the file that raised the error decides.
    """
    last = traceback.extract_tb(error.__traceback__)[-1]
    return pathlib.Path(last.filename).stem == "xla_bridge"


def _guarded(
    main: Callable[..., int | None], positional: Sequence[str], arguments: Sequence[str]
) -> int | None:
    """Calls `main` and returns the exit code; reports known errors in one line on stderr.

    Args:
      main: the command's function.
      positional: the positional arguments.
      arguments: the names of the positional arguments, as in `run`.
    """
    repeats = any(name.endswith("...") for name in arguments[-1:])
    if len(positional) > len(arguments) and not repeats:
        return _complain(f"unexpected argument {positional[len(arguments)]!r}: flags begin with --")
    if len(positional) < sum(not name.startswith("[") for name in arguments):
        return _complain(f"{arguments[len(positional)]} is missing: give {' '.join(arguments)}")
    if "workdir" in flags.FLAGS and flags.FLAGS.workdir == "":
        return _complain("--workdir is empty: name a folder; . is the current one")
    _show_log()
    try:
        _require_jax_settings()
        status = main(*positional)
        sys.stdout.flush()
        return status
    except errors.UserError as error:
        return _complain(str(error))
    except preemption.PreemptedError as error:
        return _complain(str(error), hosts.RUN_AGAIN)
    except errors.RunError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        if "cache_dir" in flags.FLAGS:  # all commands that train or prepare
            return _complain("interrupted; the same command resumes from what it has saved", 130)
        return _complain("interrupted", 130)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_has_left():  # such as `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
            return 1
        if _has_no_backend(error):
            reason = str(error) or "its plugin is not installed"
            return _complain(
                f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}: JAX finds no device "
                f"({reason}): unset the variable, or install transformer_jax[cuda] or [tpu]"
            )
        if files.met_in_a_bucket(error):
            return _complain(f"the bucket fails: {type(error).__name__}: {error}", 1)
        if isinstance(error, OSError) and error.errno is not None:  # raised by the system
            return _complain(str(error), 1)
        raise


def _reader_has_left() -> bool:
    """Returns whether the other end of standard output is closed."""
    poll = select.poll()
    poll.register(sys.stdout, 0)  # 0: errors only
    return bool(poll.poll(0))


def _complain(message: str, code: int = 2) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code


def _show_log() -> None:
    """Sends this package's log, and warnings of libraries, to stderr.

    A line of the log is printed as "12:34:56 text".
    """
    absl_logging.set_verbosity(absl_logging.WARNING)
    # Orbax and gcsfs log errors, with tracebacks, that they then raise.
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


def _report_unraisable(error: Any) -> None:
    """Prints an exception that Python could not raise, unless a failed write has caused it.

    After a failed write, Orbax closes its event loop, and then TensorStore's threads fail too. The
    error of the write itself is raised. Dozens of tracebacks from these threads would hide it.
    """
    if str(error.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(error)
