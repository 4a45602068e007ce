"""Verdicts in a table's cells, what they say below it, and the noise floor in its notes."""

from collections.abc import Mapping, Sequence

from experiments.analysis import comparison, noise_floor, significance


def judged(
    row: str,
    gaps: Mapping[str, significance.Difference],
    found: Mapping[str, significance.Judgement],
) -> str:
    """Returns a row's verdict, and where it is undecided the difference that could be detected."""
    if row not in found:
        return ""
    gap, judgement = gaps[row], found[row]
    if judgement.word != significance.UNDECIDED:
        return judgement.word
    if not gap.over_seeds:
        return f"{judgement.word} ({'one seed' if gap.runs[0] == 1 else 'one seed of base'})"
    return f"{judgement.word} (detectable: {gap.detectable(judgement.level):.1f})"


def said(row: str, compared: comparison.Comparison) -> str:
    """The verdict on a row or, where the paper has none, its sign; "" without an interval."""
    gap = compared.gaps.get(row)
    if gap is None:
        return ""
    sign = "undecided" if not gap.excludes_0 else "higher" if gap.mean > 0 else "lower"
    return comparison.verdict(row, compared) or sign


def beneath(lines: Sequence[Sequence[str]]) -> str:
    """Returns the meaning of "detectable", where a cell of a table has it; else nothing."""
    if not any("(detectable: " in cell for line in lines for cell in line):
        return ""
    return (
        "Detectable: a true difference of this size would be detected in "
        f"{significance.POWER:.0%} of such tables if the deviation over seeds were known; with so "
        "few seeds, in 55 to 80%."
    )


def noise(compared: comparison.Comparison) -> str:
    """What the noise floor of a set is, and which rows have none of it; "" without one."""
    sweep, floor = compared.sweep, compared.floor
    name, runs = sweep.rows[0].name, len(sweep.rows[0].results)
    if floor is None and runs >= sweep.noise_floor:  # none was asked for, or one sentence is all
        return ""
    if floor is None:
        return f" Noise floor: none yet, {name} has {runs} of {sweep.noise_floor} runs."
    whole = f"{floor.pooled.variance**0.5:.2f}"
    pool = "" if len(floor.rows) == 1 else f", pooled with {', '.join(floor.rows[1:])} {whole}"
    said = (
        f" Noise floor: over {runs} seeds {name} deviates by {floor.own:.2f}{pool}, with "
        f"{floor.pooled.freedom} degrees of freedom. It stands for the seeds of all rows, also in "
        "the interval of one that has a single seed"
    )
    if not floor.excluded:
        return f"{said}."
    excluded = ", ".join(
        f"{row} ({spread.variance**0.5:.2f})" for row, spread in floor.excluded.items()
    )
    return (
        f"{said}, but not of those with a run that failed to train, whose lowest development "
        f"perplexity is above {noise_floor.FAILED} times base's: {excluded}; these have their own."
    )
