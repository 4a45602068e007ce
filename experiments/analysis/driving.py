"""Which sentences a difference between two rows rests on."""

import dataclasses

import numpy as np
from jaxtyping import Float

from experiments.analysis import significance
from transformer_jax.evaluation import measures

MOST = 8  # sentences that are named


@dataclasses.dataclass(frozen=True)
class Driver:
    """A sentence that moves a difference."""

    sentence: int  # its number, from 0
    push: float  # what the difference of corpus scores loses if both rows are scored without it
    ours: int  # seed of the row's run that moves the difference most by it, in the same direction
    theirs: int  # that of the other row


def drivers(
    ours: significance.Runs, theirs: significance.Runs, variant: str
) -> tuple[list[Driver], float]:
    """The sentences whose removal changes a difference most, and the difference without them all.

    A corpus score is no mean over sentences: each is left out in turn and the whole scored anew.
    """
    pushes = [np.array([_pushes(run, variant) for run in side.values()]) for side in (ours, theirs)]
    total = pushes[0].mean(0) - pushes[1].mean(0)
    chosen = np.argsort(-np.abs(total), kind="stable")[:MOST]
    towards = np.sign(total)
    first, second = (towards * pushes[0]).argmax(0), (-towards * pushes[1]).argmax(0)
    found = [
        Driver(n, float(total[n]), [*ours][first[n]], [*theirs][second[n]]) for n in chosen.tolist()
    ]
    kept = np.setdiff1d(np.arange(len(total)), chosen)
    score = measures.MEASURES[variant].from_counts
    means = [np.mean([score(run[kept].sum(0)) for run in side.values()]) for side in (ours, theirs)]
    return found, float(means[0] - means[1])


def _pushes(run: significance.Counts, variant: str) -> Float[np.ndarray, "sentences"]:
    """What each sentence adds to the score of the whole."""
    score = measures.MEASURES[variant].from_counts
    summed = run.sum(0)
    return score(summed) - np.array([score(summed - own) for own in run])
