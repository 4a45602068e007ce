"""Training of `torch.nn.Transformer` with the paper's model, label smoothing and Adam.

Two defaults of the module, which cost time, are switched off. These are the dropout of attention
weights and inside the feed-forward, and the layer norms after the last encoder and decoder layers.
The biases of the attention projections, which the paper's model does not have, are kept. The module
is not compiled. On a GPU, float32 products may use TF32, as they do in JAX.
"""

import importlib
import itertools
import math
from collections.abc import Mapping
from typing import Any

from experiments.benchmarks import measuring, worker, workloads
from transformer_jax import config as config_lib

torch: Any = importlib.import_module("torch")  # may be absent when types are checked


class _Model(torch.nn.Module):
    """`torch.nn.Transformer` with sinusoidal positions, and one matrix for inputs and logits."""

    def __init__(self, config: config_lib.Config) -> None:
        super().__init__()
        model = config.model
        self.d_model, rate = model.d_model, model.dropout_rate
        self.embedding = torch.nn.Embedding(config.data.vocab_size, model.d_model)
        torch.nn.init.normal_(self.embedding.weight, std=model.d_model**-0.5)
        layers = (model.num_layers, model.num_layers)
        self.transformer = torch.nn.Transformer(
            model.d_model, model.num_heads, *layers, model.d_ff, rate, batch_first=True
        )
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout.p = layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.dropout = torch.nn.Dropout(rate)
        length, half = config.data.target_length, model.d_model // 2
        rates = torch.exp(torch.arange(half) * (-math.log(10_000.0) / half))
        angles = torch.arange(length)[:, None] * rates
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.register_buffer("table", table)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("future", torch.isinf(mask))

    def _embed(self, tokens: Any) -> Any:
        return self.dropout(self.embedding(tokens) * math.sqrt(self.d_model) + self.table)

    def forward(self, source: Any, target: Any) -> Any:
        hidden = self.transformer(
            self._embed(source),
            self._embed(target),
            tgt_mask=self.future,
            src_key_padding_mask=source == 0,
            memory_key_padding_mask=source == 0,
            tgt_is_causal=True,
        )
        return hidden @ self.embedding.weight.T


class Training(worker.Contender):
    """Training steps on the padded batches of a file, which are used in turn.

    With `model.compute_dtype` "bfloat16", PyTorch's automatic mixed precision is used.

    Args:
      config: the configuration, as nested dictionaries.
      batches: the file; see `workloads.write`.
    """

    def __init__(self, config: Mapping[str, Any], batches: str) -> None:
        self._is_on_gpu = torch.cuda.is_available()
        self._device = "cuda" if self._is_on_gpu else "cpu"
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high" if self._is_on_gpu else "highest")
        self._config = config_lib.from_mapping(config)
        self._model = _Model(self._config).to(self._device).train()
        self._optimizer = torch.optim.Adam(
            self._model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        tensors = [
            [
                torch.tensor(array, dtype=torch.long, device=self._device)
                for array in (batch.source.tokens, batch.target.tokens, batch.labels)
            ]
            for batch in workloads.read(batches)
        ]
        self._batches = itertools.cycle(tensors)

    def step(self) -> None:
        """Starts a training step."""
        source, target, labels = next(self._batches)
        is_narrow = self._config.model.compute_dtype == "bfloat16"
        with torch.autocast(self._device, torch.bfloat16, enabled=is_narrow):
            logits = self._model(source, target)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1),
                labels.flatten(),
                ignore_index=0,
                label_smoothing=self._config.train.label_smoothing,
            )
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def wait(self, result: Any) -> None:
        """Waits for the GPU."""
        if self._is_on_gpu:
            torch.cuda.synchronize()

    def peak_bytes(self) -> int:
        """Returns the peak memory so far in bytes: of the GPU, or of the process without one."""
        if self._is_on_gpu:
            return torch.cuda.max_memory_allocated()
        return measuring.peak_resident_bytes()
