"""The benchmark: what it times is what it says it times."""

import json

import numpy as np
import pytest

from experiments import benchmark
from experiments.benchmarks import timing, worker, workloads
from transformer_jax import errors
from transformer_jax.data import dataset as dataset_lib


@pytest.fixture
def dataset(make_config, cache_dir):
    config = make_config({"data.toy_pairs": 3000})
    return workloads.fitting(dataset_lib.load(config.data, cache_dir))


def test_padded_and_packed_batches_hold_whole_sentence_pairs(dataset, tmp_path):
    positions = workloads.config("base").train.batch_tokens
    workloads.write(tmp_path / "batches.npz", dataset, "base")
    pairs = {
        (tuple(dataset.source[i].tolist()), tuple(dataset.target[i].tolist()))
        for i in range(len(dataset.source))
    }
    for kind, length in workloads.LENGTHS.items():
        batches = workloads.read(tmp_path / "batches.npz", kind)
        assert len(batches) == workloads.BATCHES
        for batch in batches:
            assert batch.labels.shape == (positions // length, length)
            for row in range(len(batch.labels)):
                segments = range(1, batch.target.segments[row].max() + 1)
                assert len(segments) == 1 or kind == "packed"
                for segment in segments:
                    source = batch.source.tokens[row][batch.source.segments[row] == segment]
                    target = batch.labels[row][batch.target.segments[row] == segment]
                    assert (tuple(source[:-1].tolist()), tuple(target[:-1].tolist())) in pairs
    padded, packed = (
        workloads.real_tokens(workloads.read(tmp_path / "batches.npz", kind))
        for kind in ("padded", "packed")
    )
    assert padded < packed <= positions


def row(name, seconds, **says):
    about = {"workload": "small", "row": name, "dtype": "float32", "peak_bytes": 10**9}
    return {**about, "machine": "this machine", "seconds": seconds, **says}


def training(name, seconds, tokens=30, **says):
    return row(name, seconds, flops=1e9, positions=100, tokens=tokens, **says)


def compared(*rows):
    timing.compare(rows, benchmark.PEERS)
    return list(rows)


def test_ratios_are_taken_round_by_round():
    ours = training("ours", [1.0, 4.0, 1.0], 60)
    peer = training("torch", [2.0, 4.0, 6.0])
    assert timing.ratios(ours, peer, "tokens") == (4.0, 2.0, 12.0)
    assert timing.ratios(ours, peer, "positions") == (2.0, 1.0, 6.0)


def test_the_report_sets_rows_beside_ceiling_and_peer(tmp_path, capsys):
    rows = compared(
        row("product", [0.5, 0.5], flops=2e9),
        row("narrow product", [0.5, 0.5], flops=8e9, dtype="bfloat16"),
        training("ours", [1.0, 1.0], 60),
        training("narrow", [0.5, 0.5], 60, dtype="bfloat16"),
        training(benchmark.TORCH, [2.0, 2.0]),
        row("input", [0.1, 0.1], positions=100, tokens=60),
    )
    evaluation = compared(row("evaluation", [1.0, 1.0], sentences=8))
    benchmark.write(tmp_path, [*rows, *evaluation], ["a note"])
    records = [json.loads(line) for line in (tmp_path / "benchmark.jsonl").read_text().splitlines()]
    _, _, ours, narrow, _, reading, evaluated = records
    assert (ours["share_of_ceiling"], narrow["share_of_ceiling"]) == (0.25, 0.125)
    assert ours["tokens_per_second"] == 60
    assert ours[f"tokens_ratio_to_{benchmark.TORCH}"] == [4.0, 4.0, 4.0]
    assert narrow[f"positions_ratio_to_{benchmark.TORCH}"] == [4.0, 4.0, 4.0]
    table = (tmp_path / "benchmark.md").read_text(encoding="utf-8")
    assert (
        "| small | ours | 1,000 | 60 | 4.00 (4.00–4.00) | 100 | 2.00 (2.00–2.00) | 1 | 25% |"
        in table
    )
    assert "| small | evaluation | 8.0 |" in table
    assert not any("ratio" in name for each in (reading, evaluated) for name in each)
    assert reading["tokens_per_second"] == 600
    assert evaluated["sentences_per_second"] == 8
    printed = capsys.readouterr().out
    assert "this machine" in printed
    assert "a note" in printed


def test_only_rows_that_took_turns_are_compared():
    first = compared(training("ours", [1.0], 60), training(benchmark.TORCH, [2.0]))
    later = compared(training("ours", [1.0], 60), training(benchmark.TORCH, [4.0]))
    alone = compared(training("ours", [1.0], 60))
    ratio = f"tokens_ratio_to_{benchmark.TORCH}"
    assert first[0][ratio] == (4.0, 4.0, 4.0)
    assert later[0][ratio] == (8.0, 8.0, 8.0)
    assert ratio not in alone[0]


def test_translations_are_compared_with_the_peers(tmp_path):
    ours = row("ours", [2.0], sentences=4, translations=[[1], [2, 3], [4], [5]])
    peer = row(benchmark.CTRANSLATE2, [1.0], sentences=4, translations=[[1], [2], [4], [5]])
    rows = compared(ours, peer)
    benchmark.write(tmp_path, rows, [])
    table = (tmp_path / "benchmark.md").read_text(encoding="utf-8")
    assert "| small | ours | 2.0 | 0.50 (0.50–0.50) | 75.0% |" in table
    assert "translations" not in json.loads(
        (tmp_path / "benchmark.jsonl").read_text().split("\n")[0]
    )


def test_what_follows_from_a_workloads_rows_is_said():
    rows = compared(
        training(benchmark.OURS, [2.0, 2.0], 60),
        training(benchmark.OURS_BFLOAT16, [1.0, 0.5], 60),
        training(benchmark.TORCH, [3.0, 3.0], 60),
    )
    rows += compared(row(benchmark.READING, [0.1, 0.1], positions=100, tokens=60))
    rows += compared(row(benchmark.EVALUATION, [3.0, 3.0], sentences=30))
    alone, to_ours, to_torch = benchmark.notes(rows)
    assert "delivers 20 times what training reads" in alone
    assert f"{benchmark.OURS_BFLOAT16} trains on 3.00 (2.00–4.00) times" in to_ours
    assert f"4.50 (3.00–6.00) times as many real tokens a second as {benchmark.TORCH}" in to_torch


def test_evaluations_share_is_that_of_the_papers_schedule():
    ours, evaluation = compared(training("ours", [2.0]), row("evaluation", [3.0], sentences=30))
    # 300 s for 3,000 sentences, after 5,000 × 24,576 positions at 50 a second.
    expected = 300 / (300 + 5000 * 24_576 / 50)
    assert benchmark.evaluation_share(ours, evaluation) == pytest.approx(expected)


def test_a_worker_answers_with_seconds_and_memory():
    started = worker.Worker("ours:ceiling", {"dtype": "float32"})
    try:
        assert started.ready["flops"] == 2 * 2048**3
        one, peak = min(started.run(1) for _ in range(3))
        many, _ = min(started.run(8) for _ in range(3))
        assert 0 < one < many < 600
        assert peak > 2048**2 * 4
        assert np.isfinite(started.ready["first_step_seconds"])
    finally:
        started.close()


def test_a_worker_that_fails_says_so():
    with pytest.raises(errors.RunError, match="AttributeError: module"):
        worker.Worker("ours:none", {})
