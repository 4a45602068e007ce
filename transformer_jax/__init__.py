"""Ablations of the Transformer: Table 3 of "Attention Is All You Need", in JAX."""

from transformer_jax.runs.run_folder import load

__all__ = ["load"]
__version__ = "0.1.0"
