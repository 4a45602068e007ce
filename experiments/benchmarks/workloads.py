"""The fixed workloads that the benchmark times, and the one file of batches that all rows read."""

import dataclasses
import pathlib
from collections.abc import Mapping

import jax
import ml_collections
import numpy as np

from configs import base as base_config
from configs import big as big_config
from configs import small as small_config
from configs import toy as toy_config
from transformer_jax import config as config_lib
from transformer_jax import errors, sequences
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib

VOCABULARY = 8000
# Positions of a row: one sentence stands in a padded row, several in a packed one.
LENGTHS = {"padded": 32, "packed": 64}
PADDED_LENGTH, PACKED_LENGTH = LENGTHS.values()
BATCHES = 4  # different ones, read in turn


@dataclasses.dataclass(frozen=True)
class Workload:
    """One model and its batch.

    Attributes:
      config: the model and the recipe.
      sentences: rows of a padded batch; a packed batch has as many target positions.
    """

    config: config_lib.Config
    sentences: int

    @property
    def positions(self) -> int:
        """Target positions of a batch."""
        return self.sentences * PADDED_LENGTH


def _configured(values: ml_collections.ConfigDict, **overrides: int) -> config_lib.Config:
    config = config_lib.from_mapping(values.to_dict())
    return config_lib.replace(config, {"data.vocab_size": VOCABULARY, **overrides})


def all_workloads() -> Mapping[str, Workload]:
    """The toy's model, small, and the paper's base and big, all with a vocabulary of 8,000."""
    heads = {"model.num_heads": 4, "model.d_k": 64, "model.d_v": 64}
    return {
        "toy": Workload(_configured(toy_config.get_config()), 32),
        "small": Workload(_configured(small_config.get_config(), **heads), 128),
        "base": Workload(_configured(base_config.get_config()), 32),
        "big": Workload(_configured(big_config.get_config()), 32),
    }


def load(train: str, dev: str, cache_dir: str) -> dataset_lib.Dataset:
    """The corpus that batches are drawn from.

    Args:
      train: path prefix of training text; "" for the embedded corpus, which has fewer words.
      dev: path prefix of development text.
      cache_dir: where the corpus is kept, once encoded.

    Raises:
      UserError: only one of the two is given.
    """
    if bool(train) != bool(dev):
        raise errors.UserError("--train and --dev go together: give both, or neither")
    values = small_config.get_config() if train else toy_config.get_config()
    config = config_lib.from_mapping(values.to_dict())
    if train:
        text = {"corpus": "text", "train": train, "dev": dev, "vocab_size": VOCABULARY}
        config = config_lib.replace(config, {f"data.{name}": it for name, it in text.items()})
    return dataset_lib.load(config.data, pathlib.Path(cache_dir))


def _fitting(dataset: dataset_lib.Dataset) -> np.ndarray:
    """The usable pairs that fit into a padded row."""
    longest = np.maximum(dataset.source.lengths, dataset.target.lengths)[dataset.usable]
    return dataset.usable[longest < PADDED_LENGTH]


def packed(
    dataset: dataset_lib.Dataset, workload: Workload, steps: int
) -> batching.TrainingBatches:
    """Batches of rows of `PACKED_LENGTH`, of the pairs that fit into a padded row."""
    return batching.TrainingBatches(
        dataclasses.replace(dataset, usable=_fitting(dataset)),
        batch_rows=workload.positions // PACKED_LENGTH,
        source_length=PACKED_LENGTH,
        target_length=PACKED_LENGTH,
        window=workload.config.data.packing_window,
        seed=0,
        num_steps=steps,
    )


def write(path: pathlib.Path, dataset: dataset_lib.Dataset, workload: Workload) -> None:
    """Writes `BATCHES` padded batches and as many packed ones to a file.

    Padded batches hold one pair to a row of `PADDED_LENGTH`, in random order; packed ones several
    to a row of `PACKED_LENGTH`, of the same pairs: those that fit into a padded row.

    Raises:
      UserError: the corpus has too few of them.
    """
    fitting = _fitting(dataset)
    needed = BATCHES * workload.sentences
    if len(fitting) < needed:
        raise errors.UserError(
            f"the benchmark draws {needed:,} pairs shorter than {PADDED_LENGTH} tokens, but this "
            f"corpus has {len(fitting):,}: give it a larger one"
        )
    order = np.random.default_rng(0).permutation(fitting)[:needed].reshape(BATCHES, -1)
    padded = [
        batching.fill(
            [[(dataset.source[i], dataset.target[i])] for i in indices.tolist()],
            PADDED_LENGTH,
            PADDED_LENGTH,
        )
        for indices in order
    ]
    rows = packed(dataset, workload, BATCHES)
    kinds = {"padded": padded, "packed": [rows[k] for k in range(BATCHES)]}
    arrays = {
        f"{kind}/{k}/{i}": leaf
        for kind, batches in kinds.items()
        for k, batch in enumerate(batches)
        for i, leaf in enumerate(jax.tree.leaves(batch))
    }
    np.savez(path, **arrays)


def read(path: pathlib.Path, kind: str) -> list[sequences.Batch]:
    """The "padded" or the "packed" batches of a file."""
    arrays = np.load(path)
    batches: list[sequences.Batch] = []
    for k in range(BATCHES):
        source, target = (
            sequences.Sequences(*[arrays[f"{kind}/{k}/{i + first}"] for i in range(3)])
            for first in (0, 3)
        )
        batches.append(sequences.Batch(source, target, arrays[f"{kind}/{k}/6"]))
    return batches


def real_tokens(batches: list[sequences.Batch]) -> float:
    """Target tokens of a batch, end tokens included, on average."""
    return float(np.mean([(batch.target.segments > 0).sum() for batch in batches]))
