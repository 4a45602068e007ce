"""CTranslate2 with the weights of a run of ours."""

import importlib
import pathlib
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed import decoding, workloads
from transformer_jax.models import positions

ctranslate2: Any = importlib.import_module("ctranslate2")  # which types are checked without


class Decoding:
    """Beam search of CTranslate2 in float32."""

    compile_seconds = 0.0

    def __init__(
        self,
        workload: workloads.Workload,
        path: pathlib.Path,
        run: str,
        forced: bool,
        workers: int,
        dtype: str = "float32",
    ) -> None:
        """Converts the run.

        Args:
          workload: not used.
          path: a file of sentences.
          run: a trained run's folder.
          forced: whether translations have a fixed length.
          workers: translators beside each other; the machine's two cores are shared out over them.
          dtype: what it computes in.
        """
        del workload
        sentences = path.read_text(encoding="utf-8").splitlines()
        case = decoding.load(run, sentences, forced)
        model = case.translator.config.model
        params = jax.tree.map(np.asarray, case.translator.params["params"])
        words = [f"<{i}>" for i in range(len(params["embedding"]))]
        words[:4] = ["<blank>", "<s>", "</s>", "<unk>"]
        self._sources = [[words[i] for i in tokens] + ["</s>"] for tokens in case.sources]
        self._options: dict[str, Any] = {
            "beam_size": 4,
            "length_penalty": 0.6,
            "max_batch_size": decoding.BATCH,
            "batch_type": "examples",
        }
        if forced:
            length = decoding.FORCED_LENGTH
            self._options |= {"min_decoding_length": length, "max_decoding_length": length}
        with tempfile.TemporaryDirectory() as folder:
            _specification(model, params, words).save(folder)
            self._translator = ctranslate2.Translator(
                folder,
                inter_threads=workers,
                intra_threads=2 // workers,
                compute_type=dtype,
            )
        self.sentences = len(self._sources)
        self.translations = self._translate()

    def _translate(self) -> list[list[int]]:
        found = self._translator.translate_batch(self._sources, **self._options)
        return [[int(word[1:-1]) for word in each.hypotheses[0]] for each in found]

    def run(self, steps: int) -> None:
        """Translates all sentences so many times."""
        for _ in range(steps):
            self._translate()

    def peak_bytes(self) -> int | None:
        """Not known."""
        return None


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
