"""Code of this package that the benchmark times: training, decoding and a matrix product."""

import itertools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax

from experiments.benchmarks import worker, workloads
from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.decoding import translator
from transformer_jax.distributed import sharding
from transformer_jax.runs import run_folder
from transformer_jax.training import step as step_lib

PRODUCT_SIZES = {"cpu": 2048, "gpu": 8192, "tpu": 8192}  # rows and columns of the square matrices
BATCH = 32  # sentences translated together on one core


class Training(worker.Contender):
    """Training steps on the batches of a file, which are used in turn.

    Args:
      config: the configuration, as nested dictionaries.
      batches: the file; see `workloads.write`.
    """

    def __init__(self, config: Mapping[str, Any], batches: str) -> None:
        found, mesh = config_lib.from_mapping(config), workloads.one_device()
        model = models.build(found.model, found.data.vocab_size)
        self._program = step_lib.compile_step(model, found, mesh)
        self._state = step_lib.init_state(model, found, mesh)
        self._rest = step_lib.hyperparameters(found), jax.random.key(0)
        on_device = [sharding.put(batch, mesh) for batch in workloads.read(batches)]
        self._batches = itertools.cycle(on_device)

    def step(self) -> Any:
        """Starts a training step."""
        self._state, _ = self._program(self._state, next(self._batches), *self._rest)
        return self._state


class MatrixProduct(worker.Contender):
    """A product of two square matrices, whose rate is the most that training could reach.

    Args:
      dtype: the type of the matrices, such as "bfloat16".
    """

    def __init__(self, dtype: str) -> None:
        size = PRODUCT_SIZES[jax.default_backend()]
        self._matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
        self._product = jax.jit(lambda a: a @ a)

    def step(self) -> Any:
        """Starts a product of the matrix with itself."""
        return self._product(self._matrix)


def product_flops(platform: str) -> int:
    """Returns the FLOPs of one step of `MatrixProduct` on a "cpu", "gpu" or "tpu"."""
    return 2 * PRODUCT_SIZES[platform] ** 3


class Translation(worker.Contender):
    """Beam search of this package, with the length penalty of CTranslate2, length^0.6.

    Args:
      run: the folder of a trained run.
      sentences: a file with one sentence per line.
    """

    def __init__(self, run: str, sentences: str) -> None:
        trained, self._sources = load(run, sentences)
        changes = {
            "decode.beam_size": 4,
            "decode.alpha": 0.6,
            "decode.penalty": "length",
            "decode.extra_tokens": 50,
            "decode.batch_sentences": BATCH * (os.cpu_count() or 1),  # side by side on all cores
        }
        self._translator = translator.Translator(
            trained.model,
            trained.params,
            trained.tokenizer,
            config_lib.replace(trained.config, changes),
            workloads.one_device(),
        )

    def step(self) -> None:
        """Translates all sentences."""
        found: dict[int, list[int]] = {}
        for group in self._translator.search(self._sources):
            found |= group
        self.translations = [found[place] for place in range(len(found))]


def load(run: str, sentences: str) -> tuple[translator.Translator, list[list[int]]]:
    """Returns the translator of a trained run, and the tokens of each sentence of a file.

    Args:
      run: the folder of the run.
      sentences: a file with one sentence per line.

    Raises:
      UserError: the folder holds no run that translates.
    """
    trained = run_folder.load(run)
    lines = pathlib.Path(sentences).read_text(encoding="utf-8").splitlines()
    return trained, trained.tokenizer.encode(lines)
