"""Translation by CTranslate2 in float32, with the weights of a run of this package."""

import importlib
import os
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import ours, worker
from transformer_jax.models import positions

ctranslate2: Any = importlib.import_module("ctranslate2")  # may be absent when types are checked


class Translation(worker.Contender):
    """Beam search by CTranslate2. Its parallel workers divide the cores of the machine.

    Args:
      workers: the number of workers.
      run: the folder of a trained run.
      sentences: a file with one sentence per line.
    """

    def __init__(self, workers: int, run: str, sentences: str) -> None:
        trained, sources = ours.load(run, sentences)
        params = jax.tree.map(np.asarray, trained.params["params"])
        words = ["<blank>", "<s>", "</s>", "<unk>"]
        words += [f"<{i}>" for i in range(len(words), len(params["embedding"]))]
        self._ids = {word: i for i, word in enumerate(words)}
        self._texts = [[words[i] for i in tokens] + ["</s>"] for tokens in sources]
        with tempfile.TemporaryDirectory() as folder:
            _specification(trained.config.model, params, words).save(folder)
            self._translator = ctranslate2.Translator(
                folder,
                device="auto",
                inter_threads=workers,
                intra_threads=max(1, (os.cpu_count() or 1) // workers),
                compute_type="float32",
            )

    def step(self) -> None:
        """Translates all sentences."""
        found = self._translator.translate_batch(
            self._texts,
            beam_size=4,
            length_penalty=0.6,
            max_batch_size=ours.BATCH,
            batch_type="examples",
        )
        self.translations = [[self._ids[word] for word in each.hypotheses[0]] for each in found]


def _specification(model: Any, params: Any, words: list[str]) -> Any:
    """Returns CTranslate2's specification of the model.

    CTranslate2 stores matrices as (out, in), whereas Flax stores kernels as (in, out).
    """
    specs = ctranslate2.specs
    spec = specs.TransformerSpec.from_config(
        (model.num_layers, model.num_layers),
        model.num_heads,
        pre_norm=False,
        activation=specs.Activation.RELU,
    )
    table = np.array(positions.encode_sinusoidal(jnp.arange(512)[None], model.d_model)[0])
    for side, embeddings in (
        (spec.encoder, spec.encoder.embeddings[0]),
        (spec.decoder, spec.decoder.embeddings),
    ):
        embeddings.weight = params["embedding"]
        side.scale_embeddings = True
        side.position_encodings.encodings = table
    spec.decoder.projection.weight = params["embedding"]
    for n in range(model.num_layers):
        p, layer = params[f"encoder_{n}"], spec.encoder.layer[n]
        _attention(layer.self_attention, p, "attention", "query key value")
        _feed_forward(layer.ffn, p)
        p, layer = params[f"decoder_{n}"], spec.decoder.layer[n]
        _attention(layer.self_attention, p, "self_attention", "query key value")
        _attention(layer.attention, p, "cross_attention", "query", "key value")
        _feed_forward(layer.ffn, p)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    return spec


def _attention(spec: Any, layer: Any, name: str, *joined: str) -> None:
    """Sets the projections and the norm of one attention layer.

    Args:
      spec: CTranslate2's layer, which is changed.
      layer: the parameters of a layer of the encoder or decoder.
      name: the name of the attention in `layer`.
      *joined: the projections, such as "key value", that CTranslate2 joins in one matrix.
    """
    for linear, parts in zip(spec.linear, (*joined, "output"), strict=True):
        kernels = [layer[name][part]["kernel"] for part in parts.split()]
        _linear(linear, np.concatenate(kernels, axis=1))
    _norm(spec.layer_norm, layer[f"{name}_residual"])


def _feed_forward(spec: Any, layer: Any) -> None:
    for name, linear in (("inner", spec.linear_0), ("outer", spec.linear_1)):
        _linear(linear, layer["feed_forward"][name]["kernel"], layer["feed_forward"][name]["bias"])
    _norm(spec.layer_norm, layer["feed_forward_residual"])


def _linear(spec: Any, kernel: np.ndarray, bias: np.ndarray | None = None) -> None:
    spec.weight = np.ascontiguousarray(kernel.T)
    spec.bias = np.zeros(kernel.shape[1], np.float32) if bias is None else bias


def _norm(spec: Any, residual: Any) -> None:
    spec.gamma, spec.beta = residual["norm"]["scale"], residual["norm"]["bias"]
