"""A mixed model of scores over rows and random seeds.

Runs of different rows with the same seed read the data in the same order, so their scores are
correlated. The score y of a run of row i with seed k is modelled as

  yᵢₖ = μᵢ + sₖ + eᵢₖ,   sₖ ~ N(0, τ²),   eᵢₖ ~ N(0, σ²)

with rows fixed and seeds random. σ² and τ² are estimated by restricted maximum likelihood (REML;
Patterson and Thompson 1971), and the means μ by generalised least squares (GLS). A row's difference
from base is then close to the mean of paired differences over the seeds that both have, and base's
further seeds are used as well.

REML has a simple form here. Let X and Z be the indicator matrices of rows and seeds, Q an
orthonormal basis of the vectors orthogonal to X, and U Λ U' = Q'ZZ'Q the eigendecomposition. Then
the components a = U'Q'y are independent, aᵢ ~ N(0, σ² + τ² λᵢ), and REML is maximum likelihood for
them. Their information matrix gives the covariance matrix A of the estimates of (σ², τ²). Most λᵢ
are 0: these components belong to σ² alone.

If the two variances are not identifiable (all rows but base have one run, for example), τ² = 0, and
σ² is the pooled variance within rows.

Rows whose runs vary significantly more than the pool of all other rows are not pooled; see
`outlying`.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float

from experiments.stats import multiple

LEAST_RESIDUALS = 5  # degrees of freedom of σ² with which τ² is estimated
_ZERO = 1e-9  # eigenvalues below it are 0, as are components below it times the largest score


@dataclasses.dataclass(frozen=True)
class Components:
    """The estimated variances over seeds.

    Attributes:
      run: σ², the variance of runs with a common seed effect removed.
      seed: τ², the variance of the effect that a seed has on all rows.
      covariance: A, the covariance matrix of the estimates of σ² and τ².
      freedom: the degrees of freedom of σ².
      total: the variance within rows, pooled; an estimate of σ² + τ² that ignores the correlation
        of runs with the same seed.
      total_freedom: its degrees of freedom.
    """

    run: float
    seed: float
    covariance: Float[np.ndarray, "2 2"]
    freedom: int
    total: float
    total_freedom: int

    @property
    def ratio(self) -> float:
        """τ²/σ²."""
        return self.seed / self.run if self.seed else 0.0


class Design:
    """The rows and seeds of a set of runs, without scores."""

    def __init__(self, rows: Sequence[str], seeds: Sequence[int]):
        self.rows = list(dict.fromkeys(rows))
        self.x = _indicators(rows)
        self.z = _indicators(seeds)
        left, _, _ = np.linalg.svd(self.x)
        orthogonal = left[:, self.x.shape[1] :]
        self.eigenvalues, vectors = np.linalg.eigh(orthogonal.T @ self.z @ self.z.T @ orthogonal)
        self.basis = orthogonal @ vectors  # y @ basis are the components a
        self.is_residual = self.eigenvalues < _ZERO

    @property
    def separates_seeds(self) -> bool:
        """True if σ² and τ² can be estimated separately."""
        return self.is_residual.sum() >= LEAST_RESIDUALS and not self.is_residual.all()

    def fit(self, scores: Float[np.ndarray, "runs"]) -> Components | None:
        """Estimates the variances by REML; None if no row has two runs."""
        components = scores @ self.basis
        is_rounding = np.abs(components) <= _ZERO * np.abs(scores).max(initial=0)
        squares = np.where(is_rounding, 0, components) ** 2
        freedom = len(squares)
        if not freedom:
            return None
        total = float(squares.mean())
        ratio = self._ratio(squares) if self.separates_seeds and total else 0.0
        if not ratio:
            covariance = np.array([[2 * total**2 / freedom, 0], [0, 0]])
            return Components(total, 0.0, covariance, freedom, total, freedom)
        scale = 1 + ratio * self.eigenvalues
        run = float((squares / scale).mean())
        weights = np.stack([np.ones(freedom), self.eigenvalues]) / (run * scale)
        covariance = np.linalg.inv(weights @ weights.T / 2)
        residuals = int(self.is_residual.sum())
        return Components(run, ratio * run, covariance, residuals, total, freedom)

    def _ratio(self, squares: Float[np.ndarray, "components"]) -> float:
        """Returns the estimate of τ²/σ², 0 if the likelihood has its maximum at 0."""
        residual = squares[self.is_residual].sum()
        rest, eigenvalues = squares[~self.is_residual], self.eigenvalues[~self.is_residual]

        def deviance(logarithm: float) -> float:
            scale = 1 + np.exp(logarithm) * eigenvalues
            return len(squares) * np.log(residual + (rest / scale).sum()) + np.log(scale).sum()

        if not residual:
            return 0.0
        found = scipy.optimize.minimize_scalar(deviance, bounds=(-12, 8), method="bounded")
        return float(np.exp(found.x)) if found.fun < deviance(-np.inf) - _ZERO else 0.0

    def weights(self, ratio: float) -> Float[np.ndarray, "rows runs"]:
        """Returns the weights of the runs in each row's mean, by GLS with τ²/σ² = ratio."""
        if not ratio:
            return self.x.T / self.x.sum(0)[:, None]
        covariance = np.eye(len(self.x)) + ratio * self.z @ self.z.T
        scaled = np.linalg.solve(covariance, self.x)
        return np.linalg.solve(self.x.T @ scaled, scaled.T)


@functools.lru_cache(maxsize=32)
def design(rows: tuple[str, ...], seeds: tuple[int, ...]) -> Design:
    """Returns the design of runs with these rows and seeds."""
    return Design(rows, seeds)


def outlying(scores: Mapping[str, Sequence[float]], base: str) -> set[str]:
    """Returns the rows whose variance over seeds is significantly above that of the other rows.

    Row i is tested by F = sᵢ² / s², where s² is pooled over the other rows, with Holm's correction
    for the number of rows. Base is always pooled.
    """
    several = {row: np.array(runs) for row, runs in scores.items() if len(runs) > 1}
    squares = {row: ((runs - runs.mean()) ** 2).sum() for row, runs in several.items()}
    freedoms = {row: len(runs) - 1 for row, runs in several.items()}
    p_values = {}
    for row in several:
        freedom = sum(freedoms.values()) - freedoms[row]
        others = sum(squares.values()) - squares[row]
        if row != base and freedom and others > 0:
            ratio = squares[row] / freedoms[row] / (others / freedom)
            p_values[row] = float(scipy.special.fdtrc(freedoms[row], freedom, ratio))
    corrected = multiple.holm(p_values)
    return {row for row, p_value in corrected.items() if p_value < multiple.LEVEL}


def _indicators(values: Sequence[object]) -> Float[np.ndarray, "runs values"]:
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.eye(len(places))[[places[value] for value in values]]
