"""Runs that failed to train.

A run that never left the plateau of its loss says nothing about the row: the mean of failed and
successful runs describes neither (Mosbach et al. 2021, Agarwal et al. 2021). The rule does not
depend on BLEU: a run failed if its lowest perplexity on the development set is above `FAILED` times
the final perplexity of base.

Rows for which no paper has a score may be worse than that by nature, such as recurrent models
without attention. For these, a run must also be above `FAILED` times the best run of its row. The
same is the only rule for rows whose perplexity has another unit than base's, such as bytes.

A row with a failed run is shown as "failed k of n". It has no difference, and is left out of the
corrections for several tests, of the pooled variance and of the main rank correlation.
"""

import statistics
from collections.abc import Collection

import numpy as np

from experiments.results import frames

FAILED = 1.5  # times base's final perplexity


def failed_runs(
    sweep: frames.Sweep, reported: Collection[str], comparable: Collection[str]
) -> dict[str, list[int]]:
    """Returns the seeds of the runs that failed to train, for each row or variant that has any.

    Args:
      sweep: the results.
      reported: rows for which a paper has a score.
      comparable: rows whose perplexity has base's unit.
    """
    final = sweep.values(sweep.description.base_row, "ppl")
    if not final:
        return {}
    base = statistics.median(final)
    lowest = sweep.runs.set_index("config_hash")["ppl"]
    if "dev_ppl" in sweep.curves:
        logged = sweep.curves.groupby("config_hash")["dev_ppl"].min()
        lowest = np.fmin(lowest, logged.reindex(lowest.index))
    runs = sweep.runs[["row", "seed"]].assign(lowest=lowest.to_numpy())
    failed = {}
    for row, own in runs.groupby("row", sort=False):
        least = limit(base, own["lowest"].min(), row in reported, row in comparable)
        seeds = own.loc[own["lowest"] > least, "seed"].tolist()
        if seeds:
            failed[str(row)] = seeds
    return failed


def limit(base: float, best: float, is_reported: bool, is_comparable: bool) -> float:
    """Returns the perplexity above which a run failed to train.

    Args:
      base: the final perplexity of base.
      best: the lowest perplexity of the row's runs.
      is_reported: whether a paper has a score for the row.
      is_comparable: whether the row's perplexity has base's unit.
    """
    if not is_comparable:
        return FAILED * best
    return FAILED * (base if is_reported else max(base, best))
