"""The parts of an encoder or decoder layer besides attention, and the layers themselves."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import flax.linen as nn
from flax.linen import spmd
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import attention, dropout, products
from transformer_jax.models import positions as positions_lib

# The fields of `ModelConfig` that every stack of these layers reads, with its embedding.
READ = frozenset(
    "architecture num_layers d_model d_ff num_heads num_kv_heads d_k d_v dropout_rate "
    "attention_dropout_rate feed_forward_dropout_rate position max_positions norm norm_placement "
    "feed_forward attention_pattern window global_every compute_dtype attention_kernel "
    "rematerialise".split()
)
NORMS: dict[str, Callable[..., nn.Module]] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}


def make_norm(config: config_lib.ModelConfig, name: str | None = None) -> nn.Module:
    """A normalisation of the kind that the config names, with the paper's code's epsilon."""
    kind = NORMS[config.norm]
    return kind(epsilon=1e-6, dtype=config.dtype, use_fast_variance=False, name=name)


def shard_batch(x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """Shards activations along the batch alone.

    Left to itself, the compiler shards D as the weights' is, and then has devices exchange
    activations of the whole batch where they could gather weights (`distributed/sharding.py`).
    """
    return spmd.with_logical_constraint(x, ("rows", None, None))


@final
class Identity(nn.Module):
    """Where there is no final norm."""

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return x


class Residual(nn.Module):
    """Where normalisation stands around a sub-layer f: y = after(x, f(before(x)), rate)."""

    config: config_lib.ModelConfig

    def setup(self) -> None:
        self.norm = make_norm(self.config)

    def before(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """What the sub-layer sees."""
        raise NotImplementedError

    def after(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], rate: dropout.Rate
    ) -> Float[Array, "B T D"]:
        """Adds the sub-layer's output y, with dropout, to its input x."""
        raise NotImplementedError

    @staticmethod
    def make_final_norm(config: config_lib.ModelConfig, name: str) -> nn.Module:
        """What stands after the last layer of a stack."""
        raise NotImplementedError


@final
class PostNorm(Residual):
    """The paper's: norm(x + dropout(f(x)))."""

    def before(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return x

    def after(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], rate: dropout.Rate
    ) -> Float[Array, "B T D"]:
        return shard_batch(self.norm(x + dropout.drop(shard_batch(y), rate, self)))

    @staticmethod
    def make_final_norm(config: config_lib.ModelConfig, name: str) -> nn.Module:
        del config
        return Identity(name=name)


@final
class PreNorm(Residual):
    """x + dropout(f(norm(x))), the stack ending in a norm of its own (Xiong et al. 2020)."""

    def before(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return self.norm(x)

    def after(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], rate: dropout.Rate
    ) -> Float[Array, "B T D"]:
        return shard_batch(x + dropout.drop(shard_batch(y), rate, self))

    @staticmethod
    def make_final_norm(config: config_lib.ModelConfig, name: str) -> nn.Module:
        return make_norm(config, name)


NORM_PLACEMENTS: dict[str, type[Residual]] = {"post": PostNorm, "pre": PreNorm}


class FeedForward(nn.Module):
    """Two projections with biases, and what is between them: dropout(inner(x)) W2 + b2."""

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], rate: dropout.Rate = None
    ) -> Float[Array, "B T D"]:
        inner = dropout.drop(self.inner(x), rate, self)
        return self.projection(self.config.d_model, "outer", "mlp", "embed")(inner)

    def inner(self, x: Float[Array, "B T D"]) -> Float[Array, "B T F"]:
        """The d_ff features of each position."""
        raise NotImplementedError

    def projection(self, features: int, name: str, *axes: str) -> products.Dense:
        """X W + b, Glorot-uniform."""
        return products.Dense(
            features,
            name=name,
            dtype=self.config.dtype,
            kernel_init=nn.with_logical_partitioning(nn.initializers.glorot_uniform(), axes),
            bias_init=nn.with_logical_partitioning(nn.initializers.zeros_init(), axes[1:]),
        )


@final
class Relu(FeedForward):
    """Equation 2 of the paper: FFN(x) = max(0, x W1 + b1) W2 + b2."""

    def inner(self, x: Float[Array, "B T D"]) -> Float[Array, "B T F"]:
        return nn.relu(self.projection(self.config.d_ff, "inner", "embed", "mlp")(x))


@final
class Gelu(FeedForward):
    """GELU(z) = z Φ(z) in place of max(0, z), Φ the normal distribution (Hendrycks & Gimpel)."""

    def inner(self, x: Float[Array, "B T D"]) -> Float[Array, "B T F"]:
        z = self.projection(self.config.d_ff, "inner", "embed", "mlp")(x)
        return nn.gelu(z, approximate=False)


@final
class SwiGlu(FeedForward):
    """Shazeer 2020, with biases: (swish(x W + b) ⊙ (x V + c)) W2 + b2, swish(z) = z sigmoid(z).

    It has three matrices: two thirds of another kind's d_ff give it as many parameters.
    """

    def inner(self, x: Float[Array, "B T D"]) -> Float[Array, "B T F"]:
        gate = self.projection(self.config.d_ff, "gate", "embed", "mlp")(x)
        return nn.swish(gate) * self.projection(self.config.d_ff, "inner", "embed", "mlp")(x)


FEED_FORWARDS: dict[str, type[FeedForward]] = {"relu": Relu, "gelu": Gelu, "swiglu": SwiGlu}


class Layer(nn.Module):
    """What layers of both stacks share."""

    config: config_lib.ModelConfig
    position: positions_lib.Position

    def _residual(self) -> Residual:
        return NORM_PLACEMENTS[self.config.norm_placement](self.config)

    def _feed_forward(
        self, x: Float[Array, "B T D"], rates: dropout.Rates
    ) -> Float[Array, "B T D"]:
        y = self.feed_forward(self.feed_forward_residual.before(x), rates.feed_forward)
        return self.feed_forward_residual.after(x, y, rates.residual)


@final
class EncoderLayer(Layer):
    """Self-attention, then feed-forward (section 3.1)."""

    def setup(self) -> None:
        self.attention = attention.MultiHeadAttention(self.config, self.position)
        self.attention_residual = self._residual()
        self.feed_forward = FEED_FORWARDS[self.config.feed_forward](self.config)
        self.feed_forward_residual = self._residual()

    def __call__(
        self,
        x: Float[Array, "B S D"],
        mask: Bool[Array, "B 1 S S"],
        positions: Int[Array, "B S"],
        rates: dropout.Rates,
    ) -> Float[Array, "B S D"]:
        """One layer over a whole row."""
        y = self.attention_residual.before(x)
        keys_values = self.attention.keys_values(y, positions)
        y = self.attention(y, keys_values, mask, positions, positions, rates.attention)
        return self._feed_forward(self.attention_residual.after(x, y, rates.residual), rates)


class Attended(NamedTuple):
    """What a decoder layer reads besides its own sequence."""

    keys_values: Any  # attention.KeysValues; in decoding, attention.Cache
    mask: Bool[Array, "B 1 #T S"]  # true where a position may look
    positions: Int[Array, "#B S"]


@final
class DecoderLayer(Layer):
    """Masked self-attention, attention to the encoder's output, feed-forward (section 3.1).

    Without a position kind for it, or where no source is given, there is no attention to a source.
    """

    cross_position: positions_lib.Position | None

    def setup(self) -> None:
        self.self_attention = attention.MultiHeadAttention(self.config, self.position)
        self.self_attention_residual = self._residual()
        if self.cross_position is not None:
            self.cross_attention = attention.MultiHeadAttention(self.config, self.cross_position)
            self.cross_attention_residual = self._residual()
        self.feed_forward = FEED_FORWARDS[self.config.feed_forward](self.config)
        self.feed_forward_residual = self._residual()

    def __call__(
        self,
        x: Float[Array, "B T D"],
        mask: Bool[Array, "B 1 T T"],
        positions: Int[Array, "B T"],
        rates: dropout.Rates,
        source: Attended | None = None,
    ) -> Float[Array, "B T D"]:
        """One layer over a whole row (teacher forcing)."""
        y = self.self_attention_residual.before(x)
        keys_values = self.self_attention.keys_values(y, positions)
        y = self.self_attention(y, keys_values, mask, positions, positions, rates.attention)
        x = self.self_attention_residual.after(x, y, rates.residual)
        if source is not None:
            y = self.cross_attention_residual.before(x)
            y = self.cross_attention(
                y, source.keys_values, source.mask, positions, source.positions, rates.attention
            )
            x = self.cross_attention_residual.after(x, y, rates.residual)
        return self._feed_forward(x, rates)

    def keys_values(
        self, x: Float[Array, "B T D"], positions: Int[Array, "B T"]
    ) -> attention.KeysValues:
        """What self-attention reads of a whole row."""
        return self.self_attention.keys_values(self.self_attention_residual.before(x), positions)

    def step(
        self,
        x: Float[Array, "B W D"],
        positions: Int[Array, "#B W"],
        slots: Int[Array, "#B slots"],
        cache: attention.Cache,
        first: Int[Array, ""],
        mask: Bool[Array, "B 1 W slots"],
        source: Attended | None = None,
    ) -> tuple[Float[Array, "B W D"], attention.Cache]:
        """One layer for one token of each of W hypotheses per sentence.

        They stand as queries side by side, so that they share the source's keys and values; the
        mask keeps them apart in the cache.

        Args:
          x: the tokens' features.
          positions: the tokens'.
          slots: the position of each slot of the cache; a position has W slots.
          cache: keys and values so far.
          first: the slot of the first hypothesis's token; the others' follow.
          mask: true where a hypothesis may look, its own slot included.
          source: keys and values, and the mask that is true at the source's real positions.

        Returns:
          The layer's output, and the cache with this position's keys and values written into it.
        """
        y = self.self_attention_residual.before(x)
        cache = cache.write(self.self_attention.keys_values(y, positions), first)
        y = self.self_attention.step(y, cache, mask, positions, slots)
        x = self.self_attention_residual.after(x, y, None)
        if source is not None:
            y = self.cross_attention_residual.before(x)
            y = self.cross_attention.step(
                y, source.keys_values, source.mask, positions, source.positions
            )
            x = self.cross_attention_residual.after(x, y, None)
        return self._feed_forward(x, dropout.NONE), cache
