"""Where a recurrent decoder looks at the source: nowhere, by Luong's attention, or by Bahdanau's.

To add one, write its class and its line in `ATTENTIONS`.
"""

from typing import final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from transformer_jax import config as config_lib
from transformer_jax.models import dense, products


class Attention(nn.Module):
    """Where a decoder looks at the encoder's output, each hook nothing until overridden."""

    config: config_lib.ModelConfig

    def keys(self, memory: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
        """What queries are compared with; computed once."""
        return memory

    def before(
        self,
        state: Float[Array, "B W D"],
        keys: Float[Array, "B S D"],
        memory: Float[Array, "B S D"],
        mask: Bool[Array, "B #W S"],
    ) -> Float[Array, "B W _"]:
        """Joins the first layer's input, from the state before it; of width D, here of none."""
        del keys, memory, mask
        return state[..., :0]

    def after(
        self,
        output: Float[Array, "B T D"],
        keys: Float[Array, "B S D"],
        memory: Float[Array, "B S D"],
        mask: Bool[Array, "B #T S"],
    ) -> Float[Array, "B T D"]:
        """Takes the place of the last layer's output."""
        del keys, memory, mask
        return output


@final
class NoAttention(Attention):
    """Sutskever et al. 2014: the encoder's last states are all that the decoder gets."""


@final
class DotAttention(Attention):
    """Luong et al. 2015: c = Σ softmax(h · m) m over memory m; output tanh(W [c; h]).

    The output is not fed into the next step.
    """

    def setup(self) -> None:
        self.combine = _matrix("combine", self.config.d_model, self.config.dtype)

    def after(
        self,
        output: Float[Array, "B T D"],
        keys: Float[Array, "B S D"],
        memory: Float[Array, "B S D"],
        mask: Bool[Array, "B #T S"],
    ) -> Float[Array, "B T D"]:
        scores = products.einsum("BTD,BSD->BTS", output, keys, jnp.float32)
        weights = _softmax(scores, mask)
        self.sow("intermediates", "weights", weights[:, None])
        context = products.einsum("BTS,BSD->BTD", weights.astype(memory.dtype), memory)
        return jnp.tanh(self.combine(jnp.concatenate([context, output], axis=-1)))


@final
class AdditiveAttention(Attention):
    """Bahdanau et al. 2015: c = Σ softmax(vᵀ tanh(W s + U m)) m, s the state before the step.

    c joins the first layer's input; the output sees it through the layers only.
    """

    def setup(self) -> None:
        width, dtype = self.config.d_model, self.config.dtype
        self.from_state = _matrix("from_state", width, dtype)
        self.from_memory = dense.Dense(width, name="from_memory", dtype=dtype)
        self.score = _matrix("score", 1, dtype)

    def keys(self, memory: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
        return self.from_memory(memory)

    def before(
        self,
        state: Float[Array, "B W D"],
        keys: Float[Array, "B S D"],
        memory: Float[Array, "B S D"],
        mask: Bool[Array, "B #W S"],
    ) -> Float[Array, "B W _"]:
        sums = jnp.tanh(self.from_state(state)[:, :, None] + keys[:, None])
        weights = _softmax(self.score(sums)[..., 0], mask)
        self.sow("intermediates", "weights", weights)  # B 1 S here; B 1 T S out of the loop
        return products.einsum("BWS,BSD->BWD", weights.astype(memory.dtype), memory)


ATTENTIONS: dict[str, type[Attention]] = {
    "none": NoAttention,
    "dot": DotAttention,
    "additive": AdditiveAttention,
}


def _softmax(scores: Float[Array, "B T S"], mask: Bool[Array, "B #T S"]) -> Float[Array, "B T S"]:
    scores = scores.astype(jnp.float32)
    return jax.nn.softmax(jnp.where(mask, scores, jnp.finfo(jnp.float32).min))


def _matrix(name: str, features: int, dtype: jnp.dtype) -> dense.Dense:
    return dense.Dense(features, use_bias=False, name=name, dtype=dtype)
