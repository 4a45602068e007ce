"""Training objectives for the first steps of a run, whose examples are made from plain texts.

An example is a pure function of the seed, the epoch and the text's number (`examples`). To add an
objective, write its class and add it to KINDS.
"""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, final

import numpy as np
from jaxtyping import Integer

from transformer_jax import config as config_lib
from transformer_jax import fields
from transformer_jax.data import corruption, directions
from transformer_jax.data import tokenizer as tokenizer_lib

NONE = "none"  # train.objective of a run that translates from its first step
BERT_MASKINGS = 10  # Devlin et al. 2019 mask each text in ten ways (their dupe_factor)
PAIR_CLASSIFICATION = "matching"
Tokens = Sequence[int] | Integer[np.ndarray, "_"]
# Single sentences, pairs of a sentence and its translation, or candidates: pairs of a sentence and
# either its translation or another sentence.
Texts = Literal["sentence", "pair", "candidate"]


class Example(NamedTuple):
    """Token ids of a source and a target, and the labels of the target's positions.

    The model reads BOS and the target, and has one label at each of these positions. If `labels` is
    None, the labels are the target and EOS, which a decoder predicts. A label of PAD does not
    count.
    """

    source: Tokens  # without EOS
    target: Tokens  # without BOS and EOS
    labels: Tokens | None = None  # one more than the target has tokens


class Ids(NamedTuple):
    """Ids of a run that has an objective.

    The tokenizer's ids are followed by the tags of directions, and then by the objective's ids.
    """

    vocab_size: int  # number of the tokenizer's ids
    first_extra: int  # first id of the objective: the mask, or the first sentinel


class Objective(abc.ABC):
    """A training objective, which makes examples from texts."""

    # Whether each label is about the token at its position, not the following token. Such an
    # objective trains architectures that are not decoders and read the whole target.
    encoder_only: ClassVar[bool] = False
    # Whether few positions have labels, and the model cannot see the labels there.
    masked: ClassVar[bool] = False

    texts: Texts = "sentence"
    distinct_epochs: int = 0  # epochs after which examples repeat; 0: they never do
    # Encoder-only: names of the objectives on whose held-out examples a model is scored. Its
    # perplexity is measured on the examples of the first objective.
    scored_by: tuple[str, ...] = ()

    def extra_ids(self, longest: int) -> int:
        """Returns how many ids the objective adds to the vocabulary.

        Args:
          longest: most tokens of a text.
        """
        return 0

    @abc.abstractmethod
    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        """Returns an example made from a text.

        Its source and its target have at most as many tokens as the text.
        """


@final
class SpanCorruption(Objective):
    """T5's span corruption (Raffel et al. 2020).

    In the source, sentinels replace spans of the text; the target lists these spans.
    """

    def extra_ids(self, longest: int) -> int:
        return corruption.number_of_spans(longest) + 1

    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        spans = corruption.random_spans(len(text), rng)
        source, target = corruption.with_sentinels(text, spans, ids.first_extra)
        return Example(source, target)


@final
class Prefix(Objective):
    """The objective of a prefix language model (Raffel et al. 2020, section 3.2.3).

    The source is the beginning of the text; the target is its continuation.
    """

    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        split = int(rng.integers(1, len(text)))
        return Example(text[:split], text[split:])


@final
class BertStyle(Objective):
    """BERT's masking for an encoder–decoder (Raffel et al. 2020, section 3.3.1).

    In the source, some tokens are masked or replaced; the target is the whole text.
    """

    def extra_ids(self, longest: int) -> int:
        return 1

    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        chosen = corruption.random_tokens(len(text), rng)
        shares = (0.9, 0.1)
        source = corruption.masked(text, chosen, shares, ids.vocab_size, ids.first_extra, rng)
        return Example(source, text)


class EncoderObjective(Objective):
    """A base class of objectives for encoder-only models; the source is empty."""

    encoder_only = True

    def extra_ids(self, longest: int) -> int:
        # The mask and the two labels of pair classification: one number for all objectives, so that
        # a run can start from the weights of another.
        return 3


@final
@dataclasses.dataclass(frozen=True)
class MaskedTokens(EncoderObjective):
    """A masked language model (Devlin et al. 2019, section 3.1).

    Of the chosen tokens, 80% are masked, 10% are replaced by random tokens and 10% are kept.
    """

    masked = True

    texts: Texts
    distinct_epochs: int = 0
    scored_by: tuple[str, ...] = ("bert_words",)

    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        chosen = corruption.random_tokens(len(text), rng)
        chosen &= text != tokenizer_lib.EOS  # the separator of two sentences
        shares = (0.8, 0.1)
        target = corruption.masked(text, chosen, shares, ids.vocab_size, ids.first_extra, rng)
        return Example((), target, [tokenizer_lib.PAD, *np.where(chosen, text, tokenizer_lib.PAD)])


@final
class AllTokens(EncoderObjective):
    """ELMo's objective: every token is a label, unmasked (Peters et al. 2018).

    The model must not see a token at the position that predicts it.
    """

    scored_by = ("elmo",)

    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        return Example((), text, [tokenizer_lib.PAD, *text])


@final
class PairClassification(EncoderObjective):
    """Pair classification: is the second sentence a translation of the first?

    No tokens are masked. The label is predicted at the position of BOS; `examples` sets it.
    """

    masked = True
    texts = "candidate"
    scored_by = (PAIR_CLASSIFICATION,)

    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        return Example((), text, [tokenizer_lib.PAD] * (len(text) + 1))


def pair_labels(ids: Ids) -> tuple[int, int]:
    """Returns the two labels of pair classification, for a translation and for another sentence.

    They are the two ids after that of the mask.
    """
    return ids.first_extra + 1, ids.first_extra + 2


KINDS: dict[str, Objective] = {
    "span_corruption": SpanCorruption(),
    "prefix": Prefix(),
    "bert_style": BertStyle(),
    # RoBERTa masks anew in each epoch.
    "roberta": MaskedTokens("pair"),
    "bert_words": MaskedTokens("pair", BERT_MASKINGS),
    "bert": MaskedTokens("candidate", BERT_MASKINGS, scored_by=("bert_words", PAIR_CLASSIFICATION)),
    "elmo": AllTokens(),
    PAIR_CLASSIFICATION: PairClassification(),
}


def of(config: config_lib.Config) -> Objective | None:
    """Returns the objective of a config, or None if it translates from its first step.

    Raises:
      UserError: the objective is unknown.
    """
    name = config.train.objective
    fields.require_known("train.objective", name, (NONE, *KINDS))
    return KINDS.get(name)


def ids_of(config: config_lib.Config) -> Ids:
    """Returns the `Ids` of a run with this config."""
    vocab_size = config.data.vocab_size
    return Ids(vocab_size, vocab_size + len(directions.tags(config.data)))


def longest_text(config: config_lib.Config) -> int:
    """Returns the number of tokens of the longest text that fits into a row with BOS or EOS.

    The text must fit into a source row and a target row; with an encoder-only objective, into a
    target row alone.
    """
    objective, data = of(config), config.data
    if objective is not None and objective.encoder_only:
        return data.target_length - 1
    return min(data.source_length, data.target_length) - 1
