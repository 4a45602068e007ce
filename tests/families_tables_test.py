"""Further tables of the families, against numbers by hand."""

import math

import pytest

from configs import toy
from experiments import families
from experiments.results import comparable, labels, lengths
from experiments.results import families as tables_of
from tests import sweeps
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.data import objectives

BASE = config_lib.from_mapping(toy.get_config().to_dict())
ROWS = families.rows_for(BASE)


def run(bleu, target_tokens, **more):
    return {
        "bleu": bleu,
        "bleu_signature": "s",
        "params": 100,
        "ppl": math.e**2,
        "source_tokens": 9.0,
        "target_tokens": target_tokens,
        "tokens_per_second": 1000.0,
        "sentences_per_second": 40.0,
        "data_sha256": "corpus",
        "tokenizer_sha256": "pieces",
        **more,
    }


def bucket(row, name, seed=0):
    return {"row": row, "seed": seed, "unit": "tokens", "bucket": name, "sentences": 20,
            "beyond_training": False, "score": 50.0}  # fmt: skip


@pytest.fixture(scope="module")
def sweep():
    runs = {
        "base": [run(90.0, 10.0), run(92.0, 10.0)],
        "bytes": [run(80.0, 45.0, tokenizer_sha256="bytes")],
        "two directions": [run(85.0, 10.0, **{"de-en_bleu": 70.0})],
    }
    buckets = [bucket("base", "1-6"), bucket("base", "1-6", 1), bucket("bytes", "1-30"),
               bucket("bytes", "31-60"), bucket("two directions", "1-6")]  # fmt: skip
    return sweeps.of_runs(runs, {row: ROWS[row] for row in runs}, buckets, configuration=BASE)


def lines_of(table):
    heads = [column.full_head for column in table.columns]
    return {line[0]: dict(zip(heads, line, strict=True)) for line in table.cells()}


def test_each_row_has_its_bleu_its_tokens_and_its_speed(sweep):
    compared = sweeps.without_counts(sweep, families.TABLE)
    (table,) = tables_of.multilingual(compared).tables
    lines = lines_of(table)
    assert lines["base"]["BLEU"] == "91.00 ± 1.41"
    assert lines["bytes"]["target tokens"] == "45.0"
    assert lines["bytes"]["nats a sentence"] == "90.00"  # 45 tokens of ln e² nats
    assert lines["two directions"]["BLEU de-en"] == "70.00"
    assert lines["two directions"]["sentences/s"] == "40"
    alone = sweeps.of_runs({"base": [run(90.0, 10.0)]}, {"base": {}})
    assert tables_of.multilingual(sweeps.without_counts(alone, families.TABLE)).tables == []


def test_only_rows_with_equal_buckets_share_a_table(sweep):
    table = lengths.by_length(sweep, "tokens", "{bucket} ({sentences})", "")
    assert table is not None
    assert table.frame["row"].tolist() == ["base", "two directions"]
    assert table.columns[1].head == "1-6 (20)"


def test_bytes_and_tags_change_tokens_and_nothing_else(sweep):
    comparable.require_alike(comparable.measured(sweep), sweep.description, families.TABLE)
    rows = {"base": {}, "bytes": {"model.d_k": 3}}
    mixed = sweeps.of_runs({row: [run(1.0, 1.0, tokenizer_sha256=row)] for row in rows}, rows)
    with pytest.raises(
        errors.UserError, match=r"differ in tokenizer \(base, bytes\): see base and"
    ):
        comparable.require_alike(comparable.measured(mixed), mixed.description, families.TABLE)
    records = comparable.measured(sweep).assign(data_sha256=["a", "a", "a", "another"])
    with pytest.raises(errors.UserError, match="differ in corpus"):
        comparable.require_alike(records, sweep.description, families.TABLE)


def test_a_row_of_bytes_has_room_for_the_tokens_of_base():
    bytewise = config_lib.replace(BASE, ROWS["bytes"])
    own = config_lib.replace(BASE, ROWS["base"])
    per_token = bytewise.data.target_length / own.data.target_length
    assert per_token == bytewise.train.batch_tokens / own.train.batch_tokens == 5
    assert bytewise.data.vocab_size == 260


def test_the_accuracy_of_all_seeds_has_one_interval():
    runs = {
        "E RoBERTa": [{"ppl": 7.0, "params": 1}, {"ppl": 8.0, "params": 1}],
        "E nothing pairs": [  # which answer the same questions
            {"ppl": 7.0, "params": 1, "accuracy": 0.6, "answers": 100},
            {"ppl": 8.0, "params": 1, "accuracy": 0.8, "answers": 100},
        ],
    }
    sweep = sweeps.of_runs(runs, {row: ROWS[row] for row in runs}, configuration=BASE)
    (table,) = tables_of.encoder_only(sweeps.without_counts(sweep, families.TABLE)).tables
    words, pairs = table.cells()
    assert words == ["E RoBERTa", "7.50 ± 0.71", "masked tokens", "", "", "", ""]
    # Wilson 1927: (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n), of 70 of 100,
    # however many seeds answer these 100.
    z, n, p = 1.959964, 100, 0.7
    middle, half = p + z**2 / (2 * n), z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
    low, high = (f"{100 * (middle + sign * half) / (1 + z**2 / n):.1f}%" for sign in (-1, 1))
    assert pairs == ["E nothing pairs", "7.50 ± 0.71", "answers", "70.0%", low, high, "100"]


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (objectives.NONE, ""),
        ("bert", "masked tokens"),
        ("roberta", "masked tokens"),
        ("elmo", "all tokens"),
        (objectives.PAIR_CLASSIFICATION, "answers"),
    ],
)
def test_tables_name_the_tokens_of_a_perplexity(objective, expected):
    steps = 0 if objective == objectives.NONE else BASE.train.num_steps
    changes = {"train.objective": objective, "train.objective_steps": steps}
    description = sweeps.of_runs({}, {"base": changes}, configuration=BASE).description
    assert labels.ppl_of(description, "base") == expected
