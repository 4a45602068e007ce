"""The change of development perplexity over the last quarter of training."""

import math

import pandas as pd

from experiments.results import comparison, frames, tables

QUARTER = 0.25
NOTABLE = 0.05  # a change above 5% is flagged


def of_runs(sweep: frames.Sweep) -> dict[str, float]:
    """Returns the relative change of each run's perplexity over the last quarter of the steps.

    The change is from the first logged step that is not before 3/4 of the last step to the last
    step. Runs whose development perplexity was not logged then are left out. The keys are the
    `config_hash` of the runs.
    """
    if "dev_ppl" not in sweep.curves:
        return {}
    changes = {}
    for run, logged in sweep.curves.dropna(subset=["dev_ppl"]).groupby("config_hash"):
        logged = logged.drop_duplicates("step").sort_values("step")  # rows may share runs
        quarter = logged[logged["step"] >= (1 - QUARTER) * logged["step"].iloc[-1]]
        if len(quarter) > 1:
            changes[str(run)] = float(quarter["dev_ppl"].iloc[-1] / quarter["dev_ppl"].iloc[0] - 1)
    return changes


def of_rows(compared: comparison.Comparison) -> pd.Series:
    """Returns the mean of `of_runs` for each row; NaN for rows without such runs.

    The mean is over the runs that did not fail to train, or over all runs if all failed.
    """
    sweep, changes = compared.sweep, of_runs(compared.sweep)
    found = {}
    for row in compared.rows["row"]:
        runs = comparison.learned_runs(sweep, row, compared.failed.get(row, []))
        found[row] = runs["config_hash"].map(changes).astype(float).mean()
    return pd.Series(found, dtype=float)


def texts(compared: comparison.Comparison) -> list[str]:
    """Returns a text for each row such as "−8.1% (2/3)"; "" for rows without such runs.

    The numbers in brackets are those of the runs whose change is above `NOTABLE`, and of all runs
    with a change.
    """
    changes = of_runs(compared.sweep)
    found = []
    for row, change in of_rows(compared).items():
        runs = compared.sweep.of(str(row))["config_hash"].map(changes).astype(float).dropna()
        moving = (runs.abs() > NOTABLE).sum()
        text = f"{tables.number(change, '+.1%')} ({moving}/{len(runs)})"
        found.append("" if math.isnan(change) else text)
    return found
