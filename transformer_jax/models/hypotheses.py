"""The decoding state of models with self-attention."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from transformer_jax.models import attention, masks


class Hypotheses(NamedTuple):
    """A decoding state that selects hypotheses without moving their keys and values.

    Each position has W slots. The keys and values of hypothesis w of sentence b at position l are
    in slot ancestors[b, w, l] of that position, so that selecting hypotheses changes `ancestors`
    alone. A cache may begin with keys and values that all hypotheses share; its last L W slots
    belong to hypotheses.
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
        """The position of each slot."""
        _, width, length = self.ancestors.shape
        return jnp.repeat(jnp.arange(length), width)[None]

    def at(self, index: Int[Array, ""]) -> tuple["Hypotheses", Bool[Array, "B 1 W slots"]]:
        """Prepares the decoding of a position, at which hypothesis w uses slot w.

        Returns:
          The state with the slots of this position, and the mask of each hypothesis. The mask is
          true at the slots of the hypothesis and of its ancestors, up to this position.
        """
        batch, width, length = self.ancestors.shape
        hypotheses = jnp.arange(width)
        ancestors = self.ancestors.at[:, :, index].set(hypotheses)
        own = (ancestors[..., None] == hypotheses).reshape(batch, 1, width, length * width)
        here = jnp.broadcast_to(index, (1, width))
        return self._replace(ancestors=ancestors), own & masks.causal(here, self.slots)
