"""Evaluation on held-out pairs: likelihoods, translations, BLEU and F1."""

import functools
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import errors, files, models, sequences
from transformer_jax.data import batching, objectives, packing, tokenizer, treebank, trees
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.distributed import sharding
from transformer_jax.evaluation import bleu, measures, parseval
from transformer_jax.models import embedding, interface
from transformer_jax.training import losses

_log = logging.getLogger(__name__)

LARGEST = 700  # nats per token; exp of more overflows
WORDS = 10  # words that a bucket of F1 by length spans
BATCH_TOKENS = 8192  # target positions computed together
NLL_FILE = "nll.json"  # file of a run's folder with the negative log-likelihoods of a set


class Packed(NamedTuple):
    """A batch of examples, with the number of the example in each segment of each row."""

    batch: sequences.Batch
    numbers: Int[np.ndarray, "B segments"]  # -1 in segment 0, which is padding

    def at(self, segments: Int[np.ndarray, "B T"]) -> Int[np.ndarray, "B T"]:
        """Returns the number of the example at each position, given the positions' segments."""
        return np.take_along_axis(self.numbers, segments, axis=1)


class Likelihoods(NamedTuple):
    """The negative log-likelihood of each held-out example, summed over the example's labels."""

    nats: Float[np.ndarray, "examples"]
    tokens: Int[np.ndarray, "examples"]  # number of labels, EOS included

    @property
    def perplexity(self) -> float:
        """The perplexity, exp(mean negative log-likelihood per token)."""
        return math.exp(self.nats.sum() / self.tokens.sum())

    def write(self, folder: files.Path, name: str) -> None:
        """Writes the likelihoods into a run's folder.

        Args:
          folder: the run's folder.
          name: the name of the set. For "dev" the file is nll.json, for "test" test_nll.json.
        """
        values = {"nats": self.nats.tolist(), "tokens": self.tokens.tolist()}
        files.write_json(folder / f"{prefix(name)}{NLL_FILE}", values)


def packed(
    examples: Sequence[objectives.Example], config: config_lib.DataConfig, mesh: jax.sharding.Mesh
) -> list[Packed]:
    """Packs examples into batches, each example once.

    Rows have the lengths in the config, or the length of the longest example if that is greater.
    """
    lengths = np.array([(len(example.source), len(example.target)) for example in examples]) + 1
    least = (config.source_length, config.target_length)
    longest = lengths.max(axis=0).tolist()
    capacities = tuple(max(pair) for pair in zip(least, longest, strict=True))
    rows = [list(row) for row in packing.pack(*lengths.T, *capacities)]
    batch_rows = min(len(rows), max(1, BATCH_TOKENS // capacities[1]))
    batch_rows += -batch_rows % sharding.batch_shards(mesh)
    rows += [[]] * (-len(rows) % batch_rows)
    batches = []
    for start in range(0, len(rows), batch_rows):
        some = rows[start : start + batch_rows]
        batch = batching.fill([[examples[i] for i in row] for row in some], *capacities)
        numbers = np.full((len(some), 1 + max(map(len, some))), -1)
        for i, row in enumerate(some):
            numbers[i, 1 : 1 + len(row)] = row
        batches.append(Packed(batch, numbers))
    return batches


def likelihoods(
    model: interface.Architecture,
    examples: Sequence[objectives.Example],
    config: config_lib.DataConfig,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], Likelihoods]:
    """Returns a function that computes the likelihoods of examples' labels, given parameters.

    All labels count, including EOS, and none is smoothed. Probabilities are over the tokenizer's
    ids, without language tags and the objective's ids. The function raises RunError if the model
    has diverged.
    """
    batches = packed(examples, config, mesh)
    shard_rows = len(batches[0].batch.labels) // sharding.batch_shards(mesh)
    platform = mesh.devices.flat[0].platform

    @functools.partial(jax.jit, out_shardings=sharding.replicated(mesh))
    def of_positions(
        params: Any, batch: sequences.Batch
    ) -> tuple[Float[Array, "B T"], Int[Array, "B T"]]:
        """Returns the negative log-likelihood and the segment of each label.

        Both are 0 at positions without a label.
        """
        with sharding.activation_rules(mesh):
            outputs, labels, segments = models.predictions(model, params, batch)
            words = embedding.of(params)[: config.vocab_size]  # without the objective's extra ids
            chunks = losses.chunks(shard_rows, outputs.shape[1], config.vocab_size, platform)
            nll = losses.negative_log_likelihoods(outputs, words, labels, segments, chunks)
            return nll, jnp.where(labels == tokenizer.PAD, 0, segments)

    def measure(params: Any) -> Likelihoods:
        nats, tokens = np.zeros(len(examples)), np.zeros(len(examples), np.int64)
        for packed_batch in batches:
            batch = sharding.put(packed_batch.batch, mesh)
            nll, segments = map(np.asarray, of_positions(params, batch))
            numbers = packed_batch.at(segments)
            counted = numbers >= 0
            nats += np.bincount(numbers[counted], nll[counted], len(examples))
            tokens += np.bincount(numbers[counted], minlength=len(examples))
        mean = nats.sum() / tokens.sum()
        if not mean < LARGEST:
            raise errors.RunError(
                f"the model diverged ({mean} nats per token): lower "
                "train.learning_rate_scale or raise train.warmup_steps, in another --workdir"
            )
        return Likelihoods(nats, tokens)

    return measure


def prefix(name: str) -> str:
    """Returns the prefix of the names of a set's files: "" for "dev", "test_" for "test"."""
    return "" if name == "dev" else f"{name}_"


def held_out(
    dataset: dataset_lib.Dataset, config: config_lib.Config
) -> dict[str, tuple[dataset_lib.HeldOut, str]]:
    """Returns the sets on which a run is scored, each with its target language.

    The keys are the sets' names. The main direction has "dev" and, if test sets are scored, "test".
    A further direction has, for example, "de-en" and "de-en_test".
    """
    main = dataset_lib.Direction(config.data.target_language, dataset.dev, dataset.test)
    sets = {}
    for name, (language, dev, test) in {"": main, **dataset.directions}.items():
        sets[name or "dev"] = (dev, language)
        if config.evaluation.score_test and len(test):
            sets[f"{name}_test" if name else "test"] = (test, language)
    return sets


class Measured(NamedTuple):
    """A model's likelihoods and translations of a set, from which `score` computes scores."""

    likelihoods: Likelihoods
    hypotheses: list[str]  # translations
    seconds: float  # time that likelihoods and translations took


def measure(
    pairs: dataset_lib.HeldOut,
    translator: translator_lib.Translator,
    likelihoods_of: Callable[[Any], Likelihoods],
) -> Measured:
    """Computes a model's likelihoods and translations of a set.

    The processes of a run share the work, and each process returns all results.

    Args:
      pairs: the set.
      translator: the model.
      likelihoods_of: the function that `likelihoods` returns for the set.
    """
    started = time.monotonic()
    measured = likelihoods_of(translator.params)
    hypotheses = translator.translate_ids(
        pairs.source_ids,
        lambda done: _log.info(f"translated {done:,} of {len(pairs):,} sentences"),
    )
    return Measured(measured, hypotheses, time.monotonic() - started)


def score(
    name: str, pairs: dataset_lib.HeldOut, measured: Measured, language: str, workdir: files.Path
) -> dict[str, Any]:
    """Scores a model's likelihoods and translations, and writes files into the run's folder.

    The files are sources.txt, hypotheses.txt, references.txt and, for tests of significance,
    nll.json and bleu_counts.json, with `bleu.counts` of the main variant. The
    file names begin with the set's name and "_", such as test_nll.json, unless the set is "dev".
    Without sources, only nll.json is written.

    Args:
      name: the name of the set.
      pairs: the set.
      measured: the model's likelihoods and translations.
      language: the target language.
      workdir: the run's folder.

    Returns:
      `ppl` and `eval_seconds`; if there are sources, `bleu` by variant; and if the targets are
      trees, `parses` as `score_parses` returns it.
    """
    ppl = measured.likelihoods.perplexity
    file_prefix = prefix(name)
    measured.likelihoods.write(workdir, name)
    if not any(pairs.source):
        _log.info("%s: ppl %.3f", name, ppl)
        return {"ppl": ppl, "eval_seconds": measured.seconds}
    hypotheses = measured.hypotheses
    files.write_lines(workdir / f"{file_prefix}sources.txt", pairs.source)
    files.write_lines(workdir / f"{file_prefix}hypotheses.txt", hypotheses)
    files.write_lines(workdir / f"{file_prefix}references.txt", pairs.target)
    main_variant = bleu.main_variant(language)
    counts = bleu.counts(hypotheses, pairs.target, language, main_variant).tolist()
    files.write_json(workdir / f"{file_prefix}bleu_counts.json", {main_variant: counts})
    scores = bleu.score(hypotheses, pairs.target, language)
    main = scores[main_variant]
    _log.info("%s: ppl %.3f, BLEU %.2f (%s)", name, ppl, main["score"], main["signature"])
    parses = score_parses(file_prefix, pairs, hypotheses, workdir) if pairs.trees else {}
    return {"ppl": ppl, "bleu": scores, **parses, "eval_seconds": measured.seconds}


def score_parses(
    prefix: str, pairs: dataset_lib.HeldOut, hypotheses: Sequence[str], workdir: files.Path
) -> dict[str, Any]:
    """Scores linearised trees with PARSEVAL, and writes trees and counts into the run's folder.

    The files are trees.mrg (references), parses.mrg (hypotheses, repaired) and parse_counts.json.

    Args:
      prefix: the prefix of the file names.
      pairs: the set.
      hypotheses: the linearised trees that the model wrote.
      workdir: the run's folder.

    Returns:
      `parses`: the scores of `parseval.score`, the percentage of `malformed` trees, and F1
      `by_length` in words.
    """
    golds = list(treebank.parse(pairs.trees, "the references"))
    words = [gold.words for gold in golds]
    results = [
        trees.from_linearised(hypothesis, sentence)
        for hypothesis, sentence in zip(hypotheses, words, strict=True)
    ]
    parses = [tree for tree, _ in results]
    malformed = 100 * float(np.mean([not is_well_formed for _, is_well_formed in results]))
    counts = parseval.counts(golds, parses)
    files.write_lines(workdir / f"{prefix}trees.mrg", [trees.bracketed(tree) for tree in golds])
    files.write_lines(workdir / f"{prefix}parses.mrg", [trees.bracketed(tree) for tree in parses])
    f1 = measures.MEASURES[measures.F1]
    files.write_json(workdir / f"{prefix}{f1.file}", {measures.F1: counts.tolist()})
    lengths = list(map(len, words))
    scores = parseval.score(counts)
    _log.info(
        f"F1 {scores['f1']:.2f} (recall {scores['recall']:.2f}, precision "
        f"{scores['precision']:.2f}), {malformed:.2f}% of the trees malformed"
    )
    buckets = f1.by_length(counts, lengths, bleu.bounds(lengths, WORDS), "words", "f1")
    return {"parses": {**scores, "malformed": malformed, "by_length": buckets}}


def by_length(
    dataset: dataset_lib.Dataset, hypotheses: Sequence[str], language: str, width: int
) -> dict[str, Any]:
    """Returns BLEU on the development set by source length in tokens.

    Args:
      dataset: the run's dataset.
      hypotheses: translations of the development set.
      language: the target language.
      width: the number of tokens that a bucket of lengths spans.

    Returns:
      `bleu_by_length`, the score of each bucket, and `bleu_beyond_training`, the score of sentences
      that are longer than all training sources. The dictionary is empty if there are no sources.
    """
    if not any(dataset.dev.source):
        return {}
    lengths = [max(len(ids) - dataset.tag_tokens, 0) for ids in dataset.dev.source_ids]
    counts = bleu.counts(hypotheses, dataset.dev.target, language, bleu.main_variant(language))
    score = functools.partial(measures.MEASURES[bleu.MAIN].by_length, counts, lengths)
    trained = int(dataset.source.lengths[dataset.usable].max()) - dataset.tag_tokens
    return {
        "bleu_by_length": score(bleu.bounds(lengths, width)),
        "bleu_beyond_training": score([trained])[-1] if max(lengths) > trained else None,
    }


def lengths(dataset: dataset_lib.Dataset, tokens_per_second: float | None) -> dict[str, Any]:
    """Returns mean lengths of sentences, and the speed of training in sentences per second.

    Args:
      dataset: the run's dataset.
      tokens_per_second: target tokens per second in training; None: unknown.

    Returns:
      `tokens_per_sentence` of the development set, with EOS and tags, and `sentences_per_second`
      if the speed is known.
    """
    dev, trained = dataset.dev, dataset.target.lengths[dataset.usable] + 1
    sides = {"source": dev.source_ids, "target": dev.target_ids}
    result: dict[str, Any] = {
        "tokens_per_sentence": {
            side: float(np.mean([len(ids) + 1 for ids in lists])) for side, lists in sides.items()
        }
    }
    if tokens_per_second is not None:
        result["sentences_per_second"] = tokens_per_second / float(np.mean(trained))
    return result
