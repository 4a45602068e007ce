"""CTranslate2 with the weights of a run of ours."""

import importlib
import os
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import decoding
from transformer_jax.models import positions

ctranslate2: Any = importlib.import_module("ctranslate2")  # which types are checked without


class CTranslate2Decoding(decoding.DecodingContender):
    """Beam search of CTranslate2 in float32."""

    def __init__(self, workers: int, **case: Any) -> None:
        """Loads the case.

        Args:
          workers: translators beside each other; the machine's cores are shared out over them.
          case: as `decoding.DecodingContender` takes it.
        """
        self._workers = workers
        super().__init__(**case)

    def prepare(self) -> None:
        """Converts the run."""
        model = self.case.translator.config.model
        params = jax.tree.map(np.asarray, self.case.translator.params["params"])
        words = [f"<{i}>" for i in range(len(params["embedding"]))]
        words[:4] = ["<blank>", "<s>", "</s>", "<unk>"]
        self._ids = {word: i for i, word in enumerate(words)}
        self._sources = [[words[i] for i in tokens] + ["</s>"] for tokens in self.case.sources]
        self._options: dict[str, Any] = {
            "beam_size": 4,
            "length_penalty": 0.6,
            "max_batch_size": decoding.BATCH,
            "batch_type": "examples",
        }
        if self.case.forced:
            length = decoding.FORCED_LENGTH
            self._options |= {"min_decoding_length": length, "max_decoding_length": length}
        with tempfile.TemporaryDirectory() as folder:
            _specification(model, params, words).save(folder)
            self._translator = ctranslate2.Translator(
                folder,
                device="auto",
                inter_threads=self._workers,
                intra_threads=max(1, (os.cpu_count() or 1) // self._workers),
                compute_type="float32",
            )

    def translate(self) -> list[list[int]]:
        """Translates all sentences."""
        found = self._translator.translate_batch(self._sources, **self._options)
        return [[self._ids[word] for word in each.hypotheses[0]] for each in found]


def _specification(model: Any, params: Any, words: list[str]) -> Any:
    """Our parameters under CTranslate2's names; its matrices are (out, in)."""
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
        _self_attention(layer.self_attention, p["attention"])
        _norm(layer.self_attention.layer_norm, p["attention_residual"])
        _feed_forward(layer.ffn, p)
        p, layer = params[f"decoder_{n}"], spec.decoder.layer[n]
        _self_attention(layer.self_attention, p["self_attention"])
        _norm(layer.self_attention.layer_norm, p["self_attention_residual"])
        cross = p["cross_attention"]
        _linear(layer.attention.linear[0], cross["query"]["kernel"])
        _linear(layer.attention.linear[1], _joined(cross, "key", "value"))
        _linear(layer.attention.linear[2], cross["output"]["kernel"])
        _norm(layer.attention.layer_norm, p["cross_attention_residual"])
        _feed_forward(layer.ffn, p)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    return spec


def _joined(attention: Any, *names: str) -> np.ndarray:
    return np.concatenate([attention[name]["kernel"] for name in names], axis=1)


def _self_attention(spec: Any, attention: Any) -> None:
    _linear(spec.linear[0], _joined(attention, "query", "key", "value"))
    _linear(spec.linear[1], attention["output"]["kernel"])


def _linear(spec: Any, kernel: np.ndarray, bias: np.ndarray | None = None) -> None:
    spec.weight = np.ascontiguousarray(kernel.T)
    spec.bias = np.zeros(kernel.shape[1], np.float32) if bias is None else bias


def _norm(spec: Any, residual: Any) -> None:
    spec.gamma, spec.beta = residual["norm"]["scale"], residual["norm"]["bias"]


def _feed_forward(spec: Any, layer: Any) -> None:
    for name, linear in (("inner", spec.linear_0), ("outer", spec.linear_1)):
        _linear(linear, layer["feed_forward"][name]["kernel"], layer["feed_forward"][name]["bias"])
    _norm(spec.layer_norm, layer["feed_forward_residual"])
