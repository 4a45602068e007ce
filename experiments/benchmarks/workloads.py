"""The fixed workloads that the benchmark times, and the one file of batches that all rows read."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from configs import base, big, small, toy
from experiments.benchmarks import cost
from transformer_jax import config as config_lib
from transformer_jax import errors, sequences
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.distributed import sharding
from transformer_jax.training import loop

VOCABULARY = 8000
# Positions of a row: one sentence stands in a padded row, several in a packed one.
LENGTHS = {"padded": 32, "packed": 64}
PADDED_LENGTH = LENGTHS["padded"]
BATCHES = 4  # different ones, read in turn
_MODELS = {"toy": toy, "small": small, "base": base, "big": big}
# Of a padded batch; a packed one has as many target positions.
SENTENCES = {"toy": 32, "small": 128, "base": 32, "big": 32}
_HEADS = {"model.num_heads": 4, "model.d_k": 64, "model.d_v": 64}  # of small, as PyTorch can have


def config(name: str, kind: str = "packed", dtype: str = "float32") -> config_lib.Config:
    """What a workload trains: the toy's model, small, or the paper's base or big."""
    changes = {
        **(_HEADS if name == "small" else {}),
        "model.compute_dtype": dtype,
        "data.vocab_size": VOCABULARY,
        "data.source_length": LENGTHS[kind],
        "data.target_length": LENGTHS[kind],
        "train.batch_tokens": SENTENCES[name] * PADDED_LENGTH,
    }
    found = config_lib.from_mapping(_MODELS[name].get_config().to_dict())
    return config_lib.replace(found, changes)


def load(train: str, dev: str, cache_dir: str) -> dataset_lib.Dataset:
    """The corpus that batches are drawn from, of pairs that fit into a padded row.

    It is that of two path prefixes, or the embedded one, which has fewer words, where these are
    empty. Once encoded it is kept in `cache_dir`. Raises UserError if one prefix alone is given.
    """
    if bool(train) != bool(dev):
        raise errors.UserError("--train and --dev go together: give both, or neither")
    found = config_lib.from_mapping((small if train else toy).get_config().to_dict())
    if train:
        text = {"corpus": "text", "train": train, "dev": dev, "vocab_size": VOCABULARY}
        found = config_lib.replace(found, {f"data.{name}": it for name, it in text.items()})
    return fitting(dataset_lib.load(found.data, pathlib.Path(cache_dir)))


def fitting(dataset: dataset_lib.Dataset) -> dataset_lib.Dataset:
    """A corpus without the pairs that do not fit into a padded row."""
    longest = np.maximum(dataset.source.lengths, dataset.target.lengths)[dataset.usable]
    return dataclasses.replace(dataset, usable=dataset.usable[longest < PADDED_LENGTH])


def packed(dataset: dataset_lib.Dataset, config: config_lib.Config) -> batching.TrainingBatches:
    """Training's batches."""
    return loop.make_batches(dataset, config, sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1)))


def write(path: pathlib.Path, dataset: dataset_lib.Dataset, name: str) -> None:
    """Writes `BATCHES` padded batches of a workload and as many packed ones to a file.

    Padded batches hold one pair to a row, in random order; packed ones several of the same pairs.
    Raises UserError if the corpus has too few of them.
    """
    needed, number = BATCHES * SENTENCES[name], len(dataset.usable)
    if number < needed:
        raise errors.UserError(
            f"the benchmark draws {needed:,} pairs shorter than {PADDED_LENGTH} tokens, but this "
            f"corpus has {number:,}: give it a larger one"
        )
    order = np.random.default_rng(0).permutation(dataset.usable)[:needed].reshape(BATCHES, -1)
    rows, room = packed(dataset, config(name)), (PADDED_LENGTH, PADDED_LENGTH)
    batches = {
        "padded": [
            batching.fill([[(dataset.source[i], dataset.target[i])] for i in pairs], *room)
            for pairs in order.tolist()
        ],
        "packed": [rows[k] for k in range(BATCHES)],
    }
    # Arrays of a batch have one shape, and so have batches of a kind.
    arrays: dict[str, Any] = {
        kind: np.array([*map(jax.tree.leaves, of)]) for kind, of in batches.items()
    }
    np.savez(path, **arrays)


def read(path: str | pathlib.Path, kind: str) -> list[sequences.Batch]:
    """The "padded" or the "packed" batches of a file."""
    return [
        sequences.Batch(sequences.Sequences(*each[:3]), sequences.Sequences(*each[3:6]), each[6])
        for each in np.load(path)[kind]
    ]


def work(config: config_lib.Config, batches: Sequence[sequences.Batch]) -> Mapping[str, float]:
    """What a training step does, as `worker.Contender` says it."""
    return {
        "flops": cost.training_flops(config) / config.train.num_steps,
        "positions": batches[0].labels.size,
        "tokens": real_tokens(batches),
    }


def real_tokens(batches: Sequence[sequences.Batch]) -> float:
    """Target tokens of a batch, end tokens included, on average."""
    return float(np.mean([(batch.target.segments > 0).sum() for batch in batches]))
