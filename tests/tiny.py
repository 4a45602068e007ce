"""A configuration small enough to run whole in a test, as overrides of configs/toy.py."""

import os
import subprocess
import sys

OVERRIDES = {
    "model.num_layers": 2,
    "model.d_model": 16,
    "model.d_ff": 24,
    "model.num_heads": 4,
    "model.d_k": 6,
    "model.d_v": 2,
    "model.max_positions": 128,
    "train.num_steps": 12,
    "train.warmup_steps": 10,
    "train.learning_rate_scale": 0.5,  # rounding errors grow with it
    "data.toy_pairs": 400,
    "data.toy_held_out_pairs": 16,
    "data.vocab_size": 400,
    "data.source_length": 64,
    "data.target_length": 64,
    "train.batch_tokens": 512,
    "decode.extra_tokens": 6,
    "decode.batch_sentences": 16,
    "checkpoint.every": 4,
    "log.every": 2,
}


def sweep(module, workdir, *flags, **overrides):
    """Runs a sweep of the tiny configuration as a user does: python -m experiments.MODULE."""
    values = {**OVERRIDES, **overrides}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            f"experiments.{module}",
            "--config=configs/toy.py",
            *(f"--config.{name}={value}" for name, value in values.items()),
            f"--workdir={workdir}",
            *flags,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200", "JAX_PLATFORMS": "cpu"},
    )
