"""What intervals and verdicts are made of: variances, and corrections for many rows."""

import math
from collections.abc import Mapping, Sequence


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
