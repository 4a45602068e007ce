"""One layer of each kind in Table 1 of the paper, limited to the operations that the table counts.

Axes have the letters of `transformer_jax.models.attention`; T is the paper's length n, and D is the
paper's width d. Attention has one head with d_k = d_v = d, and takes queries, keys and values as
inputs. The paper's n² d does not count the four d × d projections; with them the cost is
n² d + n d².
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float

from transformer_jax.models import attention, masks

Inputs = Float[jax.Array, "B T D"]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a layer and its input; the letters in the comments are those of Table 1."""

    batch: int  # sequences
    length: int  # n, positions of a sequence
    width: int  # d, features of a position
    kernel: int  # k, input positions of a convolution for one output position
    neighbourhood: int  # r, positions on each side that restricted attention sees

    @property
    def input(self) -> tuple[int, ...]:
        """The shape of a layer's input."""
        return (self.batch, self.length, self.width)

    @property
    def matrix(self) -> tuple[int, ...]:
        """The shape of a layer's matrices."""
        return (self.width, self.width)


def self_attention(queries: Inputs, keys: Inputs, values: Inputs) -> Inputs:
    """Returns softmax(Q Kᵀ / sqrt(d)) V, without a mask."""
    return _attend(queries, keys, values, jnp.ones((1, 1, 1, keys.shape[1]), bool))


def recurrent(x: Inputs, inner: Float[jax.Array, "D D"], outer: Float[jax.Array, "D D"]) -> Inputs:
    """Returns h_t = tanh(x_t W + h_{t-1} U) with h_0 = 0 (Elman 1990), for W = inner, U = outer.

    The products x_t W of all positions are computed together, before the loop over positions.
    """

    def step(state: jax.Array, projected: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jnp.tanh(projected + state @ outer)
        return state, state

    projected = jnp.swapaxes(x @ inner, 0, 1)
    _, states = jax.lax.scan(step, jnp.zeros_like(projected[0]), projected)
    return jnp.swapaxes(states, 0, 1)


def convolutional(x: Inputs, kernel: Float[jax.Array, "k D D"]) -> Inputs:
    """Returns y_t = Σ_i x_{t + i - (k - 1) // 2} W_i over 0 ≤ i < k; x is 0 beyond its ends."""
    numbers = ("NWC", "WIO", "NWC")
    return jax.lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=numbers)


def restricted_self_attention(
    queries: Inputs, keys: Inputs, values: Inputs, neighbourhood: int
) -> Inputs:
    """Computes self-attention to at most r = `neighbourhood` positions on each side, in O(r n d).

    The sequence is cut into blocks of r positions. Each block of queries is compared with the keys
    of three blocks: the same block, the one before and the one after.
    """
    _, length, width = queries.shape
    block = min(neighbourhood, length)
    blocks = -(-length // block)
    positions = jnp.arange(blocks * block).reshape(blocks, block)
    key_positions = positions[:, :1] - block + jnp.arange(3 * block)
    mask = masks.within_window(positions, key_positions, neighbourhood)
    mask &= ((key_positions >= 0) & (key_positions < length))[:, None, None, :]

    def one_sequence(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
        after = blocks * block - length  # a query there may see no key; its result is cut off
        cut = jnp.pad(queries, ((0, after), (0, 0))).reshape(blocks, block, -1)

        def beside(x: jax.Array) -> jax.Array:
            x = jnp.pad(x, ((block, after + block), (0, 0))).reshape(blocks + 2, block, -1)
            return jnp.concatenate([x[:-2], x[1:-1], x[2:]], axis=1)

        return _attend(cut, beside(keys), beside(values), mask).reshape(-1, width)[:length]

    return jax.vmap(one_sequence)(queries, keys, values)


def _attend(queries: Inputs, keys: Inputs, values: Inputs, mask: jax.Array) -> Inputs:
    keys_values = attention.KeysValues(keys[:, None], values[:, None])
    return attention.attend(queries[:, None], keys_values, mask)[:, 0]


# For each kind of layer, a function of the sizes. It returns the function of the layer, and the
# shapes of that function's arguments.
KINDS: dict[str, Callable[[Sizes], tuple[Callable[..., jax.Array], list[tuple[int, ...]]]]] = {
    "self-attention": lambda sizes: (self_attention, [sizes.input] * 3),
    "recurrent": lambda sizes: (recurrent, [sizes.input, sizes.matrix, sizes.matrix]),
    "convolutional": lambda sizes: (convolutional, [sizes.input, (sizes.kernel, *sizes.matrix)]),
    "self-attention, restricted": lambda sizes: (
        functools.partial(restricted_self_attention, neighbourhood=sizes.neighbourhood),
        [sizes.input] * 3,
    ),
}
