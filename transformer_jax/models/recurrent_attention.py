"""Attention of a recurrent decoder to the source: none, Luong's or Bahdanau's.

To add a kind, write its class and its line in `ATTENTIONS`.
"""

from typing import final

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer_jax import config as config_lib
from transformer_jax.models import interface, products


class Attention(nn.Module):
    """Base class of a recurrent decoder's attention; by itself it computes no attention."""

    config: config_lib.ModelConfig

    def keys(self, encoded: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
        """Returns the keys, given the encoder's outputs. It is called once for each source."""
        return encoded

    def before(
        self, state: Float[Array, "B W D"], source: interface.Source
    ) -> Float[Array, "B W _"]:
        """Returns features to append to the input of the decoder's first layer.

        There are D features, or none in this base class.

        Args:
          state: the output of the decoder's last layer at the previous position.
          source: keys and values of the source.
        """
        return state[..., :0]

    def after(
        self, output: Float[Array, "B T D"], source: interface.Source
    ) -> Float[Array, "B T D"]:
        """Returns the decoder's output after attention.

        This base class returns `output` unchanged.

        Args:
          output: the output of the decoder's last layer.
          source: keys and values of the source.
        """
        return output

    def _matrix(self, name: str, features: int) -> products.Dense:
        return products.Dense(features, use_bias=False, name=name, dtype=self.config.dtype)


@final
class DotAttention(Attention):
    """Dot-product attention of Luong et al. 2015.

    With the decoder's output h and the encoder's outputs m, c = Σ softmax(h · m) m, and the result
    is tanh(W [c; h]). The next step does not read this result.
    """

    def setup(self) -> None:
        self.combine = self._matrix("combine", self.config.d_model)

    def after(
        self, output: Float[Array, "B T D"], source: interface.Source
    ) -> Float[Array, "B T D"]:
        weights = source.weights(products.einsum("BTD,BSD->BTS", output, source.keys, jnp.float32))
        self.sow("intermediates", "weights", weights[:, None])
        weights = weights.astype(source.values.dtype)
        context = products.einsum("BTS,BSD->BTD", weights, source.values)
        return jnp.tanh(self.combine(jnp.concatenate([context, output], axis=-1)))


@final
class AdditiveAttention(Attention):
    """Additive attention of Bahdanau et al. 2015.

    With the decoder's state s before the step and the encoder's outputs m,
    c = Σ softmax(vᵀ tanh(W s + U m)) m. c is appended to the input of the decoder's first layer. It
    is not an input of the logits.
    """

    def setup(self) -> None:
        width = self.config.d_model
        self.from_state = self._matrix("from_state", width)
        self.from_encoded = products.Dense(width, name="from_memory", dtype=self.config.dtype)
        self.score = self._matrix("score", 1)

    def keys(self, encoded: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
        return self.from_encoded(encoded)

    def before(
        self, state: Float[Array, "B W D"], source: interface.Source
    ) -> Float[Array, "B W _"]:
        sums = jnp.tanh(self.from_state(state)[:, :, None] + source.keys[:, None])
        weights = source.weights(self.score(sums)[..., 0])
        self.sow("intermediates", "weights", weights)  # B 1 S; the scan over T makes it B 1 T S
        return products.einsum("BWS,BSD->BWD", weights.astype(source.values.dtype), source.values)


ATTENTIONS: dict[str, type[Attention]] = {
    "none": Attention,  # Sutskever et al. 2014: the decoder reads the encoder's last states only
    "dot": DotAttention,
    "additive": AdditiveAttention,
}
