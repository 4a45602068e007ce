"""Verdicts in a table's cells, what they say below it, and the noise floor in its notes."""

from collections.abc import Mapping, Sequence

from experiments.analysis import comparison, significance
from transformer_jax.drawing import tables


def judged(
    row: str,
    theirs: float | None,
    gaps: Mapping[str, significance.Difference],
    found: Mapping[str, significance.Judgement],
) -> str:
    """What a row's difference says of the paper's, and if nothing what would have been seen."""
    if theirs is None or row not in found:
        return ""
    gap, judgement = gaps[row], found[row]
    word, level = judgement.word, judgement.level
    if word != significance.UNDECIDED:
        return word
    if not gap.over_seeds:
        return f"{word} ({'one seed' if gap.runs[0] == 1 else 'one seed of base'})"
    is_tie = abs(theirs) < significance.SMALL
    needed = gap.seeds_for(theirs, judgement.tie_level if is_tie else level)
    rest = f"needs {needed} seeds" if needed else "needs sentences"
    if needed and needed <= gap.seeds:
        rest = f"and so would {'a tie' if is_tie else tables.signed(theirs, '+.1f')}"
    return f"{word} ({gap.shows(level):.1f} would show; {rest})"


def said(row: str, compared: comparison.Comparison) -> str:
    """The verdict on a row or, where the paper has none, its sign; "" without an interval."""
    gap = compared.gaps.get(row)
    if gap is None:
        return ""
    sign = "undecided" if not gap.excludes_0 else "higher" if gap.mean > 0 else "lower"
    return comparison.verdict(row, compared) or sign


def beneath(lines: Sequence[Sequence[str]]) -> str:
    """What the cells of a table mean that say what would show, or what that needs."""
    cells = " ".join(cell for line in lines for cell in line)
    meanings = {
        " would show": "Would show: a true difference of this size would be seen in "
        f"{significance.OFTEN:.0%} of such tables if the deviation over seeds were known; as few "
        "seeds tell it, in 55 to 80%.",
        "; needs ": "Needs: how many seeds the row needs, and base at least as many, for the "
        "paper's difference (or tie) to be seen so often; or more sentences, where no number of "
        "seeds is enough.",
        "; and so would ": "And so would: the paper's difference (or tie) would have been seen so "
        "often with these seeds, and was not.",
    }
    return " ".join(meaning for said, meaning in meanings.items() if said in cells)


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
    if not floor.apart:
        return f"{said}."
    apart = ", ".join(
        f"{row} ({spread.variance**0.5:.2f}, p = {floor.chances[row]:.2g})"
        for row, spread in floor.apart.items()
    )
    return (
        f"{said}, but not of those whose own deviation is clearly larger (F test, one-sided, "
        f"Holm): {apart}; these have their own."
    )
