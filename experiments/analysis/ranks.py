"""Orders of rows: Kendall's tau-b with the paper's, and how far two sweeps have the same one.

Intervals are a bootstrap's over sentences, the same for all rows, and over each row's seeds or,
with a noise floor, normal draws of a deviation that is itself drawn from what so few runs leave
possible.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from experiments.analysis import noise_floor, significance
from transformer_jax.drawing import tables

APART = 0.5  # rows that the paper separates by as much are to be ranked


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with the ends of its 95% interval."""

    value: float
    low: float
    high: float

    def written(self, form: str) -> str:
        """As a line shows it."""
        value, low, high = (tables.signed(each, form) for each in dataclasses.astuple(self))
        return f"{value} (95%: {low} to {high})"


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How far two sweeps say the same."""

    signs: Estimate  # share of rows whose difference from base has the same sign in both
    # Share of all pairs of rows, base among them, that both order alike: the decision accuracy of
    # Magnusson et al. 2025 (DataDecide).
    pairs: Estimate
    tau: Estimate  # Kendall's tau-b between both orders
    num_pairs: int  # of rows


def tau(
    rows: Mapping[str, significance.Runs],
    paper: Mapping[str, float],
    variant: str,
    floor: noise_floor.Floor | None = None,
) -> tuple[float, float, float, int] | None:
    """Kendall's tau-b between ours and the paper's order of rows that the paper keeps apart.

    Returns:
      tau-b, both ends of its 95% interval, and the number of pairs of rows; None if there is none.
    """
    rows = {name: runs for name, runs in rows.items() if runs}
    scores = np.array([paper[name] for name in rows])
    apart = [
        (i, j)
        for i, j in itertools.combinations(range(len(rows)), 2)
        if round(abs(scores[i] - scores[j]), 6) >= APART
    ]
    if not apart:
        return None
    first, second = np.transpose(apart)
    means = _resampled(rows, variant, floor, seed=2)
    ours, theirs = (np.sign(each[..., first] - each[..., second]) for each in (means, scores))
    found = _estimate(tau_b(ours, theirs[None]))
    return found.value, found.low, found.high, len(apart)


def agreement(
    sides: Sequence[Mapping[str, significance.Runs]],
    references: Mapping[str, str],
    variants: Sequence[str],
    floors: Sequence[noise_floor.Floor | None] = (None, None),
) -> Agreement:
    """Compares the orders of the rows that two sweeps share.

    Drawing adds noise to what is noisy already, so that intervals lean towards no agreement.

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
    both = [
        _resampled({name: side[name] for name in names}, variant, floor, seed=3 + number)
        for number, (side, variant, floor) in enumerate(zip(sides, variants, floors, strict=True))
    ]
    signs, ordered = ([_signs(means, pairs) for means in both] for pairs in (of_base, apart))
    return Agreement(
        _estimate((signs[0] == signs[1]).mean(1)),
        _estimate((ordered[0] == ordered[1]).mean(1)),
        _estimate(tau_b(*ordered)),
        len(apart),
    )


def _resampled(
    rows: Mapping[str, significance.Runs], variant: str, floor: noise_floor.Floor | None, seed: int
) -> Float[np.ndarray, "samples rows"]:
    """Each row's mean score on each sample: over runs drawn anew, or moved as the floor says.

    The first sample is what was measured.
    """
    random = np.random.default_rng(seed)
    a_run = next(iter(next(iter(rows.values())).values()))
    weights = significance.samples(len(a_run))
    deviations = floor.deviations(rows, random, len(weights)) if floor else {}
    means = []
    for name, runs in rows.items():
        found = np.array([significance.scores(run, variant, weights) for run in runs.values()])
        if floor:
            moved = random.normal(size=len(weights)) * deviations[name] / len(found) ** 0.5
            moved[0] = 0
            means.append(found.mean(0) + moved)
        else:
            chosen = random.integers(len(found), size=found.shape)
            chosen[:, 0] = np.arange(len(found))
            # Of n runs drawn anew, means vary by (n - 1) / n of what those of n others would.
            wider = (len(found) / max(len(found) - 1, 1)) ** 0.5
            spread = wider * (found - found.mean(0))
            means.append(found.mean(0) + np.take_along_axis(spread, chosen, 0).mean(0))
    return np.transpose(means)


def tau_b(
    ours: Float[np.ndarray, "samples pairs"], theirs: Float[np.ndarray, "_ pairs"]
) -> Float[np.ndarray, "samples"]:
    """Concordant less discordant pairs, over the geometric mean of pairs untied in each order.

    Each is given by its signs on some samples; 0 where one does not tell any rows apart.
    scipy.stats.kendalltau would take all pairs, also those that the paper does not keep apart.
    """
    untied = np.abs(ours).sum(1) * np.abs(theirs).sum(1)
    return (ours * theirs).sum(1) / np.sqrt(np.maximum(untied, 1))


def _signs(
    means: Float[np.ndarray, "samples rows"], pairs: Sequence[tuple[int, int]]
) -> Float[np.ndarray, "samples pairs"]:
    """Whether the first of each pair of rows is above the second (1), level (0) or below (-1)."""
    first, second = np.transpose(pairs)
    return np.sign(np.round(means[:, first] - means[:, second], 9))


def _estimate(samples: Float[np.ndarray, "samples"]) -> Estimate:
    low, high = np.quantile(samples[1:], [0.025, 0.975])
    return Estimate(float(samples[0]), float(low), float(high))
