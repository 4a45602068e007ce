"""Where a recurrent decoder looks at the source: nowhere, by Luong's attention, or by Bahdanau's.

To add one, write its class and its line in `ATTENTIONS`.
"""

from typing import final

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer_jax import config as config_lib
from transformer_jax.models import interface, products


class Attention(nn.Module):
    """Where a decoder looks at the encoder's output, each hook nothing until overridden."""

    config: config_lib.ModelConfig

    def keys(self, encoded: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
        """What queries are compared with; computed once."""
        return encoded

    def before(
        self, state: Float[Array, "B W D"], source: interface.Source
    ) -> Float[Array, "B W _"]:
        """What is joined to the first layer's input, from the state before it: D wide, or 0."""
        return state[..., :0]

    def after(
        self, output: Float[Array, "B T D"], source: interface.Source
    ) -> Float[Array, "B T D"]:
        """Takes the place of the last layer's output."""
        return output

    def _matrix(self, name: str, features: int) -> products.Dense:
        return products.Dense(features, use_bias=False, name=name, dtype=self.config.dtype)


@final
class DotAttention(Attention):
    """Luong et al. 2015: c = Σ softmax(h · m) m over the encoder's outputs m; tanh(W [c; h]).

    The output is not fed into the next step.
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
    """Bahdanau et al. 2015: c = Σ softmax(vᵀ tanh(W s + U m)) m, s the state before the step.

    c joins the first layer's input; the output sees it through the layers only.
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
        self.sow("intermediates", "weights", weights)  # B 1 S here; B 1 T S out of the loop
        return products.einsum("BWS,BSD->BWD", weights.astype(source.values.dtype), source.values)


ATTENTIONS: dict[str, type[Attention]] = {
    "none": Attention,  # Sutskever et al. 2014: the encoder's last states are all there is
    "dot": DotAttention,
    "additive": AdditiveAttention,
}
