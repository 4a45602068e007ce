"""What objectives do to the tokens of a text: pure functions of the tokens and a generator.

A text has at least `SHORTEST` tokens. Masks are true where tokens are chosen. How many are chosen
depends on the text's length alone; which ones is drawn.
"""

import numpy as np
from jaxtyping import Bool, Int, Integer

from transformer_jax.data import tokenizer as tokenizer_lib

SHORTEST = 3  # tokens; of fewer, what is corrupted would take more room than the text
SHARE = 0.15  # of the tokens that T5 and BERT corrupt
MEAN_SPAN = 3  # tokens of one of T5's spans, on average

Text = Integer[np.ndarray, "n"]
Tokens = Integer[np.ndarray, "_"]


def number_chosen(length: int) -> int:
    """Tokens that are chosen in a text: about the share, at least one, never all."""
    return min(max(round(length * SHARE), 1), length - 1)


def number_of_spans(length: int) -> int:
    """Spans into which T5 divides the chosen tokens of a text."""
    return max(round(number_chosen(length) / MEAN_SPAN), 1)


def random_spans(length: int, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """As many tokens as T5 corrupts, in as many spans, between which others stand.

    All such masks are equally likely. T5's own code draws evenly among those that begin with a kept
    token and end with a corrupted one, which of one span leaves no choice: every text of 30 tokens
    or fewer would lose its end.
    """
    chosen, spans = number_chosen(length), number_of_spans(length)
    sizes = _composition(chosen, spans, rng)
    # Between spans stands a token at least; before the first and after the last there may be none.
    gaps = _composition(length - chosen + 2, spans + 1, rng)
    gaps[[0, -1]] -= 1
    runs = np.insert(gaps, np.arange(1, spans + 1), sizes)  # of kept and chosen tokens in turn
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def _composition(number: int, parts: int, rng: np.random.Generator) -> Int[np.ndarray, "parts"]:
    """So many parts, each at least 1, whose sum is the number; all such are equally likely."""
    cuts = np.sort(rng.choice(number - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [number]]))


def random_words(length: int, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """As many tokens as BERT chooses, each wherever it may be."""
    mask = np.zeros(length, bool)
    mask[rng.choice(length, number_chosen(length), replace=False)] = True
    return mask


def with_sentinels(text: Text, spans: Bool[np.ndarray, "n"], first: int) -> tuple[Tokens, Tokens]:
    """A text in which each span is a sentinel, and the spans, each after its sentinel.

    Sentinels are the ids first, first + 1, …; the one after the last ends the spans.
    """
    begins = spans & ~np.concatenate([[False], spans[:-1]])
    kept = np.where(begins, first + np.cumsum(begins) - 1, text)[begins | ~spans]
    starts = np.append(np.flatnonzero(begins[spans]), spans.sum())
    return kept, np.insert(text[spans], starts, first + np.arange(len(starts)))


def masked(
    text: Text,
    chosen: Bool[np.ndarray, "n"],
    shares: tuple[float, float],
    words: int,
    mask: int,
    rng: np.random.Generator,
) -> Text:
    """A text of which chosen tokens are hidden, each for itself.

    The shares are of the chosen: of those that become the id `mask`, and of those that become any
    id below `words` but special ones; the rest stays. BERT: 0.8 and 0.1; T5's "BERT-style": 0.9 and
    0.1.
    """
    draws = rng.random(len(text))
    others = rng.integers(tokenizer_lib.UNK + 1, words, len(text))
    hidden, replaced = draws < shares[0], draws < sum(shares)
    found = np.where(hidden, mask, np.where(replaced, others, text))
    return np.where(chosen, found, text)
