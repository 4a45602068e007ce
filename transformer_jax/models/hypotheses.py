"""The decoding state of models with self-attention."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from transformer_jax.models import attention, masks


class Hypotheses(NamedTuple):
    """An `interface.DecodingState` whose caches are never moved.

    The keys and values of hypothesis w at position l are in slot ancestors[w, l] of that position,
    so that selecting hypotheses changes `ancestors` alone. A cache may begin with keys and values
    that all hypotheses share; its last L W slots belong to hypotheses.
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
        """Returns the position of each slot."""
        _, width, length = self.ancestors.shape
        return jnp.repeat(jnp.arange(length), width)[None]

    def at(self, index: Int[Array, ""]) -> tuple["Hypotheses", Bool[Array, "B 1 W slots"]]:
        """Returns the state with each hypothesis in its own slot of a position, and a mask.

        The mask is true at the slots of each hypothesis and its ancestors, up to that position.
        """
        batch, width, length = self.ancestors.shape
        hypotheses = jnp.arange(width)
        ancestors = self.ancestors.at[:, :, index].set(hypotheses)
        own = (ancestors[..., None] == hypotheses).reshape(batch, 1, width, length * width)
        here = jnp.broadcast_to(index, (1, width))
        return self._replace(ancestors=ancestors), own & masks.causal(here, self.slots)
