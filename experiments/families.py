"""Objectives and model families published after the paper, compared under one recipe.

  python -m experiments.families --config=configs/toy.py --workdir=runs/families
  python -m experiments.families --config=configs/multi30k.py --workdir=runs/families_multi30k \
      --claim_seeds=3 --reuse=experiments/published/multi30k --config.data.train=PATH/train …

The command runs the rows that have no result yet. It then prints the table, and a table that tests
published claims on these results. Rows that a claim compares have at least --claim_seeds runs.

Rows L are decoder-only models, and an encoder–decoder whose two stacks share their weights. A
decoder-only model has as many layers as one of base's stacks, or as both together (2N). Rows E are
encoder-only models, trained on masked words, and models that start from the weights of encoder-only
models. Rows O train on another objective for the first eighth of their steps, then on translation.
Row "bytes" reads and writes bytes instead of subword pieces. Row "two directions" is one model for
both translation directions.
"""

import functools
from typing import Any

from absl import flags

from experiments.results import claims
from experiments.results import families as report
from experiments.sweep import table
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax import flags as flags_lib
from transformer_jax.data import corruption

OBJECTIVES = {
    "O span corruption": "span_corruption",
    "O prefix": "prefix",
    "O BERT-style": "bert_style",
}
# Encoder-only models. Row "NAME pairs" starts from the weights of row NAME, and learns to tell a
# translation from another sentence of equal length; "E nothing pairs" starts from random weights.
# Row "NAME translator" starts from the weights of row NAME and learns to translate.
ENCODERS: dict[str, dict[str, Any]] = {
    "E BERT": {"model.architecture": "encoder", "train.objective": "bert"},
    "E RoBERTa": {"model.architecture": "encoder", "train.objective": "roberta"},
    "E DistilBERT": {"model.architecture": "encoder", "train.objective": "roberta"},
    "E ELMo": {"model.architecture": "elmo", "model.position": "none", "train.objective": "elmo"},
}
NOTHING = "E nothing"
# RoBERTa's batch relative to BERT's; its steps are divided by the same factor.
ROBERTA_BATCH_FACTOR = 2
# The batch of masked language models relative to base's, so that a step predicts as many words.
MASKED_BATCH_FACTOR = round(1 / corruption.SHARE)
MASKED_RATE_FACTOR = 2  # the learning rate of masked language models relative to base's
# The learning rate of rows "NAME pairs" relative to base's. These rows have the batch of "E BERT"
# and the number of steps of "E RoBERTa". With base's batch and rate, and with harder negatives,
# three of the five rows stayed at chance level on the toy corpus.
MATCHING_RATE_FACTOR = 0.5
BYTES_A_TOKEN = 5  # the most bytes per BPE token in sentences of English and German corpora
LENGTHS = (  # in tokens
    "data.source_length",
    "data.target_length",
    "train.batch_tokens",
    "decode.extra_tokens",
    "log.bucket_tokens",
)
OBJECTIVE_STEPS_DIVISOR = 8  # train.objective_steps is train.num_steps divided by it
VARIED = ("model.architecture", "train.objective", *report.VARIED)
# Factors for two fields of all rows on the toy corpus. Training on another objective first
# lengthens the plateau of the loss, the more so at a higher learning rate. With the values of
# configs/toy.py, training would end on the plateau.
TOY = {"train.num_steps": 1.5, "train.warmup_steps": 2}


def rows_for(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns the overrides of each row, base first.

    On the toy corpus, every row also has the changes of TOY.

    Args:
      base: the configuration that the rows change.

    Raises:
      UserError: base changes a field that the rows vary, or has a single layer.
    """
    table.require_defaults(base, VARIED)
    factors = TOY if base.data.corpus == "toy" else {}
    recipe = {field: round(by * config_lib.get(base, field)) for field, by in factors.items()}
    own = config_lib.replace(base, recipe)
    objective_steps = max(own.train.num_steps // OBJECTIVE_STEPS_DIVISOR, 1)
    objectives = {
        row: {"train.objective": kind, "train.objective_steps": objective_steps}
        for row, kind in OBJECTIVES.items()
    }
    rows = {"base": {}, **_stacks(own.model.num_layers), **objectives, **_encoders(own)}
    rows |= _multilingual(own)
    return {row: {**recipe, **changes} for row, changes in rows.items()}


def _stacks(num_layers: int) -> dict[str, dict[str, Any]]:
    """Returns the rows L: decoder-only models, and an encoder–decoder with shared weights.

    In rows "prefix", each source token attends to the whole source; in rows "causal", only to
    earlier tokens. A name with 2N has as many layers as base's encoder and decoder together.
    """
    causal = {"model.architecture": "decoder"}
    prefix = {**causal, "model.source_attention": "full"}
    both = {"model.num_layers": 2 * num_layers}
    return {
        "L decoder causal": causal,
        "L decoder causal 2N": {**causal, **both},
        "L decoder prefix": prefix,
        "L decoder prefix 2N": {**prefix, **both},
        "L shared stacks": {"model.share_stacks": True},
    }


def _encoders(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns rows E: encoder-only models, ELMo, and models that start from their weights.

    All of them except rows "NAME translator" read a source sentence and its translation as one
    sequence. Their data.target_length is therefore the sum of base's source and target lengths.
    """
    train, layers = base.train, base.model.num_layers
    whole = {
        "train.objective_steps": train.num_steps,
        "data.target_length": base.data.source_length + base.data.target_length,
    }
    rows = {name: {**changes, **whole} for name, changes in ENCODERS.items()}
    batch = MASKED_BATCH_FACTOR * train.batch_tokens
    for name in ("E BERT", "E RoBERTa", "E DistilBERT"):
        rows[name]["train.batch_tokens"] = batch
        rows[name]["train.learning_rate_scale"] = MASKED_RATE_FACTOR * train.learning_rate_scale
    fewer_steps = {
        "train.num_steps": train.num_steps // ROBERTA_BATCH_FACTOR,
        "train.objective_steps": train.num_steps // ROBERTA_BATCH_FACTOR,
        "train.warmup_steps": train.warmup_steps // ROBERTA_BATCH_FACTOR,
    }
    rows["E RoBERTa"] |= {**fewer_steps, "train.batch_tokens": ROBERTA_BATCH_FACTOR * batch}
    half = max((n for n in range(1, layers // 2 + 1) if not layers % n), default=0)
    if not half:
        raise errors.UserError(
            f"row 'E DistilBERT' has half of base's layers: model.num_layers={layers} should be at "
            "least 2"
        )
    rows["E DistilBERT"] |= {
        "model.num_layers": half,
        "train.start_from": "E BERT",
        "train.teacher_layers": layers,
    }
    matching = {
        **fewer_steps,
        "train.objective": "matching",
        "train.batch_tokens": batch,
        "train.learning_rate_scale": MATCHING_RATE_FACTOR * train.learning_rate_scale,
        "train.teacher_layers": 0,
    }
    pair_rows = {
        f"{name} pairs": {**changes, "train.start_from": name, **matching}
        for name, changes in rows.items()
    }
    pair_rows[f"{NOTHING} pairs"] = {**rows["E BERT"], "train.start_from": "", **matching}
    translators = {
        f"{name} translator": {"train.start_from": name} for name in ("E BERT", "E RoBERTa")
    }
    return {**rows, **pair_rows, **translators}


def _multilingual(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns rows "bytes" and "two directions", which are small versions of ByT5 and mT5.

    Row "bytes" has BYTES_A_TOKEN times base's lengths and batch, and thus trains on about as many
    sentences as base. Row "two directions" trains on half as many sentences of each direction.
    """
    longer = {field: BYTES_A_TOKEN * config_lib.get(base, field) for field in LENGTHS}
    one, other = base.data.source_language, base.data.target_language
    return {
        "bytes": {"data.vocabulary": "bytes", **longer},
        "two directions": {"data.directions": f"{one}-{other},{other}-{one}"},
    }


# T5's numbers are BLEU on newstest2014, English to German, after pre-training on 2^35 tokens of
# another corpus. Only the signs of their differences can be compared with results here.
T5 = "Raffel et al. 2020"
CLAIMS = (
    claims.Claim(
        "two stacks are better than one that sees its prefix whole, and that than a causal one",
        f"{T5}, table 2: 26.98, 26.43 and 25.09",
        [
            claims.Inequality("base", "L decoder prefix"),
            claims.Inequality("L decoder prefix", "L decoder causal"),
        ],
    ),
    claims.Claim(
        "one stack that sees its prefix whole is as good, if it has the layers of both",
        "Zhang et al. 2022 of large models, Gao et al. 2022: here papers disagree",
        [claims.Inequality("L decoder prefix 2N", "base", strictly=False)],
    ),
    claims.Claim(
        "to see the source one way alone hurts",
        "Zhang et al. 2022, of translation",
        [claims.Inequality("L decoder prefix 2N", "L decoder causal 2N")],
    ),
    claims.Claim(
        "two stacks of the same weights are nearly as good",
        f"{T5}, table 2: 26.72, where two stacks have 26.98",
        [claims.Inequality("L shared stacks", "base", strictly=False)],
    ),
    claims.Claim(
        "to restore spans first helps",
        f"{T5}, table 1: 26.98 with, 25.86 without",
        [claims.Inequality("O span corruption", "base")],
    ),
    claims.Claim(
        "to restore spans is better than to go on with a text",
        f"{T5}, table 2, encoder–decoder: 26.98 and 26.27",
        [claims.Inequality("O span corruption", "O prefix")],
    ),
    claims.Claim(
        "of masked words, their spans are no worse a target than the whole text",
        f"{T5}, table 5: 26.98 and 26.78",
        [claims.Inequality("O span corruption", "O BERT-style", strictly=False)],
    ),
)
COMPARED = claims.compared_rows(CLAIMS)
NOTE = (
    "T5's numbers are after training on far more text, so that only their signs compare. Rows O "
    "train on the texts of the training pairs, and on nothing else, for the first part of their "
    f"steps. {claims.RULES} {claims.RECIPE}"
)

TABLE = table.Table(
    "families",
    "Objectives and families after the paper",
    rows_for,
    least_seeds=lambda row: flags.FLAGS.claim_seeds if row in COMPARED else 1,
    needed=COMPARED,
    sections=(
        functools.partial(claims.section, claims=CLAIMS, note=NOTE),
        report.multilingual,
        report.encoder_only,
    ),
)

if __name__ == "__main__":
    from experiments.scheduling import runner  # defines the flags of a command

    flags.DEFINE_integer(
        "claim_seeds", 1, "Least runs of each row that a published claim compares.", lower_bound=1
    )
    flags_lib.run(lambda: runner.main(TABLE))
