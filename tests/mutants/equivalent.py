"""Drawn mutants that change nothing that anyone could see, each with the reason why."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Equivalent(NamedTuple):
    """A line, what a mutant makes of it ("": nothing), and why that is the same."""

    old: str
    new: str
    why: str


EQUIVALENT: Mapping[str, Sequence[Equivalent]] = {
    "experiments/analysis/significance.py": [
        Equivalent(
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 + DRAWS)",
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 | DRAWS)",
            "DRAWS is even, so that its last bit is free",
        ),
        Equivalent(
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 + DRAWS)",
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 ^ DRAWS)",
            "DRAWS is even, so that its last bit is free",
        ),
        Equivalent(
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 + DRAWS)",
            "return (1 + np.count_nonzero(np.array(exchanged) > observed - 1e-12)) / (1 + DRAWS)",
            "1e-12 is room for rounding: no difference lies exactly so far below the measured one",
        ),
        Equivalent(
            "ours_first, theirs_first = np.hstack([1 - swaps, swaps]), "
            "np.hstack([swaps, 1 - swaps])",
            "ours_first, theirs_first = np.hstack([1 >> swaps, swaps]), "
            "np.hstack([swaps, 1 - swaps])",
            "of 0 and 1 both make the other",
        ),
        Equivalent(
            "for seeds in range(fewest, MOST_SEEDS + 1):",
            "for seeds in range(fewest, MOST_SEEDS | 1):",
            "MOST_SEEDS is even",
        ),
        Equivalent(
            "return float(scipy.special.nctdtrinc(freedom, 1 - often, asked))",
            "return float(scipy.special.nctdtrinc(freedom, 1 % often, asked))",
            "of 0.8 and 0.9 the remainder of 1 is the difference",
        ),
        Equivalent(
            "if variance**0.5 * _reach(freedom, level, often) <= distance:",
            "if variance**0.5 * _reach(freedom, level, often) < distance:",
            "no measured variance reaches a distance exactly",
        ),
    ],
    "transformer_jax/decoding/beam_search.py": [
        Equivalent(
            "sentences = np.where(np.arange(fewer) < len(left), sentences[rows], -1)",
            "sentences = np.where(np.arange(fewer) < len(left), sentences[rows], ~1)",
            "any number below 0 is no sentence",
        ),
    ],
    "transformer_jax/decoding/sampling.py": [
        Equivalent(
            '"top_k": lambda best, settings: jnp.full(best.shape[:-1], settings.top_k),',
            '"top_k": lambda best, settings: jnp.full(best.shape[:- 0], settings.top_k),',
            "one number without a shape is that of every row",
        ),
        Equivalent(
            "return (tokens, ended | (tokens == tokenizer_lib.EOS), state), tokens",
            "return (tokens, ended + (tokens == tokenizer_lib.EOS), state), tokens",
            "of truths the sum is the disjunction",
        ),
    ],
    "transformer_jax/decoding/translator.py": [
        Equivalent(
            "LONG = 1024  # tokens; a longer sentence is translated by itself, if there is memory "
            "for it",
            "LONG = 1025  # tokens; a longer sentence is translated by itself, if there is memory "
            "for it",
            "a sentence is translated as well by itself as among others; any such length would do",
        ),
    ],
    "transformer_jax/evaluation/attention_weights.py": [
        Equivalent(
            "target_length += source_length == target_length",
            "target_length += source_length <= target_length",
            "one more position of padding, where lengths differ before and after: it is cut off",
        ),
    ],
    "transformer_jax/evaluation/bleu.py": [
        Equivalent(
            "return np.array(rows, np.int32).reshape(-1, 10)",
            "return np.array(rows, np.int32).reshape(- 2, 10)",
            "to NumPy any negative size is the one to find out",
        ),
    ],
    "transformer_jax/models/decoder.py": [
        Equivalent(
            "lengths = state.source_mask[:, 0, 0].sum(axis=-1, keepdims=True)",
            "lengths = state.source_mask[:, 0, 0].sum(axis=+1, keepdims=True)",
            "of two dimensions the last is number 1",
        ),
    ],
    "transformer_jax/models/hypotheses.py": [
        Equivalent(
            "return self._replace(ancestors=ancestors), own & masks.causal(here, self.slots)",
            "return self._replace(ancestors=ancestors), own * masks.causal(here, self.slots)",
            "of truths the product is the conjunction",
        ),
    ],
    "transformer_jax/models/recurrent_cells.py": [
        Equivalent(
            "return (z * state[0] + (1 - z) * jnp.tanh(x_n + r * h_n),)",
            "return (z * state[ -1] + (1 - z) * jnp.tanh(x_n + r * h_n),)",
            "a GRU's state has one part",
        ),
    ],
    "transformer_jax/training/metrics.py": [
        Equivalent("@final", "", "it is for those who check types; nothing happens at run time"),
    ],
    "transformer_jax/training/step.py": [
        Equivalent(
            "hyper, key = jax.eval_shape(lambda: (hyperparameters(config), jax.random.key(0)))",
            "hyper, key = jax.eval_shape(lambda: (hyperparameters(config), jax.random.key( 1)))",
            "of the key only its shape is looked at",
        ),
    ],
}


def why(module: str, diff: Sequence[str]) -> str:
    """The reason why a mutant of a module is equivalent, or an empty text."""
    found = [line[1:].strip() for line in diff if line[1:].strip()]
    for each in EQUIVALENT.get(module, ()):
        if found == [line for line in (each.old, each.new) if line]:
            return each.why
    return ""
