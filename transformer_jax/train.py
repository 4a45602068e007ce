"""Trains and evaluates one run; started again, it goes on where it was stopped.

python -m transformer_jax.train --config=configs/toy.py --workdir=runs/one
"""

import pathlib

import jax
from absl import flags

from transformer_jax import flags as flags_lib
from transformer_jax import runs

_CONFIG = flags_lib.define_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_CACHE_DIR = flags.DEFINE_string(
    "cache_dir",
    "",
    "Where tokenizers, encoded corpora and compiled programs are shared; default WORKDIR/cache.",
)
_ROW = flags.DEFINE_string("row", "", "The run's name in a table, for the record.")
_PROFILE = flags.DEFINE_boolean("profile", False, "Write a JAX trace to WORKDIR/profile.")


def main() -> None:
    """Runs the run that the flags describe."""
    workdir = pathlib.Path(_WORKDIR.value)
    cache_dir = pathlib.Path(_CACHE_DIR.value) if _CACHE_DIR.value else workdir / "cache"
    jax.config.update("jax_compilation_cache_dir", str((cache_dir / "xla").absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    runs.run(
        flags_lib.read_config(_CONFIG),
        workdir,
        cache_dir,
        row=_ROW.value,
        overrides=flags_lib.overrides(),
        profile=_PROFILE.value,
    )


if __name__ == "__main__":
    flags_lib.run(main)
