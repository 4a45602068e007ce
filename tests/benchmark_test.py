"""The benchmark: batches, comparisons, tables and workers."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import benchmark
from experiments.benchmarks import ours, worker, workloads
from transformer_jax import errors
from transformer_jax.data import dataset as dataset_lib


@pytest.fixture
def dataset(make_config, cache_dir):
    config = make_config({"data.toy_pairs": 3000})
    return workloads.fitting(dataset_lib.load(config.data, cache_dir))


def test_padded_and_packed_batches_hold_whole_sentence_pairs(dataset, tmp_path):
    workload = workloads.WORKLOADS["base"]
    positions = workload.config().train.batch_tokens
    paths = workloads.write(tmp_path / "batches", dataset, workload)
    pairs = {
        (tuple(dataset.source[i].tolist()), tuple(dataset.target[i].tolist()))
        for i in range(len(dataset.source))
    }
    for kind, length in workloads.LENGTHS.items():
        batches = workloads.read(paths[kind])
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
        workloads.work(workload.config(kind), workloads.read(paths[kind]))["tokens"]
        for kind in ("padded", "packed")
    )
    assert padded < packed <= positions


def test_an_accelerator_has_the_papers_batch():
    for workload in workloads.WORKLOADS.values():
        for kind in workloads.LENGTHS:
            assert workload.on_accelerator().config(kind).train.batch_tokens == 24_576


def test_a_corpus_that_is_too_small_is_refused(dataset, tmp_path):
    workload = workloads.WORKLOADS["base"].on_accelerator()
    with pytest.raises(errors.UserError, match=r"draws 3,072 pairs .* give it a larger one"):
        workloads.write(tmp_path / "batches", dataset, workload)


@pytest.mark.parametrize(
    ("kind", "tflops"), [("NVIDIA H100 80GB HBM3", 989), ("TPU v5 lite", 197), ("cpu", None)]
)
def test_the_peak_is_that_of_the_device(kind, tflops):
    peak = benchmark.Device("gpu", kind, "").peak_flops
    assert peak == (tflops and tflops * 1e12)


def row(name, seconds, **work):
    about = {"workload": "small", "row": name, "dtype": "float32", "peak_bytes": 10**9}
    return {**about, "machine": "this machine", "seconds": seconds, **work}


def training(name, seconds, tokens=30, **more):
    return row(name, seconds, flops=1e9, tokens=tokens, **more)


def compared(*rows, peak_flops=None):
    benchmark.compare(rows, peak_flops)
    return list(rows)


def test_ratios_are_taken_round_by_round():
    ours = training("ours", [1.0, 4.0, 1.0], 60)
    peer = training("torch", [2.0, 4.0, 6.0])
    assert benchmark.ratios(ours, peer, "tokens") == (4.0, 2.0, 12.0)


def test_rows_stand_beside_product_peak_and_peer(tmp_path, capsys):
    rows = compared(
        row("product", [0.5, 0.5], flops=2e9),
        row("narrow product", [0.5, 0.5], flops=8e9, dtype="bfloat16"),
        training("ours", [1.0, 1.0], 60),
        training("narrow", [0.5, 0.5], 60, dtype="bfloat16"),
        training(benchmark.TORCH, [2.0, 2.0]),
        peak_flops=20e9,
    )
    benchmark.write(tmp_path, rows)
    records = [json.loads(line) for line in (tmp_path / "benchmark.jsonl").read_text().splitlines()]
    product, narrow_product, ours, narrow, torch = records
    assert (ours["share_of_product"], narrow["share_of_product"]) == (0.25, 0.125)
    assert (narrow["share_of_peak"], narrow_product["share_of_peak"]) == (0.1, 0.8)
    # The data sheet's rate is of bfloat16.
    assert not any("share_of_peak" in one for one in (product, ours, torch))
    assert ours["tokens_per_second"] == 60
    assert ours["tokens_ratio"] == [4.0, 4.0, 4.0]
    assert narrow["tokens_ratio"] == [8.0, 8.0, 8.0]
    assert "tokens_ratio" not in torch
    table = (tmp_path / "benchmark.md").read_text(encoding="utf-8")
    assert "| small | ours | 1,000.0 | 60 | 4.00 | 4.00 | 4.00 | 1 | 25% |  |" in table
    assert "| small | narrow | 500.0 | 120 | 8.00 | 8.00 | 8.00 | 2 | 12% | 10% |" in table
    assert "this machine" in capsys.readouterr().out


def test_without_a_peer_nothing_is_compared():
    (alone,) = compared(training("ours", [1.0], 60))
    assert "tokens_ratio" not in alone


def test_translations_are_compared_with_the_peers(tmp_path):
    ours = row("ours", [2.0], sentences=4, translations=[[1], [2, 3], [4], [5]])
    peer = row(benchmark.CTRANSLATE2, [1.0], sentences=4, translations=[[1], [2], [4], [5]])
    benchmark.write(tmp_path, compared(ours, peer))
    table = (tmp_path / "benchmark.md").read_text(encoding="utf-8")
    assert "| small | ours | 2.0 | 0.50 | 0.50 | 0.50 | 75.0% |" in table
    assert "translations" not in json.loads(
        (tmp_path / "benchmark.jsonl").read_text().split("\n")[0]
    )


def test_rows_of_ours_are_timed_and_a_peer_that_is_missing_is_left_out(
    dataset, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker, "SECONDS_A_SAMPLE", 0.1)
    workload = dataclasses.replace(workloads.WORKLOADS["toy"], changes={"model.num_layers": 1})
    batches = workloads.write(tmp_path / "batches", dataset, workload)
    rows = benchmark.training_rows(workload, batches, "cpu")
    assert {row.needs for row in rows} == {"jax", "torch"}
    absent = dataclasses.replace(rows[-1], needs="no_such_package")
    device = benchmark.Device("cpu", "cpu", "this machine")
    (ours,) = benchmark.measure("toy", [rows[1], absent], 2, device)
    assert ours["row"] == "ours, packed, float32"
    assert len(ours["seconds"]) == 2
    assert ours["first_step_seconds"] > ours["median_seconds"] > 0


def test_a_worker_times_steps_and_knows_its_memory(monkeypatch):
    monkeypatch.setattr(worker, "SECONDS_A_SAMPLE", 0.1)
    started = worker.Worker("ours:MatrixProduct", {"dtype": "float32"})
    try:
        seconds = started.sample()
        assert 0 < seconds < 600
        assert ours.product_flops("cpu") / seconds < 1e14
        assert started.peak_bytes > 2048**2 * 4
        assert started.translations is None
        assert np.isfinite(started.first_step_seconds)
    finally:
        started.close()


def test_a_worker_that_fails_says_so():
    with pytest.raises(errors.RunError, match="AttributeError: module"):
        worker.Worker("ours:None", {})


def test_a_user_error_in_a_worker_is_raised_as_one(tmp_path):
    options = {"run": str(tmp_path), "sentences": str(tmp_path / "sentences.txt")}
    with pytest.raises(errors.UserError, match="no trained run"):
        worker.Worker("ours:Translation", options)
