"""What does each part of the Transformer buy? Table 3 of the paper, in JAX."""

from transformer_jax.runs.run_folder import load

__all__ = ["load"]
__version__ = "0.1.0"
