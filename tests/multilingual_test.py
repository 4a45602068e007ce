"""What the table says of bytes and of two directions, by hand."""

import math
import pathlib

import pytest

from experiments.analysis import comparison, multilingual
from experiments.reporting import comparison_table
from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax import errors


def result(score, target_tokens, buckets=("1-6",), **more):
    scores = {"sacrebleu_13a": {"score": score, "signature": "s"}}
    return {
        "bleu": scores,
        "ppl": math.e**2,
        "tokens_per_sentence": {"source": 9.0, "target": target_tokens},
        "tokens_per_second": 1000.0,
        "sentences_per_second": 40.0,
        "bleu_by_length": [{"tokens": b, "sentences": 20, "score": score} for b in buckets],
        "bleu_beyond_training": None,
        "data_sha256": "corpus",
        "test_sha256": "",
        "tokenizer_sha256": "pieces",
        "data": {"languages": ["en", "de"]},
        "decode": {},
        **more,
    }


@pytest.fixture
def sweep(make_config):
    base = make_config()
    found = {
        "base": [result(90.0, 10.0), result(92.0, 10.0)],
        "bytes": [result(80.0, 45.0, ("1-30", "31-60"), tokenizer_sha256="bytes")],
        "two directions": [
            result(85.0, 10.0, directions={"de-en": {"bleu": result(70.0, 9.0)["bleu"]}})
        ],
    }
    changes = {"base": {}, **multilingual.rows_for(base)}
    rows = [
        results.Row(name, changes[name], dict(enumerate(runs)), {}, [])
        for name, runs in found.items()
    ]
    return results.Sweep("families", base, rows, pathlib.Path())


def test_each_row_has_its_bleu_its_tokens_and_its_speed(sweep):
    (table,) = multilingual.section(sweep).shown
    lines = {line[0]: dict(zip(table.heads, line, strict=True)) for line in table.lines}
    assert lines["base"]["BLEU"] == "91.00 ± 1.41"
    assert lines["bytes"]["target tokens"] == "45.0"
    assert lines["bytes"]["nats a sentence"] == "90.00"  # 45 tokens of ln e² nats
    assert lines["two directions"]["BLEU of other directions"] == "70.00 (de-en)"
    assert lines["two directions"]["sentences/s"] == "40"
    assert multilingual.section(results.Sweep("x", sweep.base, sweep.rows[:1], pathlib.Path())) == (
        comparison_table.table_lib.Section([])
    )


def test_bytes_and_tags_change_how_tokens_count_and_nothing_else(sweep):
    comparison.require_alike(sweep.rows)
    base, bytewise, both = sweep.rows
    mixed = results.Row("B", {"model.d_k": 3}, bytewise.results, {}, [])
    with pytest.raises(errors.UserError, match=r"differ in tokenizer \(bytes, pieces\)"):
        comparison.require_alike([base, mixed])
    other = {0: {**both.results[0], "data_sha256": "another"}}
    with pytest.raises(errors.UserError, match="differ in corpus"):
        comparison.require_alike([base, results.Row(both.name, both.overrides, other, {}, [])])


def test_only_equal_buckets_of_lengths_stand_below_one_another(sweep):
    (table,) = comparison_table.by_length(sweep).shown
    assert [line[0] for line in table.lines] == ["base", "two directions"]


def test_a_row_of_bytes_has_room_for_what_base_has(sweep):
    bytewise = config_lib.replace(sweep.base, sweep.rows[1].overrides)
    per_token = bytewise.data.target_length / sweep.base.data.target_length
    assert per_token == bytewise.train.batch_tokens / sweep.base.train.batch_tokens == 5
    assert bytewise.data.vocab_size == 260
