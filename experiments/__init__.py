"""The tables of the repository: rows, sweeps, statistics and reports."""

import transformer_jax as transformer_jax  # prepares the environment for matplotlib
