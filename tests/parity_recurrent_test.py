"""The recurrent models against torch.nn.RNN, LSTM and GRU: logits, loss, every gradient."""

import math

import numpy as np
import pytest

from tests import parity
from transformer_jax import models

torch = parity.torch

KINDS = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
# Their gates in the order of ours: a GRU's are update, reset, new; there reset, update, new.
GATES = {"rnn": [0], "lstm": [0, 1, 2, 3], "gru": [1, 0, 2]}


class Recurrent(torch.nn.Module):
    """An encoder that reads in both directions and a decoder, with sums between layers."""

    def __init__(self, config):
        super().__init__()
        d_model, kind = config.d_model, KINDS[config.architecture]
        parts = 2 if config.architecture == "lstm" else 1
        layers = range(config.num_layers)
        options = {"input_size": d_model, "batch_first": True}
        self.embedding = torch.nn.Parameter(torch.empty(parity.VOCABULARY, d_model))
        self.encoder = torch.nn.ModuleList(
            kind(hidden_size=d_model // 2, bidirectional=True, **options) for _ in layers
        )
        self.bridges = torch.nn.ModuleList(
            torch.nn.ModuleList(torch.nn.Linear(d_model, d_model) for _ in range(parts))
            for _ in layers
        )
        self.decoder = torch.nn.ModuleList(kind(hidden_size=d_model, **options) for _ in layers)

    def embed(self, tokens):
        return self.embedding[tokens] * math.sqrt(self.embedding.shape[1])

    def forward(self, source, target):
        x, lengths, starts = self.embed(source), (source > 0).sum(1), []
        for layer, (read, bridges) in enumerate(zip(self.encoder, self.bridges, strict=True)):
            sentences = torch.nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            out, states = read(sentences)
            states = states if isinstance(states, tuple) else (states,)
            starts.append(
                [
                    torch.tanh(bridge(torch.cat([*state], -1)))[None]
                    for bridge, state in zip(bridges, states, strict=True)
                ]
            )
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(
                out, batch_first=True, total_length=source.shape[1]
            )
            x = x + y if layer else y
        x = self.embed(target)
        for layer, (write, start) in enumerate(zip(self.decoder, starts, strict=True)):
            y, _ = write(x, tuple(start) if len(start) == 2 else start[0])
            x = x + y if layer else y
        return x @ self.embedding.T


def pairs(config):
    yield parity.Pair("embedding", "embedding")
    for layer in range(config.num_layers):
        half = config.d_model // 2
        yield from cell(f"forwards_{layer}", f"encoder.{layer}", "l0", half, config)
        yield from cell(f"backwards_{layer}", f"encoder.{layer}", "l0_reverse", half, config)
        yield from cell(f"decoder_{layer}", f"decoder.{layer}", "l0", config.d_model, config)
        for part in range(2 if config.architecture == "lstm" else 1):
            ours, theirs = f"bridge_{layer}_{part}", f"bridges.{layer}.{part}"
            yield parity.Pair(f"{ours}/kernel", f"{theirs}.weight")
            yield parity.Pair(f"{ours}/bias", f"{theirs}.bias")


def cell(ours, theirs, suffix, width, config):
    rows = [gate * width + i for gate in GATES[config.architecture] for i in range(width)]
    yield parity.Pair(f"{ours}/from_input/kernel", f"{theirs}.weight_ih_{suffix}", rows)
    yield parity.Pair(f"{ours}/from_input/bias", f"{theirs}.bias_ih_{suffix}", rows)
    yield parity.Pair(f"{ours}/from_state/kernel", f"{theirs}.weight_hh_{suffix}", rows)


@pytest.mark.parametrize("architecture", KINDS)
def test_is_pytorchs_recurrence(make_config, architecture):
    config = make_config({"model.architecture": architecture, "model.position": "none"}).model
    model = models.build(config, parity.VOCABULARY)
    params = parity.model_parameters(model)
    theirs = Recurrent(config)
    fixed = {}
    for name, parameter in theirs.named_parameters():
        if "bias_hh" in name:  # they have two biases; ours are one, an LSTM's forget gate's plus 1
            gates = np.zeros((len(GATES[architecture]), len(parameter) // len(GATES[architecture])))
            if architecture == "lstm":
                gates[1] = 1
            fixed[name] = gates.ravel()
    parity.copy(params, theirs, list(pairs(config)), fixed)
    parity.assert_models_agree(model, params, theirs, list(pairs(config)))
