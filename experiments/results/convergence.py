"""The change of development perplexity over the last quarter of training."""

import math

import pandas as pd

from experiments.results import comparison

QUARTER = 0.25
NOTABLE = 0.05  # a change above 5% is flagged
FALLING, RISING = "falling", "rising"


def last_quarter(compared: comparison.Comparison) -> pd.Series:
    """Returns the relative change of each row's perplexity over the last quarter of the steps.

    The change is from the first logged step that is not before 3/4 of the last step to the last
    step, as a mean over the runs that did not fail to train (over all runs if all failed). It is
    NaN for rows whose development perplexity was not logged then.
    """
    curves = compared.sweep.curves
    found = dict.fromkeys(compared.rows["row"], math.nan)
    if "dev_ppl" not in curves:
        return pd.Series(found, dtype=float)
    logged = curves.dropna(subset=["dev_ppl"])
    for row, own in logged.groupby("row"):
        failed = compared.failed.get(str(row), [])
        learned = own[~own["seed"].isin(failed)]
        changes = [
            _change(run.sort_values("step"))
            for _, run in (learned if len(learned) else own).groupby("seed")
        ]
        changes = [change for change in changes if not math.isnan(change)]
        if row in found and changes:
            found[str(row)] = sum(changes) / len(changes)
    return pd.Series(found, dtype=float)


def describe(change: float) -> str:
    """Returns "" or the word for a change that is flagged, `FALLING` or `RISING`."""
    if math.isnan(change) or abs(change) <= NOTABLE:
        return ""
    return FALLING if change < 0 else RISING


def _change(run: pd.DataFrame) -> float:
    last = run["step"].iloc[-1]
    quarter = run[run["step"] >= (1 - QUARTER) * last]
    if len(quarter) < 2:
        return math.nan
    return float(quarter["dev_ppl"].iloc[-1] / quarter["dev_ppl"].iloc[0] - 1)
