"""A configuration small enough to run whole in a test, as overrides of configs/toy.py."""

import dataclasses
import subprocess

from configs import toy
from tests import warm_commands
from transformer_jax import config as config_lib

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


def data(**fields: object) -> config_lib.DataConfig:
    """The data of configs/toy.py, with some fields changed."""
    return dataclasses.replace(config_lib.from_mapping(toy.get_config().to_dict()).data, **fields)


def sweep(
    server: warm_commands.Server, module: str, workdir: object, *flags: str, **overrides: object
) -> subprocess.CompletedProcess[str]:
    """Runs a sweep of the tiny configuration as a user does: python -m experiments.MODULE."""
    values = {**OVERRIDES, **overrides}
    arguments = [
        f"experiments.{module}",
        "--config=configs/toy.py",
        *(f"--config.{name}={value}" for name, value in values.items()),
        f"--workdir={workdir}",
        *flags,
    ]
    done = server.run(*arguments, environment={"COLUMNS": "200"})
    return subprocess.CompletedProcess(arguments, done.code, done.stdout.decode(), done.stderr)
