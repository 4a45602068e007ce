"""Encoder and decoder layers, and their parts other than attention."""

from collections.abc import Callable
from typing import Any, ClassVar, final

import flax.linen as nn
from flax.linen import spmd
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import attention, dropout, products
from transformer_jax.models import positions as positions_lib

# The fields of `ModelConfig` that a stack of these layers uses, besides `interface.COMMON`.
USED = frozenset(
    {
        "d_ff",
        "num_heads",
        "num_kv_heads",
        "d_k",
        "d_v",
        "attention_dropout_rate",
        "feed_forward_dropout_rate",
        "position",
        "max_positions",
        "norm",
        "norm_placement",
        "feed_forward",
        "attention_pattern",
        "window",
        "global_every",
        "attention_kernel",
        "rematerialise",
    }
)
NORMS: dict[str, Callable[..., nn.Module]] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}


def make_norm(config: config_lib.ModelConfig, name: str | None = None) -> nn.Module:
    """Returns a normalisation module of the kind `config.norm`.

    Its epsilon is that of the paper's code, tensor2tensor.
    """
    kind = NORMS[config.norm]
    return kind(epsilon=1e-6, dtype=config.dtype, use_fast_variance=False, name=name)


def shard_batch(x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """Shards activations along the batch alone.

    Without this constraint the compiler shards D as in the weights, and devices then exchange
    activations of the whole batch instead of gathering weights (`distributed/sharding.py`).
    """
    return spmd.with_logical_constraint(x, ("rows", None, None))


class Residual(nn.Module):
    """Residual connection and normalisation of a sub-layer f: after(x + dropout(f(before(x)))).

    `before` and `after` are hooks that subclasses override; in this base class they return x.
    """

    config: config_lib.ModelConfig

    ends_with_norm: ClassVar[bool]  # whether a norm follows the last layer of a stack

    def setup(self) -> None:
        self.norm = make_norm(self.config)

    def before(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Returns the sub-layer's input, given the input x of the residual connection."""
        return x

    def after(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Returns the connection's result, given x, the sum of the sub-layer's input and output."""
        return x

    def add(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], rate: dropout.Rate
    ) -> Float[Array, "B T D"]:
        """Returns after(x + dropout(y)), where x is the input and y is the sub-layer's output."""
        return shard_batch(self.after(x + dropout.drop(shard_batch(y), rate, self)))


@final
class PostNorm(Residual):
    """The paper's post-norm residual connection: norm(x + dropout(f(x)))."""

    ends_with_norm: ClassVar[bool] = False

    def after(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return self.norm(x)


@final
class PreNorm(Residual):
    """The pre-norm residual connection (Xiong et al. 2020): x + dropout(f(norm(x))).

    Another norm follows the last layer of a stack.
    """

    ends_with_norm: ClassVar[bool] = True

    def before(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return self.norm(x)


NORM_PLACEMENTS: dict[str, type[Residual]] = {"post": PostNorm, "pre": PreNorm}


class FeedForward(nn.Module):
    """Base class of position-wise feed-forward networks: dropout(inner(x)) W2 + b2."""

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], rate: dropout.Rate = None
    ) -> Float[Array, "B T D"]:
        inner = dropout.drop(self.inner(x), rate, self)
        return self._projection(self.config.d_model, "outer", ("mlp", "embed"))(inner)

    def inner(self, x: Float[Array, "B T D"]) -> Float[Array, "B T F"]:
        """Returns the d_ff hidden features of each position, after the activation."""
        raise NotImplementedError

    def widened(self, x: Float[Array, "B T D"], name: str = "inner") -> Float[Array, "B T F"]:
        """Returns x W + b with d_ff features; `name` is the name of W and b in checkpoints."""
        return self._projection(self.config.d_ff, name, ("embed", "mlp"))(x)

    def _projection(self, features: int, name: str, axes: tuple[str, str]) -> products.Dense:
        return products.Dense(features, name=name, dtype=self.config.dtype, axes=axes)


@final
class Relu(FeedForward):
    """The paper's network (equation 2): FFN(x) = max(0, x W1 + b1) W2 + b2."""

    def inner(self, x: Float[Array, "B T D"]) -> Float[Array, "B T F"]:
        return nn.relu(self.widened(x))


@final
class Gelu(FeedForward):
    """The paper's network with GELU in place of max(0, z) (Hendrycks & Gimpel 2016).

    GELU(z) = z Φ(z), where Φ is the distribution function of the standard normal distribution.
    """

    def inner(self, x: Float[Array, "B T D"]) -> Float[Array, "B T F"]:
        return nn.gelu(self.widened(x), approximate=False)


@final
class SwiGlu(FeedForward):
    """SwiGLU with biases (Shazeer 2020): (swish(x W + b) ⊙ (x V + c)) W2 + b2.

    swish(z) = z sigmoid(z). SwiGLU has three matrices, where ReLU and GELU networks have two. With
    two thirds of their d_ff, it has about as many parameters.
    """

    def inner(self, x: Float[Array, "B T D"]) -> Float[Array, "B T F"]:
        return nn.swish(self.widened(x, "gate")) * self.widened(x)


FEED_FORWARDS: dict[str, type[FeedForward]] = {"relu": Relu, "gelu": Gelu, "swiglu": SwiGlu}


@final
class Layer(nn.Module):
    """A layer of self-attention, cross-attention and feed-forward network (section 3.1).

    The layer has no cross-attention if `cross_position` is None, as in encoders, and skips it if it
    is called without a source.
    """

    config: config_lib.ModelConfig
    position: positions_lib.Position
    own_name: str  # the self-attention's name in checkpoints
    cross_position: positions_lib.Position | None

    def setup(self) -> None:
        config = self.config
        residual = NORM_PLACEMENTS[config.norm_placement]
        self.self_attention = attention.MultiHeadAttention(
            config, self.position, name=self.own_name
        )
        self.self_attention_residual = residual(config, name=f"{self.own_name}_residual")
        if self.cross_position is not None:
            self.cross_attention = attention.MultiHeadAttention(config, self.cross_position)
            self.cross_attention_residual = residual(config)
        self.feed_forward = FEED_FORWARDS[config.feed_forward](config)
        self.feed_forward_residual = residual(config)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        mask: Bool[Array, "B 1 T T"],
        positions: Int[Array, "B T"],
        rates: dropout.Rates,
        source: attention.Attended | None = None,
    ) -> Float[Array, "B T D"]:
        """Applies the layer to all positions of each row at once, as in training."""
        y = self.self_attention_residual.before(x)
        own = attention.Attended(self.self_attention.keys_values(y, positions), mask, positions)
        return self._whole(x, y, positions, own, source, rates)

    def keys_values(
        self, x: Float[Array, "B T D"], positions: Int[Array, "B T"]
    ) -> attention.KeysValues:
        """Returns the keys and values that self-attention computes from all positions of x."""
        return self.self_attention.keys_values(self.self_attention_residual.before(x), positions)

    def step(
        self,
        x: Float[Array, "B W D"],
        positions: Int[Array, "#B W"],
        slots: Int[Array, "#B slots"],
        cache: attention.Cache,
        first: Int[Array, ""],
        mask: Bool[Array, "B 1 W slots"],
        source: attention.Attended | None = None,
    ) -> tuple[Float[Array, "B W D"], attention.Cache]:
        """Applies the layer to the newest token of each hypothesis, as in decoding.

        The W hypotheses of a sentence are the queries of one row. All of them read the source's
        keys and values. The mask selects the slots of the cache that each hypothesis reads.

        Args:
          x: the tokens' features.
          positions: the tokens' positions.
          slots: the position of each slot of the cache; a position has W slots.
          cache: keys and values of earlier positions.
          first: the slot for the token of hypothesis 0; the slots of the other hypotheses follow.
          mask: true at the slots that a hypothesis may attend to, including the newest token's.
          source: the source's keys and values, with a mask that is false at padding.

        Returns:
          The layer's output, and the cache with this position's keys and values written into it.
        """
        y = self.self_attention_residual.before(x)
        cache = cache.write(self.self_attention.keys_values(y, positions), first)
        own = attention.Attended(cache, mask, slots)
        return self._whole(x, y, positions, own, source, dropout.NONE), cache

    def _whole(
        self,
        x: Float[Array, "B T D"],
        y: Float[Array, "B T D"],
        positions: Int[Array, "#B T"],
        own: attention.Attended,
        source: attention.Attended | None,
        rates: dropout.Rates,
    ) -> Float[Array, "B T D"]:
        """Applies all sub-layers.

        Args:
          x: the layer's input.
          y: the input of self-attention, `self.self_attention_residual.before(x)`.
          positions: the positions of x.
          own: the keys and values that self-attention reads.
          source: the keys and values that cross-attention reads; None: no cross-attention.
          rates: dropout rates.
        """
        y = self.self_attention(y, positions, own, rates.attention)
        x = self.self_attention_residual.add(x, y, rates.residual)
        if source is not None:
            y = self.cross_attention_residual.before(x)
            y = self.cross_attention(y, positions, source, rates.attention)
            x = self.cross_attention_residual.add(x, y, rates.residual)
        y = self.feed_forward(self.feed_forward_residual.before(x), rates.feed_forward)
        return self.feed_forward_residual.add(x, y, rates.residual)


def make_stack(
    config: config_lib.ModelConfig,
    position: positions_lib.Position,
    own_name: str,
    cross_position: positions_lib.Position | None = None,
) -> list[Any]:
    """Returns the `Layer`s of one stack, which share their position modules."""
    layer = nn.remat(Layer) if config.rematerialise else Layer
    return [layer(config, position, own_name, cross_position) for _ in range(config.num_layers)]


def make_final_norm(config: config_lib.ModelConfig, name: str) -> Callable[[Any], Any]:
    """Returns the function that is applied after the last layer of a stack.

    It is a norm if `config.norm_placement` is "pre", and the identity if it is "post".
    """
    if NORM_PLACEMENTS[config.norm_placement].ends_with_norm:
        return make_norm(config, name)
    return lambda x: x
