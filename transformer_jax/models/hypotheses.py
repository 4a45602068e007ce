"""The decoding state of models with self-attention."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from transformer_jax.models import attention, masks


class Hypotheses(NamedTuple):
    """The decoding state of a model with self-attention, for W hypotheses of each sentence.

    Each target position has W slots for keys and values. Hypothesis w of sentence b uses slot
    ancestors[b, w, l] of position l. `select` changes only `ancestors` and moves no keys or values.

    A cache has L W slots for the target's positions. Before these, it may have keys and values that
    all hypotheses share, such as those of the source in a decoder-only model.
    """

    caches: tuple[attention.Cache, ...]  # one per layer; the W slots of a position are adjacent
    ancestors: Int[Array, "B W L"]
    sources: tuple[attention.Cache, ...]  # keys and values of the source, one per layer
    source_mask: Bool[Array, "B 1 1 S"]  # true at the source's real positions

    def select(self, parents: Int[Array, "B W"]) -> "Hypotheses":
        ancestors = jnp.take_along_axis(self.ancestors, parents[:, :, None], axis=1)
        return self._replace(ancestors=ancestors)

    def lengthened(self, length: int) -> "Hypotheses":
        _, width, before = self.ancestors.shape
        more = length - before
        return self._replace(
            caches=tuple(
                cache.lengthened(cache.keys.shape[3] + more * width) for cache in self.caches
            ),
            ancestors=jnp.pad(self.ancestors, ((0, 0), (0, 0), (0, more))),
        )

    @property
    def slots(self) -> Int[Array, "1 slots"]:
        """The target position of each of the L W slots."""
        _, width, length = self.ancestors.shape
        return jnp.repeat(jnp.arange(length), width)[None]

    def at(self, index: Int[Array, ""]) -> tuple["Hypotheses", Bool[Array, "B 1 W slots"]]:
        """Returns the state and the attention mask for decoding a position.

        Args:
          index: the target position, at which hypothesis w uses slot w.

        Returns:
          The state, with the slots of this position in `ancestors`, and a mask for each hypothesis.
          The mask is true at the slots that the hypothesis uses at this and at earlier positions.
        """
        batch, width, length = self.ancestors.shape
        hypotheses = jnp.arange(width)
        ancestors = self.ancestors.at[:, :, index].set(hypotheses)
        own = (ancestors[..., None] == hypotheses).reshape(batch, 1, width, length * width)
        here = jnp.broadcast_to(index, (1, width))
        return self._replace(ancestors=ancestors), own & masks.causal(here, self.slots)
