"""Measuring on a lent machine: done once, gone on with, and what is said is what is computed."""

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from experiments import on_gpu
from experiments.benchmarks import made_up, worker
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax.distributed import hosts, sharding
from transformer_jax.models import kernels
from transformer_jax.training import step as step_lib

HOUR = 3600.0


class Made(on_gpu.Piece):
    """A piece whose result is made up."""

    def __init__(self, does: Callable[[], Mapping[str, Any]], asked: Any = ()) -> None:
        super().__init__(asked, self._measure)
        self.does, self.times = does, 0

    def _measure(self, name: str) -> Mapping[str, Any]:
        self.times += 1
        return self.does()


def forever() -> Mapping[str, Any]:
    time.sleep(60)
    return {}


def fails() -> Mapping[str, Any]:
    raise RuntimeError("no such kernel")


def found() -> Mapping[str, Any]:
    return {"rows": []}


def test_what_is_measured_is_on_record_and_not_measured_again(tmp_path):
    some = {"one": Made(found), "two": Made(found, asked=("three",))}
    for _ in range(2):
        assert on_gpu.measure_all(some, tmp_path, HOUR) == 0
    assert [piece.times for piece in some.values()] == [1, 1]
    for record in on_gpu.read(tmp_path).values():
        assert record["jax"] == jax.__version__
        assert record["command"].startswith("python -m experiments.on_gpu")
        assert record["date"] > "2026"


def test_what_is_asked_otherwise_is_measured_anew(tmp_path):
    for asked in ("float32", "bfloat16"):
        piece = Made(found, asked)
        on_gpu.measure_all({"one": piece}, tmp_path, HOUR)
        assert piece.times == 1
    assert on_gpu.read(tmp_path)["one"]["asked"] == "bfloat16"


def test_a_piece_that_fails_is_recorded_and_the_others_go_on(tmp_path):
    some = {"one": Made(fails), "two": Made(found)}
    for _ in range(2):
        assert on_gpu.measure_all(some, tmp_path, HOUR) == 1
        assert (some["one"].times, some["two"].times) == (1, 1)
    assert on_gpu.read(tmp_path)["one"]["error"] == "RuntimeError: no such kernel"
    some["one"].does = found
    record = tmp_path / on_gpu.NAME
    record.write_text("".join(record.read_text().splitlines(keepends=True)[1:]))
    assert on_gpu.measure_all(some, tmp_path, HOUR) == 0
    assert (some["one"].times, some["two"].times) == (2, 1)


def test_what_the_time_does_not_suffice_for_is_left_for_the_next_call(tmp_path):
    some = {"one": Made(found), "two": Made(forever), "three": Made(found)}
    start = time.monotonic()
    assert on_gpu.measure_all(some, tmp_path, 0.5) == hosts.RUN_AGAIN
    assert time.monotonic() - start < 30
    assert list(on_gpu.read(tmp_path)) == ["one"]
    some["two"].does = found
    assert on_gpu.measure_all(some, tmp_path, HOUR) == 0
    assert [piece.times for piece in some.values()] == [1, 2, 1]


def test_a_piece_that_no_call_is_long_enough_for_does_not_stop_the_others(tmp_path):
    some = {"one": Made(forever), "two": Made(found)}
    codes = [on_gpu.measure_all(some, tmp_path, 0.5) for _ in range(2)]
    assert codes[-1] == 1  # the first call may have had time for both
    assert some["one"].times == 1
    assert "takes more than" in on_gpu.read(tmp_path)["one"]["error"]
    assert list(on_gpu.read(tmp_path)) == ["one", "two"]


def test_a_piece_that_a_call_was_too_short_for_is_tried_by_a_longer_one(tmp_path):
    piece = Made(forever)
    codes = [on_gpu.measure_all({"one": piece}, tmp_path, 0.2) for _ in range(2)]
    assert (codes, piece.times) == ([1, 1], 1)
    piece.does = found
    assert on_gpu.measure_all({"one": piece}, tmp_path, HOUR) == 0
    assert "error" not in on_gpu.read(tmp_path)["one"]


def test_a_damaged_record_is_refused(tmp_path):
    (tmp_path / on_gpu.NAME).write_text('{"piece": "one", "asked": 1}\n{"piece": 3}\n')
    with pytest.raises(errors.UserError, match="delete the line"):
        on_gpu.read(tmp_path)


def test_a_contenders_error_is_what_its_worker_says():
    options = {"config": {}, "dtype": "bfloat16", "sentences": 4}
    with pytest.raises(errors.RunError, match="UserError: the config lacks"):
        worker.Worker("made_up:search", options)


def test_made_up_batches_are_packed_as_training_packs_and_as_long_as_wmts(make_config):
    lengths = {"data.source_length": 256, "data.target_length": 256, "data.vocab_size": 5000}
    config = make_config({**lengths, "data.packing_window": 2000})
    one, other = made_up.batches(config, 16, 2)
    assert not np.array_equal(one.labels, other.labels)
    for batch in (one, other):
        assert batch.labels.shape == (16, 256)
        real = batch.target.segments > 0
        assert real.mean() > 0.95
        sentences = batch.target.segments.max(axis=1)
        assert np.array_equal(sentences, batch.source.segments.max(axis=1))
        assert 20 < real.sum() / sentences.sum() < 40
        assert 2 <= batch.labels[real].min() <= batch.labels.max() < 5000
    words = made_up.words(np.random.default_rng(0), 100_000, 5000)
    counts = np.bincount(words, minlength=5000)
    assert not counts[:4].any()
    assert counts[4] == counts.max()
    # Of a density 1 / r, half of the words have ranks up to the root of the last.
    assert counts[4 : 4 + round(4996**0.5)].sum() / 100_000 == pytest.approx(0.5, abs=0.02)


@pytest.mark.slow
def test_agreement_tells_kernels_from_rounding(make_config, monkeypatch):
    config = config_lib.to_dict(make_config())

    def compare() -> Mapping[str, Mapping[str, Any]]:
        return made_up.agreement(config, "bfloat16", "fused").says

    same = compare()  # on a CPU there is no other kernel
    assert same["fused bfloat16 from plain bfloat16"] == {"logits": 0, "gradient": 0}
    for distance in same["plain bfloat16 from float32"].values():
        assert 1e-4 < distance < 0.1

    def broken(queries: Any, keys: Any, values: Any, *rest: Any) -> Any:
        return queries[..., : values.shape[-1]] * np.nan

    def wrong(queries: Any, keys: Any, values: Any, mask: Any, *rest: Any) -> Any:
        return kernels_fused(queries, keys, values, mask | True, *rest, implementation="xla")

    kernels_fused = kernels.fused
    monkeypatch.setattr(kernels, "on", lambda model, platform: model)
    for kernel, least, most in (
        (lambda *rest: kernels_fused(*rest, implementation="xla"), 0, 0.05),
        (wrong, 0.1, 10),  # each sees the others' sentences, and the future
    ):
        monkeypatch.setattr(kernels, "fused", kernel)
        for distance in compare()["fused bfloat16 from plain bfloat16"].values():
            assert least < distance < most
    monkeypatch.setattr(kernels, "fused", broken)
    assert set(compare()["fused bfloat16 from float32"].values()) == {None}


@pytest.mark.slow
def test_a_kernel_that_hides_its_products_does_as_much(make_config, monkeypatch):
    config = config_lib.to_dict(make_config({"model.num_layers": 1}))

    def hidden(queries: Any, keys: Any, values: Any, *rest: Any) -> Any:
        return queries[..., : values.shape[-1]]

    monkeypatch.setattr(kernels, "on", lambda model, platform: model)
    monkeypatch.setattr(kernels, "fused", hidden)
    plain, fused = (made_up.training(config, "bfloat16", kernel).says for kernel in kernels.KINDS)
    for measure in ("flops", "positions", "tokens"):
        assert fused[measure] == plain[measure] > 0
    # What is timed has fewer products, which shows that the kernel is the one asked for.
    assert fused["program_bytes"] < plain["program_bytes"]


def command(workdir: pathlib.Path, *flags: str) -> subprocess.CompletedProcess[str]:
    sizes = [
        f"--{name}.{field}={value}"
        for name in ("base", "big")
        for field, value in {**tiny.OVERRIDES, "model.num_layers": 1}.items()
    ]
    configs = [f"--{name}=configs/toy.py" for name in ("base", "big")]
    return subprocess.run(
        [sys.executable, "-m", "experiments.on_gpu", f"--workdir={workdir}", *configs, *sizes,
         "--repeats=2", "--seconds=0.05", "--sentences=4", *flags],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def rows_of(workdir: pathlib.Path, piece: str) -> Sequence[dict[str, Any]]:
    lines = (workdir / on_gpu.NAME).read_text().splitlines()
    return next(rec for rec in map(json.loads, lines) if rec["piece"] == piece)["rows"]


@pytest.mark.slow
def test_the_whole_command(tmp_path, make_config):
    """Pieces are measured; another machine goes on from the record."""
    there, here = tmp_path / "there", tmp_path / "here"
    chosen = "--pieces=base,decoding-4"
    done = command(there, chosen)
    assert done.returncode == 0, done.stderr
    assert "sentences" in done.stdout  # of the table
    files.write(here / on_gpu.NAME, (there / on_gpu.NAME).read_bytes())
    again = command(here, f"{chosen},ceiling")
    assert again.returncode == 0, again.stderr
    began = [line.split()[1] for line in again.stderr.splitlines() if "begins" in line]
    assert began == ["ceiling:"]

    ceiling, base = rows_of(there, "base")
    assert "CPU cores" in base["machine"]
    assert jax.__version__ in base["machine"]
    config = make_config({"model.num_layers": 1, "model.compute_dtype": "bfloat16"})
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, config.data.vocab_size)
    analysis = step_lib.compile_step(model, config, mesh).cost_analysis()
    assert analysis is not None
    flops = base["flops_per_second"] * base["median_seconds"]
    # The compiler also counts what is no matrix product: much, in a model as small as this.
    assert 0.3 < flops / analysis["flops"] < 1
    positions = base["positions_per_second"] * base["median_seconds"]
    tokens = base["tokens_per_second"] * base["median_seconds"]
    assert positions == pytest.approx(config.train.batch_tokens)
    made = made_up.batches(config, base["rows"], 4)
    real = sum(int((batch.target.segments > 0).sum()) for batch in made) / len(made)
    assert tokens == pytest.approx(real)
    assert base["attention"] == "encoder plain, decoder plain, cross plain"
    assert base["share_of_ceiling"] > 0
    assert base["share_of_ceiling"] == pytest.approx(
        base["flops_per_second"] / ceiling["flops_per_second"]
    )
    (search,) = rows_of(there, "decoding-4")
    tokens = search["tokens_per_second"] / search["sentences_per_second"]
    assert tokens == pytest.approx(made_up.PIECES + 11)  # its end, and ten more


def test_a_mistake_is_one_line(server, tmp_path):
    for flags, message in (
        (["--pieces=bas"], "--pieces: none matches 'bas'"),
        (["--base=configs/none.py"], "configs/none.py"),
        (["--sentences=0"], "should be a whole number"),
        (["--base=configs/toy.py", "--base.model.d_kk=3"], "d_kk"),
        (["--base.model.d_k=3"], "base.model.d_k"),
    ):
        done = server.run("experiments.on_gpu", f"--workdir={tmp_path / 'none'}", *flags)
        assert done.code == 2, done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert message in errors[0]
        assert not (tmp_path / "none").exists()
