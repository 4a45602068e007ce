"""Corruption of a text's tokens for training objectives.

Some of a text's tokens are chosen; they are then masked, replaced or removed. Masks are True at the
chosen tokens. The number of chosen tokens depends only on the text's length, which is at least
`SHORTEST`. The positions of the chosen tokens are random.
"""

import numpy as np
from jaxtyping import Bool, Int, Integer

from transformer_jax.data import tokenizer as tokenizer_lib

SHORTEST = 3  # tokens; corrupting a shorter text would make it longer
SHARE = 0.15  # share of tokens that T5 and BERT corrupt
MEAN_SPAN = 3  # mean tokens of a span of T5

Text = Integer[np.ndarray, "n"]
Tokens = Integer[np.ndarray, "_"]


def number_chosen(length: int) -> int:
    """Returns the number of tokens to corrupt in a text, about SHARE of all its tokens.

    At least one token is corrupted, and at least one is not.

    Args:
      length: the number of tokens in the text.
    """
    return min(max(round(length * SHARE), 1), length - 1)


def number_of_spans(length: int) -> int:
    """Returns the number of spans into which T5 divides the chosen tokens of a text.

    Args:
      length: the number of tokens in the text.
    """
    return max(round(number_chosen(length) / MEAN_SPAN), 1)


def random_spans(length: int, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """Draws a random mask of `number_chosen` tokens in `number_of_spans` spans that do not touch.

    All such masks are equally likely. This differs from T5's code, which draws only masks that are
    False at the first token and True at the last. A text of 30 tokens or fewer has a single span.
    T5's code would always place it at the end of the text.

    Args:
      length: the number of tokens in the text.
      rng: source of the random numbers.
    """
    chosen, spans = number_chosen(length), number_of_spans(length)
    sizes = _composition(chosen, spans, rng)
    # Gaps between spans have at least one token; the first and the last gap may be empty.
    gaps = _composition(length - chosen + 2, spans + 1, rng)
    gaps[[0, -1]] -= 1
    runs = np.insert(gaps, np.arange(1, spans + 1), sizes)  # alternately kept and chosen
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def _composition(number: int, parts: int, rng: np.random.Generator) -> Int[np.ndarray, "parts"]:
    """Returns `parts` positive integers whose sum is `number`; all choices are equally likely."""
    cuts = np.sort(rng.choice(number - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [number]]))


def random_tokens(length: int, rng: np.random.Generator) -> Bool[np.ndarray, "n"]:
    """Draws a mask of `number_chosen` tokens at random positions, as for BERT.

    Args:
      length: the number of tokens in the text.
      rng: source of the random numbers.
    """
    mask = np.zeros(length, bool)
    mask[rng.choice(length, number_chosen(length), replace=False)] = True
    return mask


def with_sentinels(text: Text, spans: Bool[np.ndarray, "n"], first: int) -> tuple[Tokens, Tokens]:
    """Replaces the spans of a text by sentinels, as in T5.

    Args:
      text: token ids.
      spans: True at the tokens of spans.
      first: the id of the first sentinel; the others follow it.

    Returns:
      Two lists of ids: the text with a sentinel in place of each span; and all spans, each preceded
      by its sentinel, with one more sentinel at the end.
    """
    begins = spans & ~np.concatenate([[False], spans[:-1]])
    kept = np.where(begins, first + np.cumsum(begins) - 1, text)[begins | ~spans]
    starts = np.append(np.flatnonzero(begins[spans]), spans.sum())
    return kept, np.insert(text[spans], starts, first + np.arange(len(starts)))


def masked(
    text: Text,
    chosen: Bool[np.ndarray, "n"],
    shares: tuple[float, float],
    vocab_size: int,
    mask: int,
    rng: np.random.Generator,
) -> Text:
    """Returns a text in which each chosen token is masked, replaced by a random token or kept.

    Each chosen token is drawn independently.

    Args:
      text: token ids.
      chosen: True at the chosen tokens.
      shares: the probability that a chosen token is masked, and the probability that it is replaced
        by a random token. BERT has 0.8 and 0.1; T5's "BERT-style" objective has 0.9 and 0.1.
      vocab_size: random tokens are ids below this number, without special tokens.
      mask: the id of the mask.
      rng: source of the random numbers.
    """
    draws = rng.random(len(text))
    random_ids = rng.integers(tokenizer_lib.UNK + 1, vocab_size, len(text))
    hidden, replaced = draws < shares[0], draws < sum(shares)
    corrupted = np.where(hidden, mask, np.where(replaced, random_ids, text))
    return np.where(chosen, corrupted, text)
