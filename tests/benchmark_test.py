"""The benchmark: what it times is what it says it times."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.benchmarks import speed_tables, worker, workloads
from transformer_jax import errors
from transformer_jax.data import dataset as dataset_lib


@pytest.fixture
def dataset(make_config, cache_dir):
    config = make_config({"data.toy_pairs": 3000})
    return dataset_lib.load(config.data, cache_dir)


def test_padded_and_packed_batches_hold_whole_sentence_pairs(dataset, tmp_path):
    workload = workloads.all_workloads()["base"]
    workloads.write(tmp_path / "batches.npz", dataset, workload)
    pairs = {
        (tuple(dataset.source[i].tolist()), tuple(dataset.target[i].tolist()))
        for i in range(len(dataset.source))
    }
    for kind, length in workloads.LENGTHS.items():
        batches = workloads.read(tmp_path / "batches.npz", kind)
        assert len(batches) == workloads.BATCHES
        for batch in batches:
            assert batch.labels.shape == (workload.positions // length, length)
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
    assert padded < packed <= workload.positions


def row(name, seconds, tokens, positions):
    work = speed_tables.StepWork(flops=1e9, positions=positions, tokens=tokens)
    return speed_tables.SpeedRow("small", name, "float32", seconds, work, 0.0, 1.0, 10**9)


def test_ratios_are_taken_round_by_round():
    ours, peer = row("ours", [1.0, 4.0, 1.0], 60, 100), row("torch", [2.0, 4.0, 6.0], 30, 100)
    assert speed_tables.ratios(ours, peer, "tokens") == (4.0, 2.0, 12.0)
    assert speed_tables.ratios(ours, peer, "positions") == (2.0, 1.0, 6.0)


def test_the_report_sets_rows_beside_ceiling_and_peer(tmp_path, capsys):
    ceiling = speed_tables.SpeedRow(
        "small", "product", "float32", [0.5, 0.5], speed_tables.StepWork(2e9), 0.0, 1.0, 10**9
    )
    reading = dataclasses.replace(
        row("input", [0.1, 0.1], 60, 100), work=speed_tables.StepWork(0, 100, 60)
    )
    evaluation = dataclasses.replace(
        reading, name="evaluation", work=speed_tables.StepWork(sentences=8)
    )
    evaluation = dataclasses.replace(evaluation, seconds=[1.0, 1.0])
    rows = [
        ceiling,
        row("ours", [1.0, 1.0], 60, 100),
        row("torch", [2.0, 2.0], 30, 100),
        reading,
        evaluation,
    ]
    speed_tables.write(tmp_path, rows, ["torch"], "this machine")
    records = [json.loads(line) for line in (tmp_path / "benchmark.jsonl").read_text().splitlines()]
    ours = records[1]
    assert ours["share_of_ceiling"] == 0.25
    assert ours["tokens_per_second"] == 60
    assert ours["tokens_ratio_to_torch"] == [4.0, 4.0, 4.0]
    assert "| small | ours | 1,000 | 60 | 4.00 (4.00–4.00) |" in (
        tmp_path / "benchmark.md"
    ).read_text(encoding="utf-8")
    assert not any("ratio" in name for each in records[3:] for name in each)
    assert records[3]["tokens_per_second"] == 600
    assert records[4]["sentences_per_second"] == 8
    assert "this machine" in capsys.readouterr().out


def test_only_rows_that_took_turns_are_compared(tmp_path):
    first = [row("ours", [1.0], 60, 100), row("torch", [2.0], 30, 100)]
    later = [
        dataclasses.replace(row("other", [1.0], 60, 100), group=1),
        dataclasses.replace(row("torch", [4.0], 30, 100), group=1, shown=False),
    ]
    products = [
        speed_tables.SpeedRow(
            "small",
            "product",
            "float32",
            [0.5],
            speed_tables.StepWork(2e9),
            0.0,
            1.0,
            10**9,
            group=group,
        )
        for group in (0, 1)
    ]
    speed_tables.write(tmp_path, [*products, *first, *later], ["torch"], "this machine")
    lines = (tmp_path / "benchmark.jsonl").read_text().splitlines()
    found = {record["row"]: record for record in map(json.loads, lines)}
    assert len(lines) == 5  # torch's second time is there to compare with
    assert found["ours"]["tokens_ratio_to_torch"] == [4.0, 4.0, 4.0]
    assert found["other"]["tokens_ratio_to_torch"] == [8.0, 8.0, 8.0]


def test_evaluations_share_is_that_of_the_papers_schedule():
    training = row("ours", [2.0], 60, 100)
    evaluation = speed_tables.SpeedRow(
        "small",
        "evaluation",
        "float32",
        [3.0],
        speed_tables.StepWork(sentences=30),
        0.0,
        1.0,
        10**9,
    )
    # 300 s for 3,000 sentences, after 5,000 × 24,576 positions at 50 a second.
    expected = 300 / (300 + 5000 * 24_576 / 50)
    assert speed_tables.evaluation_share(training, evaluation) == pytest.approx(expected)


def test_a_worker_answers_with_seconds_and_memory():
    started = worker.Worker("ours:Ceiling", {"dtype": "float32"})
    try:
        assert started.ready["work"] == {"flops": 2 * 2048**3}
        one, peak = started.run(1)
        many, _ = started.run(8)
        assert 0 < one < many < 600
        assert peak > 2048**2 * 4
        assert np.isfinite(started.first_step_seconds)
    finally:
        started.close()


def test_a_worker_that_fails_says_so():
    with pytest.raises(errors.RunError, match="AttributeError: module"):
        worker.Worker("ours:None", {})
