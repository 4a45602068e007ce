"""Training objectives other than translation, for the first steps of a run.

The examples of an objective are made from texts. An example depends only on the seed, the epoch and
the text's number (see `examples`). To add an objective, write its class and add it to KINDS.
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

NONE = "none"  # value of train.objective for a run that translates from its first step
BERT_MASKINGS = 10  # Devlin et al. 2019 mask each text in ten ways (their dupe_factor)
PAIR_CLASSIFICATION = "matching"
Tokens = Sequence[int] | Integer[np.ndarray, "_"]
# Single sentences, pairs of a sentence and its translation, or candidates: pairs of a sentence and
# either its translation or another sentence.
Texts = Literal["sentence", "pair", "candidate"]


class Example(NamedTuple):
    """Token ids of a source and a target, and the labels of the target's positions.

    The model reads BOS and the target, and there is a label for each of these positions. If
    `labels` is None, the labels are the tokens of the target, followed by EOS, as a decoder
    predicts them. Positions with the label PAD do not count.
    """

    source: Tokens  # without EOS
    target: Tokens  # without BOS and EOS
    labels: Tokens | None = None  # one more than the target has tokens


class Ids(NamedTuple):
    """The ranges of token ids in a run that has an objective.

    The tokenizer's ids come first, then the tags of directions, then the objective's own ids, such
    as the mask.
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
    distinct_epochs: int = 0  # number of epochs after which examples repeat; 0: they never repeat
    # Encoder-only: names of the objectives on whose held-out examples a model is scored. Its
    # perplexity is measured on the examples of the first objective.
    scored_by: tuple[str, ...] = ()

    def extra_ids(self, longest: int) -> int:
        """Returns the number of ids that the objective adds to the vocabulary.

        Args:
          longest: the greatest number of tokens in a text.
        """
        return 0

    @abc.abstractmethod
    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        """Returns an example made from a text.

        The example's source and target have at most as many tokens as the text.

        Args:
          text: the text's token ids.
          rng: source of the random numbers.
          ids: the ids that the objective may use.
        """


@final
class SpanCorruption(Objective):
    """T5's span corruption (Raffel et al. 2020).

    The source is the text with a sentinel in place of each of some spans. The target consists of
    these spans, each after its sentinel.
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
    """Base class of objectives for encoder-only models, whose examples have an empty source."""

    encoder_only = True

    def extra_ids(self, longest: int) -> int:
        # The mask and the two labels of pair classification. All encoder-only objectives have the
        # same ids, so that a run can start from the weights of a run with another objective.
        return 3


@final
@dataclasses.dataclass(frozen=True)
class MaskedTokens(EncoderObjective):
    """The objective of a masked language model (Devlin et al. 2019, section 3.1).

    15% of the tokens are chosen as labels. Of these, 80% are masked, 10% are replaced by random
    tokens and 10% are kept.
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
    """ELMo's objective: to predict every token of a text without masks (Peters et al. 2018).

    The architecture must ensure that the position that predicts a token does not see it.
    """

    scored_by = ("elmo",)

    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        return Example((), text, [tokenizer_lib.PAD, *text])


@final
class PairClassification(EncoderObjective):
    """Pair classification: to predict whether the second sentence is a translation of the first.

    No token is replaced by a mask. The only label is at the position of BOS. `example` leaves it
    PAD, and `examples.CandidateExamples` sets it.
    """

    masked = True  # few positions have labels, and the model does not see them
    texts = "candidate"
    scored_by = (PAIR_CLASSIFICATION,)

    def example(self, text: corruption.Text, rng: np.random.Generator, ids: Ids) -> Example:
        return Example((), text, [tokenizer_lib.PAD] * (len(text) + 1))


def pair_labels(ids: Ids) -> tuple[int, int]:
    """Returns the two labels of pair classification, for a translation and for another sentence.

    Both labels are token ids, which follow the id of the mask.
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
    """Returns the greatest number of tokens in a text that fits into a row with BOS or EOS.

    The text must fit into both a source row and a target row. With an encoder-only objective, it
    must fit into a target row only.
    """
    objective = of(config)
    data = config.data
    if objective is not None and objective.encoder_only:
        return data.target_length - 1
    return min(data.source_length, data.target_length) - 1
