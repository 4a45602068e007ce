"""The parts of an encoder or decoder layer besides attention, and the layers themselves."""

from collections.abc import Callable
from typing import final

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen import spmd
from jaxtyping import Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import attention, dense, dropout
from transformer_jax.models import positions as positions_lib

NORMS: dict[str, Callable[..., nn.Module]] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}


def make_norm(config: config_lib.ModelConfig) -> nn.Module:
    """A normalisation of the kind that the config names, with the paper's code's epsilon."""
    return NORMS[config.norm](epsilon=1e-6, dtype=config.dtype, use_fast_variance=False)


def by_rows(x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T D"]:
    """Keeps activations shared out by rows alone.

    Left to itself, the compiler shares out D as the weights' is, and then has devices exchange
    activations of the whole batch where they could gather weights (`training/sharding.py`).
    """
    return spmd.with_logical_constraint(x, ("rows", None, None))


@final
class Nothing(nn.Module):
    """The identity."""

    def __call__(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T D"]:
        return x


class Residual(nn.Module):
    """Where normalisation stands around a sub-layer f: y = after(x, f(before(x)), rate)."""

    config: config_lib.ModelConfig

    def setup(self) -> None:
        self.norm = make_norm(self.config)

    def before(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T D"]:
        """What the sub-layer sees."""
        raise NotImplementedError

    def after(
        self, x: Float[jax.Array, "B T D"], y: Float[jax.Array, "B T D"], rate: dropout.Rate
    ) -> Float[jax.Array, "B T D"]:
        """Adds the sub-layer's output y, with dropout, to its input x."""
        raise NotImplementedError

    @staticmethod
    def make_end(config: config_lib.ModelConfig) -> nn.Module:
        """What stands after the last layer of a stack."""
        raise NotImplementedError


@final
class PostNorm(Residual):
    """The paper's: norm(x + dropout(f(x)))."""

    def before(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T D"]:
        return x

    def after(
        self, x: Float[jax.Array, "B T D"], y: Float[jax.Array, "B T D"], rate: dropout.Rate
    ) -> Float[jax.Array, "B T D"]:
        return by_rows(self.norm(x + dropout.drop(by_rows(y), rate, self)))

    @staticmethod
    def make_end(config: config_lib.ModelConfig) -> nn.Module:
        del config
        return Nothing()


@final
class PreNorm(Residual):
    """x + dropout(f(norm(x))), the stack ending in a norm of its own (Xiong et al. 2020)."""

    def before(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T D"]:
        return self.norm(x)

    def after(
        self, x: Float[jax.Array, "B T D"], y: Float[jax.Array, "B T D"], rate: dropout.Rate
    ) -> Float[jax.Array, "B T D"]:
        return by_rows(x + dropout.drop(by_rows(y), rate, self))

    @staticmethod
    def make_end(config: config_lib.ModelConfig) -> nn.Module:
        return make_norm(config)


NORM_PLACEMENTS: dict[str, type[Residual]] = {"post": PostNorm, "pre": PreNorm}


class FeedForward(nn.Module):
    """Two projections with biases, and what is between them: dropout(inner(x)) W2 + b2."""

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[jax.Array, "B T D"], rate: dropout.Rate = None
    ) -> Float[jax.Array, "B T D"]:
        inner = dropout.drop(self.inner(x), rate, self)
        return self.projection(self.config.d_model, "outer", "mlp", "embed")(inner)

    def inner(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T F"]:
        """The d_ff features of each position."""
        raise NotImplementedError

    def projection(self, features: int, name: str, *axes: str) -> dense.Dense:
        """X W + b, Glorot-uniform."""
        return dense.Dense(
            features,
            name=name,
            dtype=self.config.dtype,
            kernel_init=nn.with_logical_partitioning(nn.initializers.glorot_uniform(), axes),
            bias_init=nn.with_logical_partitioning(nn.initializers.zeros_init(), axes[1:]),
        )


@final
class Relu(FeedForward):
    """Equation 2 of the paper: FFN(x) = max(0, x W1 + b1) W2 + b2."""

    def inner(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T F"]:
        return nn.relu(self.projection(self.config.d_ff, "inner", "embed", "mlp")(x))


@final
class Gelu(FeedForward):
    """GELU(z) = z Φ(z) in place of max(0, z), Φ the normal distribution (Hendrycks & Gimpel)."""

    def inner(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T F"]:
        z = self.projection(self.config.d_ff, "inner", "embed", "mlp")(x)
        return nn.gelu(z, approximate=False)


@final
class SwiGlu(FeedForward):
    """Shazeer 2020, with biases: (swish(x W + b) ⊙ (x V + c)) W2 + b2, swish(z) = z sigmoid(z).

    It has three matrices: two thirds of another kind's d_ff give it as many parameters.
    """

    def inner(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T F"]:
        gate = self.projection(self.config.d_ff, "gate", "embed", "mlp")(x)
        return nn.swish(gate) * self.projection(self.config.d_ff, "inner", "embed", "mlp")(x)


FEED_FORWARDS: dict[str, type[FeedForward]] = {"relu": Relu, "gelu": Gelu, "swiglu": SwiGlu}


@final
class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (section 3.1)."""

    config: config_lib.ModelConfig
    position: positions_lib.Position

    def setup(self) -> None:
        config = self.config
        residual = NORM_PLACEMENTS[config.norm_placement]
        self.attention = attention.MultiHeadAttention(config, self.position)
        self.attention_residual = residual(config)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config)
        self.feed_forward_residual = residual(config)

    def __call__(
        self,
        x: Float[jax.Array, "B S D"],
        mask: Bool[jax.Array, "B 1 S S"],
        positions: Int[jax.Array, "B S"],
        rates: dropout.Rates,
    ) -> Float[jax.Array, "B S D"]:
        """One layer over a whole row."""
        y = self.attention_residual.before(x)
        keys_values = self.attention.keys_values(y, positions)
        y = self.attention(y, keys_values, mask, positions, positions, rates.attention)
        x = self.attention_residual.after(x, y, rates.residual)
        y = self.feed_forward(self.feed_forward_residual.before(x), rates.feed_forward)
        return self.feed_forward_residual.after(x, y, rates.residual)


@final
class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward (section 3.1)."""

    config: config_lib.ModelConfig
    position: positions_lib.Position
    cross_position: positions_lib.Position

    def setup(self) -> None:
        config = self.config
        residual = NORM_PLACEMENTS[config.norm_placement]
        self.self_attention = attention.MultiHeadAttention(config, self.position)
        self.self_attention_residual = residual(config)
        self.cross_attention = attention.MultiHeadAttention(config, self.cross_position)
        self.cross_attention_residual = residual(config)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config)
        self.feed_forward_residual = residual(config)

    def __call__(
        self,
        x: Float[jax.Array, "B T D"],
        mask: Bool[jax.Array, "B 1 T T"],
        positions: Int[jax.Array, "B T"],
        memory: attention.KeysValues,
        memory_mask: Bool[jax.Array, "B 1 T S"],
        memory_positions: Int[jax.Array, "B S"],
        rates: dropout.Rates,
    ) -> Float[jax.Array, "B T D"]:
        """One layer over a whole row (teacher forcing)."""
        y = self.self_attention_residual.before(x)
        keys_values = self.self_attention.keys_values(y, positions)
        y = self.self_attention(y, keys_values, mask, positions, positions, rates.attention)
        x = self.self_attention_residual.after(x, y, rates.residual)
        y = self.cross_attention_residual.before(x)
        y = self.cross_attention(
            y, memory, memory_mask, positions, memory_positions, rates.attention
        )
        x = self.cross_attention_residual.after(x, y, rates.residual)
        return self._feed_forward(x, rates)

    def step(
        self,
        x: Float[jax.Array, "B W D"],
        positions: Int[jax.Array, "1 W"],
        places: Int[jax.Array, "1 slots"],
        cache: attention.Cache,
        mask: Bool[jax.Array, "B 1 W slots"],
        memory: attention.Cache,
        memory_mask: Bool[jax.Array, "B 1 1 S"],
    ) -> tuple[Float[jax.Array, "B W D"], attention.Cache]:
        """One layer for one token of each of W hypotheses per sentence.

        They stand as queries side by side, so that they share the source's keys and values; the
        mask keeps them apart in the cache.

        Args:
          x: the tokens.
          positions: theirs, all the same.
          places: positions of what is in the cache, W slots for each.
          cache: keys and values so far.
          mask: true where a hypothesis may look, its own slot included.
          memory: the source's keys and values.
          memory_mask: true at the source's real positions.

        Returns:
          The layer's output, and the cache with this position's keys and values written into it.
        """
        y = self.self_attention_residual.before(x)
        new = self.self_attention.keys_values(y, positions)
        cache = cache.write(new, positions[0, 0] * x.shape[1])
        y = self.self_attention.step(y, cache, mask, positions, places)
        x = self.self_attention_residual.after(x, y, None)
        y = self.cross_attention_residual.before(x)
        memory_positions = jnp.arange(memory_mask.shape[-1])[None]
        y = self.cross_attention.step(y, memory, memory_mask, positions, memory_positions)
        x = self.cross_attention_residual.after(x, y, None)
        return self._feed_forward(x, dropout.NONE), cache

    def _feed_forward(
        self, x: Float[jax.Array, "B T D"], rates: dropout.Rates
    ) -> Float[jax.Array, "B T D"]:
        y = self.feed_forward(self.feed_forward_residual.before(x), rates.feed_forward)
        return self.feed_forward_residual.after(x, y, rates.residual)
