"""The workloads that the benchmark times, and the files of batches that all rows read."""

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

VOCABULARY = 8000
# Positions of a row: one sentence stands in a padded row, several in a packed one.
LENGTHS = {"padded": 32, "packed": 64}
PADDED_LENGTH = LENGTHS["padded"]
BATCHES = 4  # different ones, read in turn
ACCELERATORS_SENTENCES = 768  # with which a batch has the paper's 24,576 target positions


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model, and how many sentences a padded batch has; a packed one has as many positions."""

    model: types.ModuleType
    sentences: int
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def on_accelerator(self) -> "Workload":
        """Returns the workload with the paper's batch."""
        return dataclasses.replace(self, sentences=ACCELERATORS_SENTENCES)

    def config(self, kind: str = "packed", dtype: str = "float32") -> config_lib.Config:
        """Returns the config of training on "padded" or "packed" batches."""
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
    # Heads that PyTorch can have too: their widths add up to d_model.
    "small": Workload(small, 128, {"model.num_heads": 4, "model.d_k": 64, "model.d_v": 64}),
    "base": Workload(base, 32),
    "big": Workload(big, 32),
}


def load(train: str, dev: str, cache_dir: str) -> dataset_lib.Dataset:
    """Returns the corpus that batches are drawn from, with the pairs that fit into a padded row.

    It is that of two path prefixes, or the embedded one, which has fewer words, where these are
    empty. Once encoded it is kept in `cache_dir`.

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
    """Returns a corpus without the pairs that do not fit into a padded row."""
    longest = np.maximum(dataset.source.lengths, dataset.target.lengths)[dataset.usable]
    return dataclasses.replace(dataset, usable=dataset.usable[longest < PADDED_LENGTH])


def write(
    prefix: pathlib.Path, dataset: dataset_lib.Dataset, workload: Workload
) -> dict[str, pathlib.Path]:
    """Writes `BATCHES` batches of each kind, and returns the files by kind.

    Padded batches hold one pair to a row, in random order; packed ones several of the same pairs.

    Raises:
      UserError: the corpus has too few of them.
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
        # The arrays of a batch have one shape, and so have batches of a kind.
        np.save(paths[kind], np.array([jax.tree.leaves(batch) for batch in each]))
    return paths


def one_device() -> jax.sharding.Mesh:
    """Returns a mesh of the first device."""
    return sharding.make_mesh(config_lib.MeshConfig(1, 1, 1), jax.devices()[:1])


def read(path: str | pathlib.Path) -> list[sequences.Batch]:
    """Returns the batches of a file."""
    return [
        sequences.Batch(sequences.Sequences(*each[:3]), sequences.Sequences(*each[3:6]), each[6])
        for each in np.load(path)
    ]


def work(config: config_lib.Config, batches: Sequence[sequences.Batch]) -> dict[str, float]:
    """Returns the work of a training step.

    That is operations of matrix products, padding included, and the target's real tokens, end
    tokens included, on average.
    """
    return {
        "flops": cost.training_flops(config) / config.train.num_steps,
        "tokens": float(np.mean([(batch.target.segments > 0).sum() for batch in batches])),
    }
