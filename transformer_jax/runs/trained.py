"""A trained run, read from its folder."""

import os
from typing import Any

import jax

from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.decoding import translator
from transformer_jax.distributed import sharding
from transformer_jax.models import interface
from transformer_jax.runs import run_folder
from transformer_jax.training import checkpoint
from transformer_jax.training import step as step_lib


def load(workdir: str | files.Path) -> translator.Translator:
    """A trained run, ready to translate: `load("runs/X").translate(["A dog sleeps."])`.

    Only data is read: config.json, tokenizer.model and the newest checkpoint, or as many as
    evaluation.average_checkpoints says.

    Raises:
      UserError: the folder holds no run, none with a checkpoint, or a damaged one.
    """
    folder = files.path(os.fspath(workdir))
    for name in ("config.json", "tokenizer.model", "checkpoints/"):
        there = folder / name
        try:
            is_there = there.is_dir() if name.endswith("/") else there.exists()
        except OSError as error:
            raise errors.UserError(f"cannot read {folder}: {error}") from error
        if not is_there:
            raise errors.UserError(f"{folder} holds no trained run: it has no {name}")
    config = run_folder.read_config(folder)
    mesh = sharding.make_mesh(config_lib.MeshConfig(data=-1, fsdp=1, tensor=1))
    tokenizer = run_folder.read_tokenizer(folder, config)
    model = models.build(config.model, tokenizer.vocab_size)
    params = restore_params(model, config, mesh, folder, tokenizer)
    return translator.Translator(model, params, tokenizer, config, mesh)


def restore_params(
    model: interface.Architecture,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    workdir: files.Path,
    tokenizer: tokenizer_lib.Tokenizer,
) -> Any:
    """A run's newest parameters, or the mean of as many as evaluation.average_checkpoints says."""
    checkpoints = checkpoint.Checkpoints(workdir / "checkpoints", config, tokenizer.digest)
    try:
        return checkpoints.averaged(*step_lib.state_shapes_and_shardings(model, config, mesh))
    finally:
        checkpoints.close()
