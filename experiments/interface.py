"""Results of a sweep in Python, as pandas frames and Plotly figures.

import experiments

sweep = experiments.load("experiments/published/multi30k")
sweep                      # in a notebook: a short table
sweep.table()              # scores, differences from base and verdicts of each row
sweep.runs()               # the numbers of each run
sweep.curves()             # the metrics of each logged step of each run
sweep.plot()               # each row's difference from base, with intervals and the paper's
sweep.diff("base", "E")    # results, configurations and parameter arrays of two rows
"""

import functools
import os
from typing import final

import pandas as pd
import plotly.graph_objects as go

from experiments import compare
from experiments.results import comparison, documents, frames, plots, tables
from transformer_jax import errors, files


@final
class Sweep:
    """The results of a sweep."""

    def __init__(self, results: frames.Sweep) -> None:
        self._results = results

    @functools.cached_property
    def _compared(self) -> comparison.Comparison:
        return comparison.compare(self._results)

    def table(self) -> pd.DataFrame:
        """Returns a frame indexed by the rows of the table, with unrounded numbers.

        The columns are those of the table's file, such as table3.csv: means and standard deviations
        over runs, differences from base with the half-widths of their 95% intervals, verdicts, and
        the paper's numbers. Columns that begin with test_ are of the test set, others of the
        development set.
        """
        return documents.data(self._compared).set_index("row")

    def runs(self) -> pd.DataFrame:
        """Returns a frame with the row, seed, scores, cost and hashes of each finished run."""
        return self._results.runs.copy()

    def curves(self) -> pd.DataFrame:
        """Returns a frame with the row, seed, step and metrics of each logged step."""
        return self._results.curves.copy()

    def plot(self) -> go.Figure:
        """Returns a figure of each row's difference from base, with 95% intervals.

        Raises:
          UserError: no row has a difference from base.
        """
        figure = plots.differences_figure(self._compared)
        if figure is None:
            raise errors.UserError(f"{self._results.folder}: no row has a difference from base")
        return figure

    def diff(self, first: str, second: str) -> pd.DataFrame:
        """Returns the differences between two rows; results are of the development set.

        Args:
          first: the name of a row.
          second: the name of another row.

        Returns:
          A frame with the columns `first` and `second`, indexed by a kind and a name. The kinds are
          "results", "configuration" (fields that differ) and "parameters" (arrays whose shapes
          differ).

        Raises:
          UserError: the sweep has no such row.
        """
        (results, *differing), _ = compare.compare_rows(self._compared, [first, second])
        parts = {"results": results.frame.set_index("row").T}
        for table in differing:
            shown = table.frame.set_index(table.columns[0].source)
            parts[table.title.lower()] = shown.set_axis([first, second], axis="columns")
        return pd.concat(parts, names=["kind", "name"])

    def __repr__(self) -> str:
        description = self._results.description
        return (
            f"<Sweep {description.table} in {self._results.folder}: {len(description.rows)} rows, "
            f"{len(self._results.runs)} runs>"
        )

    def _repr_html_(self) -> str:
        table = documents.rows_table(self._compared)
        main = [column for column in table.columns if column.main]
        return tables.html(tables.Table(table.frame, main))


def load(folder: str | os.PathLike[str]) -> Sweep:
    """Returns the results in the folder of a sweep, or in a published folder.

    Raises:
      UserError: the folder holds no sweep, or a file is damaged.
    """
    return Sweep(frames.load(files.local_path(os.fspath(folder))))
