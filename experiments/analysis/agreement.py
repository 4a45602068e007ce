"""Whether one sweep orders its rows as another does, as a small one should a larger one's."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from experiments.analysis import noise_floor, ranks, significance


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with the ends of its 95% interval."""

    value: float
    low: float
    high: float

    def written(self, form: str) -> str:
        """As a line shows it."""
        low, high = format(self.low, form), format(self.high, form)
        return f"{self.value:{form}} (95%: {low} to {high})"


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How far two sweeps say the same.

    Attributes:
      signs: share of rows whose difference from base has the same sign in both.
      pairs: share of all pairs of rows, base among them, that both order alike. This is the
        decision accuracy of Magnusson et al. 2025 (DataDecide).
      tau: Kendall's tau-b between both orders.
      num_pairs: of rows.
    """

    signs: Estimate
    pairs: Estimate
    tau: Estimate
    num_pairs: int


def agreement(
    sides: Sequence[Mapping[str, significance.Runs]],
    references: Mapping[str, str],
    variants: Sequence[str],
    floors: Sequence[noise_floor.Floor | None] = (None, None),
) -> Agreement:
    """Compares the orders of the rows that two sweeps share.

    Intervals are a bootstrap's over each side's sentences and over each row's seeds or, with a
    noise floor, normal draws, as `ranks.tau` makes them. Drawing adds noise to what is noisy
    already, so that they lean towards no agreement.

    Args:
      sides: what the runs of the same rows sum.
      references: for each row but base, the one that its difference is taken from.
      variants: how each side's runs are scored, a key of `measures.MEASURES`.
      floors: what seeds do to each side's scores, where that is known.
    """
    names = list(sides[0])
    place = {name: number for number, name in enumerate(names)}
    of_base = [(place[row], place[other]) for row, other in references.items()]
    apart = list(itertools.combinations(range(len(names)), 2))
    both = []
    for number, (side, variant, floor) in enumerate(zip(sides, variants, floors, strict=True)):
        weights = significance.samples(len(next(iter(side[names[0]].values()))))
        random = np.random.default_rng(3 + number)
        moved = floor.deviations(names, random, len(weights)) if floor else {}
        rows = [
            ranks.resampled(side[name], variant, weights, random, moved.get(name)) for name in names
        ]
        both.append(np.transpose(rows))
    signs, ordered = ([_signs(means, pairs) for means in both] for pairs in (of_base, apart))
    return Agreement(
        _estimate((signs[0] == signs[1]).mean(1)),
        _estimate((ordered[0] == ordered[1]).mean(1)),
        _estimate(ranks.tau_b(*ordered)),
        len(apart),
    )


def _signs(
    means: Float[np.ndarray, "samples rows"], pairs: Sequence[tuple[int, int]]
) -> Float[np.ndarray, "samples pairs"]:
    """Whether the first of each pair of rows is above the second (1), level (0) or below (-1)."""
    first, second = np.transpose(pairs)
    return np.sign(np.round(means[:, first] - means[:, second], 9))


def _estimate(samples: Float[np.ndarray, "samples"]) -> Estimate:
    low, high = np.quantile(samples[1:], [0.025, 0.975])
    return Estimate(float(samples[0]), float(low), float(high))
