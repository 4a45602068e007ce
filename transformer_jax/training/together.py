"""Several runs in one program: their arrays stacked along a first axis, which `jax.vmap` maps.

Small models leave an accelerator idle; runs that differ only in their seed then train side by
side. A run alone is not stacked, so that its program is the plain one.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

T = TypeVar("T")


def stack(trees: Sequence[T]) -> T:
    """One tree of arrays for all runs.

    Args:
      trees: each run's, all of one structure: NumPy's arrays stay NumPy's, JAX's stay JAX's.
    """
    if len(trees) == 1:
        return trees[0]

    def joined(*leaves: Any) -> Any:
        numpy = all(isinstance(leaf, np.ndarray) for leaf in leaves)
        return np.stack(leaves) if numpy else jax.numpy.stack(leaves)

    return jax.tree.map(joined, *trees)


def part(tree: T, number: int, runs: int) -> T:
    """One run's part of a stacked tree of so many."""
    return tree if runs == 1 else jax.tree.map(lambda leaf: leaf[number], tree)


def shardings(tree: T, runs: int) -> T:
    """The shardings of a stacked tree: the axis of runs is not shared out."""
    if runs == 1:
        return tree
    return jax.tree.map(
        lambda each: NamedSharding(each.mesh, PartitionSpec(None, *each.spec)), tree
    )
