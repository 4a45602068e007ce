r"""Measures seconds a training step of rows beside those of base; a sweep starts it.

  python -m experiments.sweep.step_time --config=configs/toy.py --workdir=DIR \
      --cache_dir=DIR/cache --rows='{"A h=1": {"model.num_heads": 1}}'

measures what DIR/seconds.json does not have yet, and adds it.
"""

import logging
import math
import statistics
import time
from typing import final

import jax
import numpy as np
from absl import flags

from experiments.benchmarks import measuring
from experiments.sweep import seconds
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models, sequences
from transformer_jax import flags as flags_lib
from transformer_jax.distributed import sharding
from transformer_jax.training import step as step_lib

_log = logging.getLogger("transformer_jax.step_time")

_CONFIG = flags_lib.define_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
_CACHE_DIR = flags.DEFINE_string("cache_dir", "", "The sweep's cache; default WORKDIR/cache.")
_ROWS = flags.DEFINE_string("rows", "{}", "What to measure: rows and overrides, as JSON.")
_DEVICES = flags.DEFINE_string("devices", "", "What they are measured on, for seconds.json.")

SECONDS_A_ROW = 5  # of measuring, where rounds are quick
ROUNDS = (5, 50)  # in which base and the row take turns: at least, at most


@final
class _Training:
    """Steps of a configuration, on random words that fill all rows; called in turns."""

    def __init__(self, config: config_lib.Config) -> None:
        """Compiles the step.

        Raises:
          UserError: there can be no such model, or batch.
        """
        mesh = sharding.make_mesh(config.mesh)
        model = models.build(config.model, config.data.vocab_size)
        self._step = step_lib.compile_step(model, config, mesh)
        self._state = step_lib.init_state(model, config, mesh)
        rows = sharding.rows_for_budget(
            config.train.batch_tokens, config.data.target_length, config.train.accumulation_steps,
            mesh,
        )  # fmt: skip
        rng = np.random.default_rng(0)
        source, target = (
            _full_rows(rng.integers(0, config.data.vocab_size, (rows, length), np.int32))
            for length in (config.data.source_length, config.data.target_length)
        )
        self._batch = sharding.put(sequences.Batch(source, target, target.tokens), mesh)
        self._hyper = step_lib.hyperparameters(config)
        self._key = jax.random.key(0)

    def run(self) -> None:
        """One step, to its end."""
        self._state, _ = self._step(self._state, self._batch, self._hyper, self._key)
        jax.block_until_ready(self._state)


def _full_rows(tokens: np.ndarray) -> sequences.Sequences:
    """Rows of one sentence each."""
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    return sequences.Sequences(tokens, np.ones_like(tokens), positions)


def _compare(base: _Training, other: _Training) -> tuple[float, float]:
    """Median seconds a step of base, and the median over rounds of how many such another takes."""
    for each in (base, other):
        each.run()  # the first is slower
    start = time.perf_counter()
    base.run()
    other.run()
    least, most = ROUNDS
    rounds = min(max(math.ceil(SECONDS_A_ROW / (time.perf_counter() - start)), least), most)
    samples = measuring.time_interleaved([base, other], rounds, lambda _: None)
    ratios = [row / of_base for of_base, row in zip(*samples, strict=True)]
    return statistics.median(samples[0]), statistics.median(ratios)


def main() -> None:
    """Measures what --rows names and is not known yet."""
    workdir = files.local_path(_WORKDIR.value)
    cache_dir = flags_lib.cache_dir(_CACHE_DIR.value, workdir)
    jax.config.update("jax_compilation_cache_dir", str((cache_dir / "xla").absolute()))
    base = flags_lib.read_config(_CONFIG)
    rows = files.parse_json(_ROWS.value.encode(), {str: dict})
    of_base: _Training | None = None
    for row, overrides in rows.items():
        try:
            config = config_lib.replace(base, overrides)
            if seconds.key(config) in seconds.read(workdir, base):
                continue  # another row's steps are the same
            of_base = of_base or _Training(base)
            of_step, ratio = _compare(of_base, _Training(config))
        except errors.UserError as error:
            raise errors.UserError(f"row {row!r}: {error}") from error
        entry = {
            "row": row,
            "ratio": ratio,
            "base_seconds": of_step,
            "devices": _DEVICES.value,
            "measured": measuring.describe_machine(),
        }
        name = f"{seconds.key(base)} {seconds.key(config)}"
        files.write_json(workdir / seconds.NAME, {**seconds.entries(workdir), name: entry})
        _log.info("%s: a step takes %.3f times base's %.4f seconds", row, ratio, of_step)


if __name__ == "__main__":
    flags_lib.run(main)
