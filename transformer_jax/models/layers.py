"""The parts of an encoder or decoder layer besides attention, and the layers themselves."""

from collections.abc import Callable
from typing import final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import attention
from transformer_jax.models import positions as positions_lib

Rate = Float[jax.Array, ""] | None  # a dropout rate; None: no dropout, as in evaluation


def dropout(x: Float[jax.Array, "*N"], rate: Rate, module: nn.Module) -> Float[jax.Array, "*N"]:
    """Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate).

    The rate is an array, so that one compiled program serves every rate. Each element takes 16
    random bits, half of a threefry word: the rate is rounded down to a multiple of 2⁻¹⁶, and the
    scale is that of the rounded rate. At rate 0 the result is x itself.

    Args:
      x: any array.
      rate: at least 0 and below 1; None draws nothing and returns x.
      module: the Linen module whose "dropout" key is used.
    """
    if rate is None:
        return x
    threshold = jnp.floor(rate * 2**16)
    words = jax.random.bits(module.make_rng("dropout"), (*x.shape[:-1], -(-x.shape[-1] // 2)))
    halves = jax.lax.bitcast_convert_type(words, jnp.uint16)
    bits = halves.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]
    scale = 2**16 / (2**16 - threshold)
    return jnp.where(bits >= threshold.astype(jnp.uint16), x * scale, 0).astype(x.dtype)


NORMS: dict[str, Callable[..., nn.Module]] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}


def make_norm(config: config_lib.ModelConfig) -> nn.Module:
    """A normalisation of the kind that the config names, with the paper's code's epsilon."""
    return NORMS[config.norm](epsilon=1e-6, dtype=config.dtype, use_fast_variance=False)


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
        self, x: Float[jax.Array, "B T D"], y: Float[jax.Array, "B T D"], rate: Rate
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
        self, x: Float[jax.Array, "B T D"], y: Float[jax.Array, "B T D"], rate: Rate
    ) -> Float[jax.Array, "B T D"]:
        return self.norm(x + dropout(y, rate, self))

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
        self, x: Float[jax.Array, "B T D"], y: Float[jax.Array, "B T D"], rate: Rate
    ) -> Float[jax.Array, "B T D"]:
        return x + dropout(y, rate, self)

    @staticmethod
    def make_end(config: config_lib.ModelConfig) -> nn.Module:
        return make_norm(config)


NORM_PLACEMENTS: dict[str, type[Residual]] = {"post": PostNorm, "pre": PreNorm}


@final
class ReluFeedForward(nn.Module):
    """Equation 2 of the paper: FFN(x) = max(0, x W1 + b1) W2 + b2."""

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(self, x: Float[jax.Array, "B T D"]) -> Float[jax.Array, "B T D"]:
        inner = self._projection(self.config.d_ff, "inner", "embed", "mlp")(x)
        return self._projection(self.config.d_model, "outer", "mlp", "embed")(nn.relu(inner))

    def _projection(self, features: int, name: str, *axes: str) -> nn.Dense:
        return nn.Dense(
            features,
            name=name,
            dtype=self.config.dtype,
            kernel_init=nn.with_logical_partitioning(nn.initializers.glorot_uniform(), axes),
            bias_init=nn.with_logical_partitioning(nn.initializers.zeros_init(), axes[1:]),
        )


FEED_FORWARDS: dict[str, Callable[[config_lib.ModelConfig], nn.Module]] = {"relu": ReluFeedForward}


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
        rate: Rate,
    ) -> Float[jax.Array, "B S D"]:
        """One layer over a whole row."""
        y = self.attention_residual.before(x)
        y = self.attention(y, self.attention.keys_values(y, positions), mask, positions, positions)
        x = self.attention_residual.after(x, y, rate)
        y = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, y, rate)


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
        rate: Rate,
    ) -> Float[jax.Array, "B T D"]:
        """One layer over a whole row (teacher forcing)."""
        y = self.self_attention_residual.before(x)
        y = self.self_attention(
            y, self.self_attention.keys_values(y, positions), mask, positions, positions
        )
        x = self.self_attention_residual.after(x, y, rate)
        y = self.cross_attention_residual.before(x)
        y = self.cross_attention(y, memory, memory_mask, positions, memory_positions)
        x = self.cross_attention_residual.after(x, y, rate)
        return self._feed_forward(x, rate)

    def step(
        self,
        x: Float[jax.Array, "B W D"],
        index: Int[jax.Array, ""],
        cache: attention.KeysValues,
        mask: Bool[jax.Array, "1 1 1 L"],
        memory: attention.KeysValues,
        memory_mask: Bool[jax.Array, "B 1 1 S"],
    ) -> tuple[Float[jax.Array, "B W D"], attention.KeysValues]:
        """One layer for the tokens at position `index` of W hypotheses per sentence.

        The hypotheses of a sentence are separate in self-attention, each with its own cache, and
        stand as queries side by side in cross-attention, so that they share its keys and values.

        Returns:
          The layer's output, and the cache with this position's keys and values written into it.
        """
        batch, width, d_model = x.shape
        position = jnp.broadcast_to(index, (1, 1))
        y = self.self_attention_residual.before(x).reshape(batch * width, 1, d_model)
        new = self.self_attention.keys_values(y, position)
        cache = attention.KeysValues(
            *(
                jax.lax.dynamic_update_slice_in_dim(old, part, index, axis=1)
                for old, part in zip(cache, new, strict=True)
            )
        )
        y = self.self_attention(y, cache, mask, position, jnp.arange(mask.shape[-1])[None])
        x = self.self_attention_residual.after(x, y.reshape(batch, width, d_model), None)
        y = self.cross_attention_residual.before(x)
        query_positions = jnp.broadcast_to(index, (1, width))
        memory_positions = jnp.arange(memory_mask.shape[-1])[None]
        y = self.cross_attention(y, memory, memory_mask, query_positions, memory_positions)
        x = self.cross_attention_residual.after(x, y, None)
        return self._feed_forward(x, None), cache

    def _feed_forward(self, x: Float[jax.Array, "B T D"], rate: Rate) -> Float[jax.Array, "B T D"]:
        y = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, y, rate)
