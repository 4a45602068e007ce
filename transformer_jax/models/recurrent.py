"""Recurrent sequence-to-sequence models, with and without attention.

The encoder is bidirectional. Encoder and decoder have num_layers layers each, all with the same
kind of cell: rnn, lstm or gru. Layers have residual connections from the second layer on (in Wu et
al. 2016, from the third). Embeddings, their sharing, dropout between layers, data, decoding and the
recipe are the Transformer's. Therefore gradients are not clipped, unlike in most recurrent models.

Rows hold several sentences. The encoder's forward state is reset at the start of each sentence, and
its backward state at the end. The decoder starts each sentence from the encoder's states at both
ends of that sentence.
"""

from typing import Any, ClassVar, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer_jax import sequences
from transformer_jax.models import (
    dropout,
    embedding,
    interface,
    masks,
    products,
    recurrent_attention,
    recurrent_cells,
)


@final
class Recurrent(interface.Decoder):
    """An encoder and a decoder of recurrent layers; `architecture` names the cell."""

    uses: ClassVar[frozenset[str]] = interface.COMMON | {"recurrent_attention"}

    check = staticmethod(recurrent_cells.require_halves)

    def setup(self) -> None:
        config = self.config
        self.embedding = embedding.make(self, config, self.vocab_size)
        cell, layers = recurrent_cells.CELLS[config.architecture], range(config.num_layers)
        half = config.d_model // 2
        self.forwards = [cell(half, config.dtype) for _ in layers]
        self.backwards = [cell(half, config.dtype) for _ in layers]
        self.decoder = [cell(config.d_model, config.dtype) for _ in layers]

        def bridge(layer: int, part: int) -> products.Dense:
            return products.Dense(config.d_model, name=f"bridge_{layer}_{part}", dtype=config.dtype)

        self.bridges = [[bridge(layer, part) for part in range(cell.parts)] for layer in layers]
        self.attention = recurrent_attention.ATTENTIONS[config.recurrent_attention](config)

    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """Returns the decoder's output at each target position, which predicts the next token."""
        outputs, states = self.encode(source, rates)
        mask = masks.same_segment(target.segments, source.segments)[:, 0]
        attended = interface.Source(self.attention.keys(outputs), outputs, mask)
        starts = self._starts(states, *masks.ends(mask))

        def read(module: "Recurrent", state: Any, here: Any) -> tuple[Any, Float[Array, "B D"]]:
            token, begins, start, visible = here
            visible = attended._replace(mask=visible[:, None])
            fresh = begins[:, None, None]
            state = jax.tree.map(lambda a, b: jnp.where(fresh, a[:, None], b), start, state)
            x = module._embed(token[:, None], rates)
            x, state = module._step(x, state, visible, rates)
            return state, x[:, 0]

        scan = nn.scan(
            read,
            variable_broadcast="params",
            variable_axes={"intermediates": 2},
            split_rngs={"params": False, "dropout": True},
            in_axes=1,
            out_axes=1,
        )
        empty = jax.tree.map(lambda x: jnp.zeros_like(x[:, :1]), starts)
        begins = target.positions == 0
        _, x = scan(self, empty, (target.tokens, begins, starts, mask))
        return self.attention.after(x, attended)

    def encode(
        self, source: sequences.Sequences, rates: dropout.Rates = dropout.NONE
    ) -> tuple[Float[Array, "B S D"], list[recurrent_cells.State]]:
        """Returns the encoder's outputs and the states of all its layers at each source position.

        Forward and backward states are concatenated.
        """
        x = self._embed(source.tokens, rates)
        starts = source.positions == 0
        ends = jnp.roll(starts, -1, axis=1).at[:, -1].set(True)
        states = []
        for forwards, backwards in zip(self.forwards, self.backwards, strict=True):
            left = recurrent_cells.run(forwards, x, starts, reverse=False)
            right = recurrent_cells.run(backwards, x, ends, reverse=True)
            state = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=-1), left, right)
            y = dropout.drop(state[0], rates.residual, self)
            x = x + y if states else y
            states.append(state)
        return x, states

    def prefill(
        self, source: sequences.Sequences, width: int, max_length: int
    ) -> interface.FixedSizeState:
        """Returns a state whose caches are the initial states of the decoder's layers."""
        outputs, states = self.encode(source)
        last = (source.segments > 0).sum(axis=1, keepdims=True) - 1
        starts = self._starts(states, jnp.zeros_like(last), last)
        caches = jax.tree.map(lambda x: jnp.repeat(x, width, axis=1), starts)
        keys, mask = self.attention.keys(outputs), (source.segments > 0)[:, None]
        return interface.FixedSizeState(caches, interface.Source(keys, outputs, mask))

    def decode_step(
        self, tokens: Int[Array, "B W"], index: Int[Array, ""], state: interface.FixedSizeState
    ) -> tuple[Float[Array, "B W V"], interface.FixedSizeState]:
        """Returns the logits of the next token; see `interface.Decoder`."""
        x = self._embed(tokens, dropout.NONE)
        x, caches = self._step(x, state.caches, state.source, dropout.NONE)
        logits = embedding.logits(self.embedding, self.attention.after(x, state.source))
        return logits, state._replace(caches=caches)

    def _step(
        self,
        x: Float[Array, "B W D"],
        states: list[recurrent_cells.State],
        source: interface.Source,
        rates: dropout.Rates,
    ) -> tuple[Float[Array, "B W D"], list[recurrent_cells.State]]:
        """Applies all decoder layers to one position of W hypotheses."""
        context = self.attention.before(states[-1][0], source)
        x, after = jnp.concatenate([x, context], axis=-1), []
        for cell, state in zip(self.decoder, states, strict=True):
            state = cell.advance(state, cell.from_input(x))
            y = dropout.drop(state[0], rates.residual, self)
            x = x + y if after else y
            after.append(state)
        return x, after

    def _starts(
        self, states: list[recurrent_cells.State], first: Int[Array, "B T"], last: Int[Array, "B T"]
    ) -> list[recurrent_cells.State]:
        """Returns the initial states of the decoder's layers, tanh(W [forwards; backwards] + b).

        Each vector of a layer's state has a separate W and b.

        Args:
          states: the states of the encoder's layers at each source position.
          first: the first source position of the sentence.
          last: the last source position of the sentence.
        """
        return [
            tuple(
                jnp.tanh(bridge(recurrent_cells.at_ends(part, first, last)))
                for bridge, part in zip(bridges, state, strict=True)
            )
            for bridges, state in zip(self.bridges, states, strict=True)
        ]

    def _embed(self, tokens: Int[Array, "B T"], rates: dropout.Rates) -> Float[Array, "B T D"]:
        x = embedding.embed(self.embedding, tokens, self.config.dtype)
        return dropout.drop(x, rates.residual, self)
