"""Differences between means over seeds, with intervals."""

import statistics
from collections.abc import Sequence

import scipy.stats


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
    parts = [statistics.variance(side) / len(side) for side in (ours, theirs)]
    if not sum(parts):
        return gap, None
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (ours, theirs), strict=True)
    )
    return gap, float(scipy.stats.t.ppf((1 + level) / 2, freedom)) * sum(parts) ** 0.5


def written(gap: float | None, half: float | None) -> str:
    """The two as a table shows them: +1.23 ± 0.45."""
    if gap is None:
        return ""
    return f"{gap:+.2f}" if half is None else f"{gap:+.2f} ± {half:.2f}"
