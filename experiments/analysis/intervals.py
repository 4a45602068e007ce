"""Differences between means over seeds, with intervals."""

import math
import statistics
from collections.abc import Sequence

import scipy.stats


def welch(sides: Sequence[Sequence[float]], known: float = 0.0) -> tuple[float, float]:
    """Variance of the difference of two means of at least two values, and degrees of freedom.

    By Welch and Satterthwaite; scipy.stats.ttest_ind has no place for `known`, a variance that
    comes on top, known from very many draws, and warns where a side does not vary.
    """
    parts = [statistics.variance(side) / len(side) for side in sides]
    variance = known + sum(parts)
    if not any(parts):
        return variance, math.inf
    degrees = (part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
    return variance, variance**2 / sum(degrees)


def difference(
    ours: Sequence[float], theirs: Sequence[float], level: float = 0.95
) -> tuple[float | None, float | None]:
    """Difference of two means, and half of its interval (Welch's t).

    Runs of one seed share their data but soon part ways, so they are not treated as pairs. The
    difference is None where a side has no value; the half width where one has fewer than two, or
    where nothing varies.
    """
    if not ours or not theirs:
        return None, None
    gap = statistics.mean(ours) - statistics.mean(theirs)
    if len(ours) < 2 or len(theirs) < 2:
        return gap, None
    variance, freedom = welch((ours, theirs))
    half = float(scipy.stats.t.ppf((1 + level) / 2, freedom)) * variance**0.5
    return gap, half or None


def written(gap: float | None, half: float | None) -> str:
    """The two as a table shows them: +1.23 ± 0.45."""
    if gap is None:
        return ""
    return f"{gap:+.2f}" if half is None else f"{gap:+.2f} ± {half:.2f}"
