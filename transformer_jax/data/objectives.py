"""What a run may train on before it translates: texts, corrupted, and what is to be said of them.

What is made of a text is a pure function of the seed, the epoch and its number (`examples`). To add
an objective, write its function and its line in KINDS.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, final

import numpy as np
from jaxtyping import Integer

from transformer_jax import config as config_lib
from transformer_jax.data import corruption, directions
from transformer_jax.data import tokenizer as tokenizer_lib

NONE = "none"  # train.objective: a run translates from its first step
BERT_DRAWINGS = 10  # Devlin et al. 2019 mask each text in ten ways beforehand (their dupe_factor)
Tokens = Sequence[int] | Integer[np.ndarray, "_"]


class Example(NamedTuple):
    """What is read and what is said, as ids.

    Where labels are None, the target is said: it follows a BOS, and an EOS follows it. Otherwise
    they are what is to be said at BOS and at each token of the target; PAD: nothing, which does not
    count.
    """

    source: Tokens  # without EOS
    target: Tokens  # without BOS and EOS
    labels: Tokens | None = None


class Ids(NamedTuple):
    """What ids are; between words and an objective's own stand the tags of directions, if any."""

    words: int  # so many are the tokenizer's
    own: int  # the first of the objective's: the one that hides a token, or the first sentinel


@final
@dataclasses.dataclass(frozen=True)
class Objective:
    """A kind of example that is made of a text."""

    # An example, no side of which is longer than the text.
    make: Callable[[corruption.Text, np.random.Generator, Ids], Example]
    extra_ids: Callable[[int], int] = lambda longest: 0  # for texts of at most so many tokens
    # Whether labels are of what stands at a position, not of what follows: for architectures that
    # are no decoders, and see the whole target.
    in_place: bool = False
    asks_few: bool = False  # whether most positions of a text have no label
    in_sight: bool = False  # whether the words that it asks for stand where they are said
    drawings: int = 0  # epochs before the first one's examples come again; 0: they never do
    words: str = "bert_words"  # the kind by which held-out words are asked for; "": none are
    # The texts: single sentences, pairs of translations, or sources with a right or wrong target.
    reads: Literal["sentence", "pair", "candidate"] = "sentence"


def _span_corruption(text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
    """T5's: each span becomes a sentinel, and is said after it (Raffel et al. 2020, figure 2)."""
    spans = corruption.random_spans(len(text), rng)
    return Example(*corruption.with_sentinels(text, spans, ids.own))


def _prefix(text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
    """A prefix language model's: the text goes on from anywhere (ibid., section 3.2.3)."""
    split = int(rng.integers(1, len(text)))
    return Example(text[:split], text[split:])


def _bert_style(text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
    """BERT's masking, whose target is the whole text (ibid., section 3.3.1)."""
    chosen = corruption.random_words(len(text), rng)
    hidden = corruption.masked(text, chosen, (0.9, 0.1), *ids, rng)
    return Example(hidden, text)


def _masked_words(text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
    """BERT's: of the tokens chosen, 80% are hidden and 10% replaced (Devlin et al. 2019, 3.1)."""
    chosen = corruption.random_words(len(text), rng)
    chosen &= text != tokenizer_lib.EOS  # between two sentences
    hidden = corruption.masked(text, chosen, (0.8, 0.1), *ids, rng)
    return Example((), hidden, [tokenizer_lib.PAD, *np.where(chosen, text, tokenizer_lib.PAD)])


def answers(ids: Ids) -> tuple[int, int]:
    """The ids that say, at BOS, that one sentence is the other's translation, and that it is not.

    They come after the id that hides a token.
    """
    return ids.own + 1, ids.own + 2


# The same number of extra ids in all, so that one's weights can start another's run.
_OF_WHOLE_TEXTS: dict[str, Any] = {"extra_ids": lambda longest: 3, "in_place": True}
_FEW_WORDS: dict[str, Any] = {**_OF_WHOLE_TEXTS, "asks_few": True}
KINDS: dict[str, Objective] = {
    "span_corruption": Objective(
        _span_corruption, lambda longest: corruption.number_of_spans(longest) + 1
    ),
    "prefix": Objective(_prefix),
    "bert_style": Objective(_bert_style, lambda longest: 1),
    # RoBERTa's, whose masks are drawn anew each epoch; BERT's words alone, and with its question;
    # ELMo's, each word, of which a model sees those on one side (Peters et al. 2018); and the
    # question alone.
    "roberta": Objective(_masked_words, **_FEW_WORDS, reads="pair"),
    "bert_words": Objective(_masked_words, **_FEW_WORDS, drawings=BERT_DRAWINGS, reads="pair"),
    "bert": Objective(_masked_words, **_FEW_WORDS, drawings=BERT_DRAWINGS, reads="candidate"),
    "elmo": Objective(
        lambda text, *_: Example((), text, [tokenizer_lib.PAD, *text]),
        **_OF_WHOLE_TEXTS,
        in_sight=True,
        words="elmo",
    ),
    "matching": Objective(
        lambda text, *_: Example((), text, [tokenizer_lib.PAD] * (len(text) + 1)),
        **_FEW_WORDS,
        words="",
        reads="candidate",
    ),
}


def ids_of(config: config_lib.Config) -> Ids:
    """What ids a run has for its objective."""
    words = config.data.vocab_size
    return Ids(words, words + len(directions.tags(config.data)))


def asks_few(config: config_lib.Config) -> bool:
    """Whether most positions of a training batch have no label."""
    kind = KINDS.get(config.train.objective)
    return kind is not None and kind.asks_few


def longest_text(config: config_lib.Config) -> int:
    """Tokens of a text that either row has room for, its EOS or BOS besides.

    What an objective in place reads stands in target rows alone.
    """
    kind, data = KINDS.get(config.train.objective), config.data
    in_place = kind is not None and kind.in_place
    return min(data.target_length, data.target_length if in_place else data.source_length) - 1
