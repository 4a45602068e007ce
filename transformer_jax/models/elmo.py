"""ELMo (Peters et al. 2018): a language model that reads forwards and one that reads backwards.

Both models predict every token of a text. The forward model predicts a token from the tokens before
it, the backward model from the tokens after it. The two models share only the embedding, so that no
token is visible at the position that predicts it, and no token needs a mask. Labels of a whole
text, such as whether its two sentences match, are predicted from a weighted mean of all layers.
"""

from typing import ClassVar, final

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer_jax import sequences
from transformer_jax.models import dropout, embedding, interface, masks, products, recurrent_cells


@final
class Elmo(interface.Architecture):
    """ELMo (Peters et al. 2018): a forward and a backward LSTM language model.

    From the second layer on, the LSTM layers have residual connections.
    """

    needs_masks: ClassVar[bool] = False

    check = staticmethod(recurrent_cells.require_halves)

    def setup(self) -> None:
        config, half = self.config, self.config.d_model // 2
        self.embedding = embedding.make(self, config, self.vocab_size)
        layers = range(config.num_layers)
        self.left = [recurrent_cells.Lstm(half, config.dtype) for _ in layers]
        self.right = [recurrent_cells.Lstm(half, config.dtype) for _ in layers]
        self.from_left = products.Dense(config.d_model, dtype=config.dtype)
        self.from_right = products.Dense(config.d_model, dtype=config.dtype)
        self.mixture = self.param("mixture", nn.initializers.zeros_init(), (1 + len(layers),))
        self.scale = self.param("scale", nn.initializers.ones_init(), ())
        self.text = products.Dense(config.d_model, dtype=config.dtype)

    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """Returns the output of the forward language model at each target position."""
        return self._directions(target, rates)[0]

    def predict(
        self, batch: sequences.Batch, rates: dropout.Rates = dropout.NONE
    ) -> interface.Predictions:
        """Returns the outputs of the forward model, followed by those of the backward model.

        They are concatenated along the axis of positions, which has length 2 T. Labels and segments
        are repeated accordingly.
        """
        outputs = jnp.concatenate(self._directions(batch.target, rates), axis=1)
        labels, segments = (
            jnp.concatenate([x, x], axis=1) for x in (batch.labels, batch.target.segments)
        )
        return interface.Predictions(outputs, labels, segments)

    def _directions(
        self, target: sequences.Sequences, rates: dropout.Rates
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B T D"]]:
        """Returns the outputs of the forward model and of the backward model.

        At position 0 of a text, both outputs are the representation of the whole text.
        """
        starts = target.positions == 0
        ends = jnp.roll(starts, -1, axis=1).at[:, -1].set(True)
        x = embedding.embed(self.embedding, target.tokens, self.config.dtype)
        x = dropout.drop(x, rates.residual, self)
        layers, left, right = [x], x, x
        for index, (left_cell, right_cell) in enumerate(zip(self.left, self.right, strict=True)):
            forward = recurrent_cells.run(left_cell, left, starts, reverse=False)[0]
            backward = recurrent_cells.run(right_cell, right, ends, reverse=True)[0]
            forward = dropout.drop(forward, rates.residual, self)
            backward = dropout.drop(backward, rates.residual, self)
            if index == 0:
                left, right = forward, backward
            else:  # residual connections
                left, right = left + forward, right + backward
            layers.append(jnp.concatenate([left, right], axis=-1))
        text = self._text(layers, target)
        before = jnp.where(starts[..., None], 0, jnp.roll(left, 1, axis=1))
        after = jnp.where(ends[..., None], 0, jnp.roll(right, -1, axis=1))
        return (
            jnp.where(starts[..., None], text, self.from_left(before)),
            jnp.where(starts[..., None], text, self.from_right(after)),
        )

    def _text(
        self, layers: list[Float[Array, "B T D"]], target: sequences.Sequences
    ) -> Float[Array, "B T D"]:
        """Returns the representation of the whole text, tanh(W m + b).

        m is `scale` times the weighted mean over all layers of the forward state at the text's last
        position and the backward state at its first position, side by side.
        """
        weights = self.scale * nn.softmax(self.mixture)
        mixed = jnp.tensordot(weights, jnp.stack(layers), axes=1)
        same = masks.same_segment(target.segments, target.segments)[:, 0]
        x = recurrent_cells.at_ends(mixed, *masks.ends(same)).astype(self.config.dtype)
        return jnp.tanh(self.text(x))
