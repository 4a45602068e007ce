"""Datasets of token ids: a corpus, its tokenizer and the cache of its encoded training set."""

import dataclasses
import hashlib
import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from transformer_jax import config as config_lib
from transformer_jax import errors, fields
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import directions, objectives, overlap, text, token_cache, toy, treebank
from transformer_jax.data import tokenizer as tokenizer_lib

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """A development or test set, as text and as token ids.

    The ids do not include BOS and EOS. A test set may be empty.
    """

    source: list[str]
    target: list[str]
    source_ids: list[list[int]]  # with tags if the model has several directions
    target_ids: list[list[int]]
    trees: list[str] = dataclasses.field(default_factory=list)  # see `corpus.Pairs`

    def __len__(self) -> int:
        return len(self.source)

    @property
    def examples(self) -> list[objectives.Example]:
        """The pairs as a list of `objectives.Example`."""
        pairs = zip(self.source_ids, self.target_ids, strict=True)
        return [objectives.Example(source, target) for source, target in pairs]


class TokenPairs(NamedTuple):
    """Encoded training pairs."""

    source: token_cache.Lists  # without BOS and EOS
    target: token_cache.Lists  # their translations
    usable: Int[np.ndarray, "pairs"]  # indices of training pairs that are not empty or too long


class Direction(NamedTuple):
    """The held-out sets of one direction."""

    target_language: str
    dev: HeldOut
    test: HeldOut


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The data of a run."""

    tokenizer: tokenizer_lib.Tokenizer  # shared by all languages
    source: token_cache.Lists  # training sentences with tags, without BOS and EOS
    target: token_cache.Lists  # their translations
    usable: Int[np.ndarray, "pairs"]  # indices of training pairs that are not empty or too long
    # Training pairs without tags. For each pair of languages, one direction is included.
    texts: TokenPairs
    tag_tokens: int  # tags at each source's start: 0 or 1
    dev: HeldOut  # of the main direction
    test: HeldOut  # of the main direction
    directions: Mapping[str, Direction]  # all but the main direction, by name, such as de-en
    digests: Mapping[str, str]  # SHA-256 of corpus (train and dev), tokenizer and test set
    provenance: Mapping[str, Any]  # sources of the corpus, and numbers of dropped pairs


def _load_tfds(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> corpus_lib.Corpus:
    from transformer_jax.data import wmt  # imported late, because TFDS takes a second

    return wmt.load(config, cache_dir)


CORPORA: dict[str, Callable[[config_lib.DataConfig, pathlib.Path], corpus_lib.Corpus]] = {
    "toy": lambda config, _: toy.load(config),
    "text": lambda config, _: text.load(config),
    "tfds": _load_tfds,
    "trees": lambda config, _: treebank.load(config),
    "toy_parsing": lambda config, _: treebank.load_toy(config),
}
# The fields of data whose files each corpus reads.
FILES: dict[str, tuple[str, ...]] = {
    "text": ("train", "dev", "test"),
    "trees": ("train", "dev", "test", "parsed"),
    "toy_parsing": ("parsed",),
}


def load(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> Dataset:
    """Loads the corpus of a configuration, and encodes it with its tokenizer.

    The tokenizer and the encoded training set are read from the cache if the cache contains them.
    Otherwise the tokenizer is trained, the training set is encoded, and both are cached.

    Raises:
      UserError: fields contradict one another, the corpus cannot be read, the tokenizer cannot be
        trained, or no training pair is usable.
    """
    read = fields.lookup("data.corpus", config.corpus, CORPORA)
    for field in ("train", "dev", "test", "parsed"):
        if getattr(config, field) and field not in FILES.get(config.corpus, ()):
            others = " or ".join(name for name, names in FILES.items() if field in names)
            raise errors.UserError(
                f"data.{field} is set, but data.corpus={config.corpus} reads no such files: "
                f"leave it out, or set data.corpus to {others}"
            )
    if config.directions and config.corpus in treebank.CORPORA:
        raise errors.UserError(
            f"data.directions={config.directions}: data.corpus={config.corpus} has one direction, "
            "from words to trees; leave it out"
        )
    configs = directions.of(config)
    names = [directions.name(each) for each in configs]
    corpora = [read(each, cache_dir) for each in configs]
    languages = [{each.source_language, each.target_language} for each in configs]
    # The first direction of each pair of languages: en-de, but not de-en.
    one_per_language_pair = [i for i, pair in enumerate(languages) if languages.index(pair) == i]
    tokenizer = _tokenizer(config, [corpora[i] for i in one_per_language_pair], cache_dir)
    tag_ids = directions.tags(config)
    tags = [[tag_ids[each.target_language]] if tag_ids else [] for each in configs]
    loaded = [
        _load_direction(direction_config, corpus, tag, tokenizer, cache_dir)
        for direction_config, corpus, tag in zip(configs, corpora, tags, strict=True)
    ]
    pairs, held_out, provenances = zip(*loaded, strict=True)
    main, *others = corpora
    digests = {"corpus": main.digest, "tokenizer": tokenizer.digest, "test": main.test_digest}
    provenance = provenances[0]
    if tag_ids:
        lines = [
            f"{name} {corpus.digest} {corpus.test_digest}\n"
            for name, corpus in zip(names[1:], others, strict=True)
        ]
        digests["directions"] = hashlib.sha256("".join(lines).encode()).hexdigest()
        provenance["directions"] = dict(zip(names[1:], provenances[1:], strict=True))
    joined = _joined(pairs, tags)
    return Dataset(
        tokenizer=tokenizer,
        source=joined.source,
        target=joined.target,
        usable=joined.usable,
        texts=_joined([pairs[i] for i in one_per_language_pair], [[]] * len(one_per_language_pair)),
        tag_tokens=len(tags[0]),
        dev=held_out[0].dev,
        test=held_out[0].test,
        directions=dict(zip(names[1:], held_out[1:], strict=True)),
        digests=digests,
        provenance=provenance,
    )


def _tokenizer(
    config: config_lib.DataConfig, corpora: Sequence[corpus_lib.Corpus], cache_dir: pathlib.Path
) -> tokenizer_lib.Tokenizer:
    """Returns a tokenizer that is trained on all corpora together, from the cache if possible."""
    train, digest = corpora[0].train, corpora[0].train_digest
    if len(corpora) > 1:
        train = corpus_lib.JoinedPairs([corpus.train for corpus in corpora])
        digests = " ".join(corpus.train_digest for corpus in corpora)
        digest = hashlib.sha256(digests.encode()).hexdigest()
    if not any(source.strip() or target.strip() for source, target in train.read()):
        raise errors.UserError("the training set is empty: all its lines are blank")
    vocabulary = fields.lookup("data.vocabulary", config.vocabulary, tokenizer_lib.VOCABULARIES)
    symbols = sorted({symbol for corpus in corpora for symbol in corpus.symbols})
    return vocabulary(train, config.vocab_size, config.tokenizer_pairs, digest, cache_dir, symbols)


def _load_direction(
    config: config_lib.DataConfig,
    corpus: corpus_lib.Corpus,
    tag: list[int],
    tokenizer: tokenizer_lib.Tokenizer,
    cache_dir: pathlib.Path,
) -> tuple[TokenPairs, Direction, dict[str, Any]]:
    """Returns a direction's training pairs, its held-out sets and its provenance."""
    key = hashlib.sha256(f"{corpus.train_digest} {tokenizer.digest}".encode()).hexdigest()[:16]
    source, target = token_cache.encoded(corpus.train, tokenizer, cache_dir / f"tokens-{key}")
    usable, dropped = _usable(source, target, config, len(tag))

    def held_out(pairs: corpus_lib.Pairs) -> HeldOut:
        sources = [[*tag, *ids] if ids else [] for ids in tokenizer.encode_lines(pairs.source)]
        targets = tokenizer.encode_lines(pairs.target)
        return HeldOut(pairs.source, pairs.target, sources, targets, pairs.trees)

    direction = Direction(config.target_language, held_out(corpus.dev), held_out(corpus.test))
    languages = [config.source_language, config.target_language]
    repeated = overlap.find(corpus, cache_dir)
    about = {"languages": languages, "dropped": dropped, "overlap": repeated}
    return TokenPairs(source, target, usable), direction, {**corpus.provenance, **about}


def _joined(parts: Sequence[TokenPairs], tags: Sequence[list[int]]) -> TokenPairs:
    """Concatenates the pairs of several parts, and puts the tag of a part before its sources."""
    if len(parts) == 1 and not tags[0]:
        return parts[0]
    starts = np.cumsum([0, *(len(part.source) for part in parts[:-1])])
    usable = [part.usable + start for part, start in zip(parts, starts, strict=True)]
    return TokenPairs(
        token_cache.JoinedLists([part.source for part in parts], tags),
        token_cache.JoinedLists([part.target for part in parts], [[]] * len(parts)),
        np.concatenate(usable).astype(np.int32),
    )


def longest(dataset: Dataset) -> tuple[int, int]:
    """Returns the greatest length of a held-out source and of a held-out target, EOS included."""
    held_out = [dataset.dev, dataset.test]
    for direction in dataset.directions.values():
        held_out += [direction.dev, direction.test]
    source, target = (
        1 + max(len(ids) for pairs in held_out for ids in getattr(pairs, side))
        for side in ("source_ids", "target_ids")
    )
    return source, target


def _usable(
    source: token_cache.Lists,
    target: token_cache.Lists,
    config: config_lib.DataConfig,
    tag_tokens: int,
) -> tuple[Int[np.ndarray, "pairs"], dict[str, int]]:
    """Returns the indices of the pairs to train on, and the numbers of dropped pairs by reason."""
    most = config.train_max_tokens
    empty = target.lengths == 0
    if config.source_language:
        empty |= source.lengths == 0
    # A row also contains EOS, and the source's tag.
    too_long = source.lengths + tag_tokens >= config.source_length
    too_long |= target.lengths >= config.target_length
    left_out = np.maximum(source.lengths, target.lengths) > (most or np.inf)
    kept = np.ones(len(source), bool)
    dropped = {}
    for reason, pairs in (("empty", empty), ("too_long", too_long), ("left_out", left_out)):
        dropped[reason] = int((kept & pairs).sum())
        kept &= ~pairs
    usable = np.flatnonzero(kept).astype(np.int32)
    _log.info(
        f"{len(usable):,} training pairs; dropped: {dropped['empty']:,} empty, "
        f"{dropped['too_long']:,} longer than data.source_length={config.source_length} or "
        f"data.target_length={config.target_length}"
    )
    if most:
        _log.info(f"left out: {dropped['left_out']:,} longer than data.train_max_tokens={most}")
    if not len(usable):
        raise errors.UserError(
            f"no training pair is left: {dropped['empty']:,} are empty and "
            f"{dropped['too_long'] + dropped['left_out']:,} too long: give other files, or raise "
            "data.source_length, data.target_length and data.train_max_tokens"
        )
    return usable, dropped
