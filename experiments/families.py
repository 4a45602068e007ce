"""What came after the paper: other objectives and other families, under one recipe, in one table.

  python -m experiments.families --config=configs/toy.py --workdir=runs/families
  python -m experiments.families --config=configs/multi30k.py --workdir=runs/families_multi30k \
      --claim_seeds=3 --reuse=experiments/published/multi30k --config.data.train=PATH/train …

runs what has no result yet, then prints the table and what papers claim beside what these runs say.
Rows that those claims compare have at least --claim_seeds runs each.

Rows L keep one stack, or share the weights of two: at base's sizes, and a decoder alone also with
as many layers as both of base's stacks. Rows E are models of whole texts, trained on hidden words,
and what their weights then start. Rows O train on an objective for the first eighth of their steps
and translate for the others. The last two have bytes instead of pieces, and both directions in one
model.
"""

import functools
from typing import Any

from absl import flags

from experiments.results import claims as claims_report
from experiments.results import families as report
from experiments.stats import claims
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
# Encoders alone, and ELMo. Rows "… pairs" go on from those, or from nothing, to tell a translation
# from another sentence of equal length; rows "… translator" to translate.
ENCODERS: dict[str, dict[str, Any]] = {
    "E BERT": {"model.architecture": "encoder", "train.objective": "bert"},
    "E RoBERTa": {"model.architecture": "encoder", "train.objective": "roberta"},
    "E DistilBERT": {"model.architecture": "encoder", "train.objective": "roberta"},
    "E ELMo": {"model.architecture": "elmo", "model.position": "none", "train.objective": "elmo"},
}
NOTHING = "E nothing"
LARGER = 2  # times BERT's batch is RoBERTa's, in as many times fewer steps
# Times base's batch is that of who is asked for hidden words: as many words a step as base says.
HIDDEN = round(1 / corruption.SHARE)
HIDDEN_RATE = 2  # times base's learning rate, for batches so much larger
# Times base's learning rate is that of rows "… pairs", which have BERT's batch and RoBERTa's steps.
# At base's own batch and rate three of the five answered by chance to their end, on the toy, with
# earlier, harder negatives.
MATCHING_RATE = 0.5
BYTES_A_TOKEN = 5  # at most, of the sentences of English and German corpora, in BPE tokens
LENGTHS = (  # in tokens
    "data.source_length",
    "data.target_length",
    "train.batch_tokens",
    "decode.extra_tokens",
    "log.bucket_tokens",
)
PART = 8  # of the steps one in so many is the objective's
VARIED = ("model.architecture", "train.objective", *report.VARIED)
# An objective leaves a longer plateau behind it, and the longer the higher the rate; the toy's own
# recipe would end on it. Factors, for all rows.
TOY = {"train.num_steps": 1.5, "train.warmup_steps": 2}


def rows_for(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """The rows for a configuration taken as base; the toy's have another recipe, all the same.

    Raises:
      UserError: the base has an objective, or is of another family.
    """
    for field in VARIED:
        found, allowed = (config_lib.get(each, field) for each in (base, config_lib.DEFAULTS))
        if found != allowed:
            raise errors.UserError(
                f"the rows vary {field}: in base it should be {allowed}, not {found}"
            )
    factors = TOY if base.data.corpus == "toy" else {}
    recipe = {field: round(by * config_lib.get(base, field)) for field, by in factors.items()}
    own = config_lib.replace(base, recipe)
    objectives = {
        row: {"train.objective": kind, "train.objective_steps": max(own.train.num_steps // PART, 1)}
        for row, kind in OBJECTIVES.items()
    }
    rows = {"base": {}, **_stacks(own.model.num_layers), **objectives, **_encoders(own)}
    rows |= _multilingual(own)
    return {row: {**recipe, **changes} for row, changes in rows.items()}


def _stacks(num_layers: int) -> dict[str, dict[str, Any]]:
    """L: a decoder alone, which sees its source as it sees its target or as an encoder does."""
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
    """Rows E; what reads two sentences has rows for both, and as many fewer of them."""
    train, layers = base.train, base.model.num_layers
    whole = {
        "train.objective_steps": train.num_steps,
        "data.target_length": base.data.source_length + base.data.target_length,
    }
    rows = {name: {**changes, **whole} for name, changes in ENCODERS.items()}
    batch = HIDDEN * train.batch_tokens
    for name in ("E BERT", "E RoBERTa", "E DistilBERT"):
        rows[name]["train.batch_tokens"] = batch
        rows[name]["train.learning_rate_scale"] = HIDDEN_RATE * train.learning_rate_scale
    fewer_steps = {
        "train.num_steps": train.num_steps // LARGER,
        "train.objective_steps": train.num_steps // LARGER,
        "train.warmup_steps": train.warmup_steps // LARGER,
    }
    rows["E RoBERTa"] |= {**fewer_steps, "train.batch_tokens": LARGER * batch}
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
        "train.learning_rate_scale": MATCHING_RATE * train.learning_rate_scale,
        "train.teacher_layers": 0,
    }
    judges = {
        f"{name} pairs": {**changes, "train.start_from": name, **matching}
        for name, changes in rows.items()
    }
    judges[f"{NOTHING} pairs"] = {**rows["E BERT"], "train.start_from": "", **matching}
    translators = {
        f"{name} translator": {"train.start_from": name} for name in ("E BERT", "E RoBERTa")
    }
    return {**rows, **judges, **translators}


def _multilingual(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns rows of mT5 and ByT5 in small, with base's number of steps.

    A model of bytes has rows and batches longer by the bytes of a token, so that it sees about as
    many sentences. One of two directions sees half as many of each.
    """
    longer = {field: BYTES_A_TOKEN * config_lib.get(base, field) for field in LENGTHS}
    one, other = base.data.source_language, base.data.target_language
    return {
        "bytes": {"data.vocabulary": "bytes", **longer},
        "two directions": {"data.directions": f"{one}-{other},{other}-{one}"},
    }


# T5's numbers are BLEU on newstest2014, English to German, after training on another corpus first,
# 2^35 tokens of it: here only their signs can be compared.
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
    f"steps. {claims_report.RULES} {claims_report.RECIPE}"
)

TABLE = table.Table(
    "families",
    "Objectives and families after the paper",
    rows_for,
    least_seeds=lambda row: flags.FLAGS.claim_seeds if row in COMPARED else 1,
    needed=COMPARED,
    sections=(
        functools.partial(claims_report.section, claims=CLAIMS, note=NOTE),
        report.multilingual,
        report.encoder_only,
    ),
)

if __name__ == "__main__":
    from experiments.scheduling import runner  # whose flags are those of a command alone

    flags.DEFINE_integer(
        "claim_seeds", 1, "Least runs of each row that a published claim compares.", lower_bound=1
    )
    flags_lib.run(lambda: runner.main(TABLE))
