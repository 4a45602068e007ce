"""`torch.nn.Transformer` on the same padded batches: the paper's model, smoothing and Adam.

Dropout stands where the paper has it: of its own accord the module would also drop attention
weights and features inside the feed-forward, and normalise the stacks' outputs once more, which
costs time. It keeps biases in its attention projections, and runs as it is, not compiled. On a GPU
its float32 products may take the short way (TF32), as JAX's do.
"""

import contextlib
import importlib
import itertools
import math
import pathlib
from typing import Any

from experiments.benchmarks import workloads

torch: Any = importlib.import_module("torch")  # which types are checked without


class _Model(torch.nn.Module):
    """Embeddings, shared with the output, and sinusoidal positions around the module."""

    def __init__(self, workload: workloads.Workload) -> None:
        super().__init__()
        model = workload.config.model
        self.d_model, rate = model.d_model, model.dropout_rate
        self.embedding = torch.nn.Embedding(workloads.VOCABULARY, model.d_model)
        torch.nn.init.normal_(self.embedding.weight, std=model.d_model**-0.5)
        self.transformer = torch.nn.Transformer(
            model.d_model,
            model.num_heads,
            model.num_layers,
            model.num_layers,
            model.d_ff,
            rate,
            batch_first=True,
        )
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout.p = layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.dropout = torch.nn.Dropout(rate)
        length, half = workloads.PADDED_LENGTH, model.d_model // 2
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


class TorchTraining:
    """Steps over the padded batches, with the fused Adam."""

    compile_seconds = 0.0

    def __init__(self, workload: str, batches: str, dtype: str) -> None:
        """Builds the model.

        Args:
          workload: the name of what to train.
          batches: the path of their file.
          dtype: "float32", or "bfloat16" for automatic mixed precision.
        """
        torch.manual_seed(0)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        if self._device == "cuda":
            torch.set_float32_matmul_precision("high")
        chosen = workloads.all_workloads()[workload]
        self._model = _Model(chosen).to(self._device).train()
        self._optimizer = torch.optim.Adam(
            self._model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        self._smoothing = chosen.config.train.label_smoothing
        self._dtype = dtype
        tensors = [
            [
                torch.tensor(array, dtype=torch.long, device=self._device)
                for array in (batch.source.tokens, batch.target.tokens, batch.labels)
            ]
            for batch in workloads.read(pathlib.Path(batches), "padded")
        ]
        self._batches = itertools.cycle(tensors)

    def run(self, steps: int) -> None:
        """Takes so many steps."""
        for source, target, labels in itertools.islice(self._batches, steps):
            narrow = (
                torch.autocast(self._device, torch.bfloat16)
                if self._dtype == "bfloat16"
                else contextlib.nullcontext()
            )
            with narrow:
                logits = self._model(source, target)
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1),
                    labels.flatten(),
                    ignore_index=0,
                    label_smoothing=self._smoothing,
                )
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        if self._device == "cuda":
            torch.cuda.synchronize()

    def peak_bytes(self) -> int | None:
        """Most memory in use on the accelerator so far; None on a CPU."""
        return torch.cuda.max_memory_allocated() if self._device == "cuda" else None
