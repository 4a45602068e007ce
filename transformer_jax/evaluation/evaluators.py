"""What a trained model is worth on held-out pairs: perplexity, translations and BLEU."""

import functools
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import errors, files, models, sequences
from transformer_jax.data import batching, packing
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.distributed import sharding
from transformer_jax.evaluation import bleu
from transformer_jax.models import embedding, interface
from transformer_jax.training import losses

_log = logging.getLogger(__name__)

LARGEST = 700  # nats per token whose exponential is still a number
BATCH_TOKENS = 8192  # target positions computed together


def perplexity(
    model: interface.Architecture,
    pairs: dataset_lib.HeldOut,
    config: config_lib.DataConfig,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], float]:
    """exp(mean negative log-likelihood) of reference tokens, as a function of the parameters.

    Every sentence counts, whatever its length, and so does every EOS; there is no smoothing. Pairs
    are packed into rows of the config's lengths or, if one is longer, of its length.

    Returns:
      The function; it raises RunError if the model has diverged.
    """
    source, target = pairs.source_ids, pairs.target_ids
    source_lengths = np.array([len(ids) + 1 for ids in source])
    target_lengths = np.array([len(ids) + 1 for ids in target])
    capacities = (
        max(config.source_length, int(source_lengths.max())),
        max(config.target_length, int(target_lengths.max())),
    )
    plan = packing.pack(source_lengths, target_lengths, *capacities)
    rows = [[(source[pair], target[pair]) for pair in row] for row in plan]
    parts = sharding.batch_shards(mesh)
    batch_rows = -(-min(len(rows), max(1, BATCH_TOKENS // capacities[1])) // parts) * parts
    rows += [[]] * (-len(rows) % batch_rows)
    platform = mesh.devices.flat[0].platform
    loss_chunks = losses.chunks(batch_rows // parts, capacities[1], config.vocab_size, platform)
    batches = [
        batching.fill(rows[start : start + batch_rows], *capacities)
        for start in range(0, len(rows), batch_rows)
    ]

    @functools.partial(jax.jit, out_shardings=sharding.replicated(mesh))
    def sums(params: Any, batch: sequences.Batch) -> losses.Losses:
        with sharding.activation_rules(mesh):
            return losses.cross_entropy(
                models.outputs(model, params, batch),
                embedding.of(params),
                batch.labels,
                batch.target.segments,
                0.0,
                loss_chunks,
            )

    def measure(params: Any) -> float:
        found = [sums(params, sharding.put(batch, mesh)) for batch in batches]
        nats, tokens = (sum(float(part[i]) for part in found) for i in (1, 2))
        if not nats / tokens < LARGEST:
            raise errors.RunError(f"the model diverged: {nats / tokens} nats per token")
        return math.exp(nats / tokens)

    return measure


class Measured(NamedTuple):
    """A model on a set: perplexity, translations, and the seconds that both took."""

    ppl: float
    hypotheses: list[str]
    seconds: float


def measure(
    pairs: dataset_lib.HeldOut,
    translator: translator_lib.Translator,
    perplexity_of: Callable[[Any], float],
) -> Measured:
    """Measures a model on a set; where several processes divide it, each gets the whole."""
    started = time.monotonic()
    ppl = perplexity_of(translator.params)
    hypotheses = translator.translate_ids(
        pairs.source_ids,
        lambda done: _log.info("translated %s of %s sentences", f"{done:,}", f"{len(pairs):,}"),
    )
    return Measured(ppl, hypotheses, time.monotonic() - started)


def score(
    name: str, pairs: dataset_lib.HeldOut, measured: Measured, language: str, workdir: files.Path
) -> dict[str, Any]:
    """Scores what was measured on a set: `ppl`, `bleu` by variant, and `eval_seconds`.

    Leaves in the folder what it was measured by: sources.txt, hypotheses.txt, references.txt and,
    for tests of significance, bleu_counts.json, what `bleu.counts` gives for the variants that
    tables compare. The files of another set than "dev" begin with its name.
    """
    prefix = "" if name == "dev" else f"{name}_"
    hypotheses = measured.hypotheses
    files.write_lines(workdir / f"{prefix}sources.txt", pairs.source)
    files.write_lines(workdir / f"{prefix}hypotheses.txt", hypotheses)
    files.write_lines(workdir / f"{prefix}references.txt", pairs.target)
    files.write_json(
        workdir / f"{prefix}bleu_counts.json",
        {
            variant: bleu.counts(hypotheses, pairs.target, language, variant).tolist()
            for variant in (bleu.MAIN, bleu.PAPER)
        },
    )
    scores = bleu.score(hypotheses, pairs.target, language)
    main = scores[bleu.MAIN]
    _log.info("%s: ppl %.3f, BLEU %.2f (%s)", name, measured.ppl, main["score"], main["signature"])
    return {"ppl": measured.ppl, "bleu": scores, "eval_seconds": measured.seconds}


def by_length(
    dataset: dataset_lib.Dataset, hypotheses: Sequence[str], width: int
) -> dict[str, Any]:
    """BLEU on the development set by source length in tokens, and beyond those trained on."""
    lengths = [len(tokens) for tokens in dataset.dev.source_ids]

    def score(bounds: Sequence[int]) -> list[bleu.Bucket]:
        return bleu.score_by_length(hypotheses, dataset.dev.target, lengths, bounds)

    trained = int(dataset.source.lengths[dataset.usable].max())
    return {
        "bleu_by_length": score(bleu.bounds(lengths, width)),
        "bleu_beyond_training": score([trained])[-1] if max(lengths) > trained else None,
    }
