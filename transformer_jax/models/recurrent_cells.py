"""The cells of recurrent models, each of which computes one step of a recurrence.

To add a cell, write its class and its line in `CELLS`.
"""

from typing import Any, ClassVar, final

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.models import initializers, products

State = tuple[Float[Array, "..."], ...]  # one or two vectors, the first of which is the output


class RecurrentCell(nn.Module):
    """Base class of recurrent cells, which compute one step of a recurrence.

    Each vector of the state has `width` features and is computed in `dtype`. `from_input` computes
    W x + b. This term does not depend on the state and can be computed for all positions at once.
    """

    width: int
    dtype: jnp.dtype

    gates: ClassVar[int] = 1  # vectors that one step computes
    parts: ClassVar[int] = 1  # vectors of its state

    def setup(self) -> None:
        features = self.gates * self.width
        self.from_input = products.Dense(features, dtype=self.dtype)
        self.from_state = products.Dense(
            features, use_bias=False, dtype=self.dtype, kernel_init=initializers.orthogonal
        )

    def advance(self, state: State, projected: Float[Array, "*B gates"]) -> State:
        """Returns the state after one position.

        Args:
          state: the state before the position.
          projected: `from_input` of the position's input.
        """
        raise NotImplementedError


@final
class Tanh(RecurrentCell):
    """The cell of Elman 1990: h' = tanh(W x + U h + b)."""

    def advance(self, state: State, projected: Float[Array, "*B gates"]) -> State:
        return (jnp.tanh(projected + self.from_state(state[0])),)


@final
class Lstm(RecurrentCell):
    """The LSTM of Hochreiter & Schmidhuber 1997, with a forget gate f.

    c' = f ⊙ c + i ⊙ g and h' = o ⊙ tanh(c'), where i and o are the input and output gates and g is
    the candidate. 1 is added to the parameter of the forget gate's bias (Jozefowicz et al. 2015).
    """

    gates: ClassVar[int] = 4
    parts: ClassVar[int] = 2

    def advance(self, state: State, projected: Float[Array, "*B gates"]) -> State:
        h, c = state
        i, f, g, o = jnp.split(projected + self.from_state(h), 4, axis=-1)
        c = nn.sigmoid(f + 1) * c + nn.sigmoid(i) * jnp.tanh(g)
        return nn.sigmoid(o) * jnp.tanh(c), c


@final
class Gru(RecurrentCell):
    """The GRU of Cho et al. 2014, with the reset gate r applied after the product with U.

    h' = z ⊙ h + (1 - z) ⊙ tanh(W x + r ⊙ (U h) + b), where z is the update gate.
    """

    gates: ClassVar[int] = 3

    def advance(self, state: State, projected: Float[Array, "*B gates"]) -> State:
        x_z, x_r, x_n = jnp.split(projected, 3, axis=-1)
        h_z, h_r, h_n = jnp.split(self.from_state(state[0]), 3, axis=-1)
        z, r = nn.sigmoid(x_z + h_z), nn.sigmoid(x_r + h_r)
        return (z * state[0] + (1 - z) * jnp.tanh(x_n + r * h_n),)


def run(
    cell: RecurrentCell, x: Float[Array, "B S D"], fresh: Bool[Array, "B S"], reverse: bool
) -> State:
    """Runs a cell over sequences, and returns its state after each position.

    Args:
      cell: the cell.
      x: the input at each position.
      fresh: true where the state is set to zeros before the position is read.
      reverse: whether positions are read from the last to the first.
    """

    def step(cell: RecurrentCell, state: State, here: Any) -> tuple[State, State]:
        projected, begins = here
        state = cell.advance(
            tuple(jnp.where(begins[:, None], 0, part) for part in state), projected
        )
        return state, state

    empty = (jnp.zeros((x.shape[0], cell.width), x.dtype),) * cell.parts
    scan = nn.scan(
        step,
        variable_broadcast="params",
        split_rngs={"params": False},
        in_axes=1,
        out_axes=1,
        reverse=reverse,
    )
    return scan(cell, empty, (cell.from_input(x), fresh))[1]


def at_ends(
    both: Float[Array, "B S D"], first: Int[Array, "B T"], last: Int[Array, "B T"]
) -> Float[Array, "B T D"]:
    """Returns, for each target position, the states of cells that have read its whole sentence.

    Args:
      both: the state of the forward cell and the state of the backward cell at each source
        position, side by side, with D / 2 features each.
      first: the sentence's first source position, at which the backward cell has read all of it.
      last: the sentence's last source position, at which the forward cell has read all of it.
    """
    half = both.shape[-1] // 2
    forwards = jnp.take_along_axis(both[..., :half], last[..., None], axis=1)
    backwards = jnp.take_along_axis(both[..., half:], first[..., None], axis=1)
    return jnp.concatenate([forwards, backwards], axis=-1)


def require_halves(config: config_lib.ModelConfig) -> None:
    """Raises UserError if d_model is odd, because each direction has half of its features."""
    if config.d_model % 2:
        raise errors.UserError(
            f"model.architecture={config.architecture} needs an even d_model, one half for "
            f"each direction, but model.d_model={config.d_model}"
        )


CELLS: dict[str, type[RecurrentCell]] = {"rnn": Tanh, "lstm": Lstm, "gru": Gru}
