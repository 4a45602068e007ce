"""Ablations of the Transformer: Table 3 of "Attention Is All You Need", in JAX."""

import importlib.util
import os

from transformer_jax.runs.run_folder import load

__all__ = ["load"]
__version__ = "0.1.0"

# Figures need no backend. Kernels of notebooks pass MPLBACKEND on to their subprocesses, in whose
# environment the module may be missing; matplotlib could then not be imported.
_scheme, _, _backend = os.environ.get("MPLBACKEND", "").partition("://")
if _scheme == "module" and importlib.util.find_spec(_backend.partition(".")[0]) is None:
    del os.environ["MPLBACKEND"]
