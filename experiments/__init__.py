"""The tables of the repository: rows, sweeps, statistics and reports."""

import os
from typing import TYPE_CHECKING

import transformer_jax as transformer_jax  # prepares the environment for matplotlib

if TYPE_CHECKING:
    from experiments import interface

__all__ = ["load"]


def load(folder: str | os.PathLike[str]) -> "interface.Sweep":
    """Returns the results of a sweep; see `experiments.interface`.

    Raises:
      UserError: the folder holds no sweep, or a file is damaged.
    """
    from experiments import interface  # here, since commands do not need it

    return interface.load(folder)
