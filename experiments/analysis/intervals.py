"""Differences between means over seeds, with intervals."""

import math
import statistics
from collections.abc import Mapping, Sequence

import scipy.stats


def satterthwaite(known: float, parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A sum of independent variances, and its degrees of freedom (Satterthwaite 1946).

    Args:
      known: a variance that is known from very many draws.
      parts: estimated ones, each with its degrees of freedom.
    """
    variance = known + sum(part for part, _ in parts)
    if not any(part for part, _ in parts):
        return variance, math.inf
    return variance, variance**2 / sum(part**2 / freedom for part, freedom in parts)


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Chances (p) that several hypotheses hold, corrected for their number (Holm 1979).

    Whoever rejects those below 0.05 rejects a true one in at most 5% of such families, however
    they depend on each other.
    """
    corrected, highest = {}, 0.0
    for place, name in enumerate(sorted(chances, key=lambda name: chances[name])):
        highest = max(highest, min(1.0, (len(chances) - place) * chances[name]))
        corrected[name] = highest
    return corrected


def difference(
    ours: Sequence[float], theirs: Sequence[float], level: float = 0.95
) -> tuple[float | None, float | None]:
    """Difference of two means, and half of its interval, by Welch and Satterthwaite.

    scipy.stats.ttest_ind warns where a side does not vary.

    Runs of one seed share their data but soon part ways, so they are not treated as pairs. The
    difference is None where a side has no value; the half width where one has fewer than two, or
    where nothing varies.
    """
    if not ours or not theirs:
        return None, None
    gap = statistics.mean(ours) - statistics.mean(theirs)
    if len(ours) < 2 or len(theirs) < 2:
        return gap, None
    parts = [(statistics.variance(side) / len(side), len(side) - 1) for side in (ours, theirs)]
    variance, freedom = satterthwaite(0.0, parts)
    half = float(scipy.stats.t.ppf((1 + level) / 2, freedom)) * variance**0.5
    return gap, half or None


def written(gap: float | None, half: float | None) -> str:
    """The two as a table shows them: +1.23 ± 0.45."""
    if gap is None:
        return ""
    return f"{gap:+.2f}" if half is None else f"{gap:+.2f} ± {half:.2f}"
