"""Corrections for several tests."""

from collections.abc import Mapping

LEVEL = 0.05  # level of significance of all tests of a family together


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Returns p-values corrected for their number (Holm 1979).

    Rejecting the hypotheses with corrected p-values below 0.05 keeps the family-wise error rate at
    most 5%, whatever the dependence between the tests.
    """
    corrected, highest = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = highest
    return corrected
