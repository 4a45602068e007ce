"""One way to start a command: flag and config errors are one line on stderr and exit code 2."""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import app, flags
from ml_collections import config_flags

from transformer_jax import config as config_lib


def run(main: Callable[[], int | None]) -> NoReturn:
    """Parses the command line, calls `main` and exits with what it returns."""
    app.run(lambda argv: _guarded(main, argv), flags_parser=_parse)
    raise AssertionError("app.run exits")


def define_config() -> flags.FlagHolder:
    """--config=FILE, whose fields can be overridden as --config.model.d_k=16."""
    holder = config_flags.DEFINE_config_file(
        "config", None, "Config file, such as configs/toy.py.", lock_config=True
    )
    flags.mark_flag_as_required("config")
    return holder


def overrides() -> dict[str, object]:
    """The config fields that the command line sets, by dotted name."""
    return dict(config_flags.get_override_values(flags.FLAGS["config"]))


def _guarded(main: Callable[[], int | None], argv: Sequence[str]) -> int | None:
    if len(argv) > 1:
        return _complain(f"unexpected argument {argv[1]!r}: flags begin with --")
    _show_log()
    try:
        return main()
    except config_lib.UserError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return _complain("interrupted; the same command goes on from the last checkpoint", 130)


def _parse(argv: Sequence[str]) -> list[str]:
    try:
        return flags.FLAGS(list(argv))
    # Whatever a config file raises, an override of a field it lacks included, ends up here.
    except Exception as error:
        sys.exit(_complain(_first_line(error)))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text.strip("\"'")


def _complain(message: str, code: int = 2) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code


def _show_log() -> None:
    """Our own log lines go to stderr, as "12:34:56 text"; those of libraries only as warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("transformer_jax")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False
