"""The section of a report that tests published claims on the results of a sweep."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.results import documents, sensitivity, tables
from experiments.stats import claims as claims_lib
from experiments.stats import comparison
from experiments.sweep import cost
from transformer_jax.evaluation import bleu

RULES = (
    "Claims: differences have Welch's 95% interval over seeds; the development sentences are the "
    "same in all runs. An inequality agrees if the interval lies above 0 (≥: above "
    f"−{claims_lib.MARGIN:g}) and disagrees if it lies below. A claim agrees if all its "
    "inequalities do, and disagrees if one does at 95% for all of the claim together (Bonferroni)."
)
RECIPE = (
    "All rows have one recipe. With --tune, further verdicts compare each row at its best value, "
    "chosen on the development set and scored on the test set; BLEU by length stays that of the "
    "development set."
)
LOST_ON_LONG = (
    "Lost on long sentences: the percentage by which BLEU is lower in the longest bucket of at "
    f"least {bleu.FEWEST} sentences than in the shortest; differences in points."
)


def section(
    compared: comparison.Comparison, claims: Sequence[claims_lib.Claim], note: str
) -> documents.Section:
    """Returns a section with a table of claims, each followed by its inequalities.

    Args:
      compared: the rows.
      claims: the claims.
      note: a note on the rules of the tests.
    """
    sweep, is_tuned = compared.sweep, bool(compared.sweep.description.tune)
    params = compared.rows["params"].astype(float)
    lines = []
    for number, claim in enumerate(claims, 1):
        verdict, results = claims_lib.judge(claim, sweep)
        line = {"claim": f"{claim.text} [{number}]", "verdict": verdict}
        if is_tuned:
            names = sensitivity.best_names(compared)
            line["verdict_at_best"], _ = claims_lib.judge(claim, sweep, names, "test")
        lines.append(line)
        for result in results:
            share = params[result.inequality.higher] / params[result.inequality.lower] - 1
            lines.append({
                "claim": f"· {result.inequality}",
                "runs": " and ".join(map(str, result.runs)),
                "difference": result.difference,
                "half_width": result.half_width,
                "verdict": result.verdict,
                "params_share": share if abs(share) > cost.NOTABLE else np.nan,
            })  # fmt: skip
    columns = [
        tables.Column("claim", main=True),
        tables.Column("runs"),
        tables.Column("difference", "", "+.2f", "half_width", main=True),
        tables.Column("verdict", main=True),
    ]
    names = ["claim", "runs", "difference", "half_width", "verdict", "params_share"]
    if is_tuned:
        columns.append(tables.Column("each at its best", "verdict_at_best"))
        names.append("verdict_at_best")
    columns.append(tables.Column("parameters", "params_share", "+.0%"))
    frame = pd.DataFrame(lines, columns=names)
    sources = "; ".join(f"[{number}] {claim.source}" for number, claim in enumerate(claims, 1))
    return documents.Section([tables.Table(frame, columns, "Claims", f"{sources}.")], [note])
