"""The workloads of the benchmark, and the files with the batches on which all rows are timed."""

import dataclasses
import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from configs import base, big, small, toy
from experiments.sweep import cost
from transformer_jax import config as config_lib
from transformer_jax import errors, sequences
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.distributed import sharding
from transformer_jax.training import loop

VOCABULARY = 8000  # tokens
# Positions of a row of a batch. A padded row has one sentence pair, a packed row has several.
LENGTHS = {"padded": 32, "packed": 64}
PADDED_LENGTH = LENGTHS["padded"]
BATCHES = 4  # different batches of each kind, used in turn
# Sentence pairs of a padded batch on accelerators: 768 × 32 are the paper's 24,576 positions.
ACCELERATORS_SENTENCES = 768


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and a size of batches. Padded and packed batches have equally many positions."""

    model: types.ModuleType  # a module of `configs`
    sentences: int  # sentence pairs of a padded batch
    # Overrides of the model's config.
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def on_accelerator(self) -> "Workload":
        """Returns the workload with batches of the paper's size, 24,576 target positions."""
        return dataclasses.replace(self, sentences=ACCELERATORS_SENTENCES)

    def config(self, kind: str = "packed", dtype: str = "float32") -> config_lib.Config:
        """Returns the config of training.

        Args:
          kind: the kind of batches, "padded" or "packed".
          dtype: the value of model.compute_dtype.
        """
        config = config_lib.from_mapping(self.model.get_config().to_dict())
        return config_lib.replace(config, {
            **self.changes,
            "model.compute_dtype": dtype,
            "data.vocab_size": VOCABULARY,
            "data.source_length": LENGTHS[kind],
            "data.target_length": LENGTHS[kind],
            "train.batch_tokens": self.sentences * PADDED_LENGTH,
        })  # fmt: skip


WORKLOADS = {
    "toy": Workload(toy, 32),
    # PyTorch requires h · d_k = d_model.
    "small": Workload(small, 128, {"model.num_heads": 4, "model.d_k": 64, "model.d_v": 64}),
    "base": Workload(base, 32),
    "big": Workload(big, 32),
}


def load(train: str, dev: str, cache_dir: str) -> dataset_lib.Dataset:
    """Returns the corpus that batches are drawn from, without pairs too long for a padded row.

    Args:
      train: path prefix of the training text; "" for the embedded corpus.
      dev: path prefix of the development text; "" for the embedded corpus.
      cache_dir: the folder in which the encoded corpus is cached.

    Raises:
      UserError: one prefix is given without the other.
    """
    if bool(train) != bool(dev):
        raise errors.UserError("--train and --dev go together: give both, or neither")
    config = config_lib.from_mapping((small if train else toy).get_config().to_dict())
    if train:
        text = {"corpus": "text", "train": train, "dev": dev, "vocab_size": VOCABULARY}
        config = config_lib.replace(config, {f"data.{name}": it for name, it in text.items()})
    return fitting(dataset_lib.load(config.data, pathlib.Path(cache_dir)))


def fitting(dataset: dataset_lib.Dataset) -> dataset_lib.Dataset:
    """Returns a corpus without the sentence pairs that are too long for a padded row."""
    longest = np.maximum(dataset.source.lengths, dataset.target.lengths)[dataset.usable]
    return dataclasses.replace(dataset, usable=dataset.usable[longest < PADDED_LENGTH])


def write(
    prefix: pathlib.Path, dataset: dataset_lib.Dataset, workload: Workload
) -> dict[str, pathlib.Path]:
    """Writes `BATCHES` padded and `BATCHES` packed batches, and returns the file of each kind.

    A row of a padded batch has one sentence pair. A row of a packed batch has several.

    Args:
      prefix: the beginning of the files' paths.
      dataset: the corpus.
      workload: the workload.

    Raises:
      UserError: the corpus has too few sentence pairs.
    """
    needed, number = BATCHES * workload.sentences, len(dataset.usable)
    if number < needed:
        raise errors.UserError(
            f"the benchmark draws {needed:,} pairs shorter than {PADDED_LENGTH} tokens, but this "
            f"corpus has {number:,}: give it a larger one"
        )
    order = np.random.default_rng(0).permutation(dataset.usable)[:needed].reshape(BATCHES, -1)
    padded = [
        batching.fill(
            [[(dataset.source[i], dataset.target[i])] for i in pairs], PADDED_LENGTH, PADDED_LENGTH
        )
        for pairs in order.tolist()
    ]
    packed = loop.make_batches(dataset, workload.config(), one_device())
    batches = {"padded": padded, "packed": [packed[k] for k in range(BATCHES)]}
    paths = {}
    for kind, each in batches.items():
        paths[kind] = prefix.with_name(f"{prefix.name}-{kind}.npy")
        # One array holds all: the arrays of all batches of a kind have the same shape.
        np.save(paths[kind], np.array([jax.tree.leaves(batch) for batch in each]))
    return paths


def one_device() -> jax.sharding.Mesh:
    """Returns a mesh with JAX's first device only."""
    return sharding.make_mesh(config_lib.MeshConfig(1, 1, 1), jax.devices()[:1])


def read(path: str | pathlib.Path) -> list[sequences.Batch]:
    """Reads the batches of a file that `write` has written."""
    return [
        sequences.Batch(sequences.Sequences(*each[:3]), sequences.Sequences(*each[3:6]), each[6])
        for each in np.load(path)
    ]


def work(config: config_lib.Config, batches: Sequence[sequences.Batch]) -> dict[str, float]:
    """Returns the amount of work of a training step.

    Returns:
      "flops": the FLOPs of matrix products, padding included. "tokens": the mean number of target
      tokens of a batch, with end tokens and without padding.
    """
    return {
        "flops": cost.training_flops(config) / config.train.num_steps,
        "tokens": float(np.mean([(batch.target.segments > 0).sum() for batch in batches])),
    }
