"""What decoding with attention keeps of several hypotheses of each sentence."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from transformer_jax.models import attention, masks


class Hypotheses(NamedTuple):
    """An `interface.DecodingState` of layers with attention.

    Hypotheses stay where they were written. What a hypothesis w has at position l stands in slot
    ancestors[w, l] of that position, so that keeping, dropping or doubling one moves no keys. A
    cache may begin with keys and values that all hypotheses share; its last L W slots are theirs.
    """

    caches: tuple[attention.Cache, ...]  # of each layer, the W slots of a position side by side
    ancestors: Int[Array, "B W L"]
    sources: tuple[attention.Cache, ...]  # keys and values of the source, for each layer
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
        """With each hypothesis in its own slot of a position, and the slots that each may see.

        Those are its own and its ancestors', up to that position.
        """
        batch, width, length = self.ancestors.shape
        hypotheses = jnp.arange(width)
        ancestors = self.ancestors.at[:, :, index].set(hypotheses)
        own = (ancestors[..., None] == hypotheses).reshape(batch, 1, width, length * width)
        here = jnp.broadcast_to(index, (1, width))
        return self._replace(ancestors=ancestors), own & masks.causal(here, self.slots)
