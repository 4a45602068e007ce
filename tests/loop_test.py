"""Schedule of the training loop, with a fake clock."""

import contextlib
import inspect
import logging
import threading
import types
from typing import Any

import jax
import numpy as np
import pytest

from transformer_jax import config as config_lib
from transformer_jax.distributed import preemption, sharding
from transformer_jax.training import checkpoint, loop, metrics
from transformer_jax.training import step as step_lib

# Numbers serve for arrays: nothing is computed here.
_State: Any = step_lib.TrainState
_Metrics: Any = step_lib.Metrics
STATE = _State(np.int32(0), {}, {})


@pytest.fixture
def clock(monkeypatch):
    """A fake clock that the test sets."""
    clock = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr(loop, "time", types.SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def measured(tokens):
    return _Metrics(2.0, 1.0, tokens, 0.5)


def test_speed_excludes_pauses(make_config, clock):
    tally = loop._Tally(make_config(), 0)
    for step in range(1, 5):
        tally.add(step, measured(600))
        clock.now += 3
    with tally.paused():
        clock.now += 100
    values = tally.means()
    assert values["tokens"] == 4 * 600
    assert values["seconds_per_step"] == pytest.approx(3)
    assert values["tokens_per_second"] == pytest.approx(200)
    tally.add(5, measured(700))
    clock.now += 7
    assert tally.means()["tokens_per_second"] == pytest.approx(100)


def test_means_contain_the_share_of_steps_with_an_objective(make_config, clock):
    with_objective = make_config({"train.objective": "prefix", "train.objective_steps": 3})
    for config, expected in ((with_objective, [1, 0.5, 0]), (make_config(), [None] * 3)):
        tally, found = loop._Tally(config, 0), []
        for first in (1, 3, 5):
            for step in (first, first + 1):
                tally.add(step, measured(1))
                clock.now += 1
            found.append(tally.means().get("objective"))
        assert found == expected


def test_means_and_development_perplexity_are_due_at_their_intervals(make_config, clock):
    config = make_config({"log.every": 2, "log.dev_every": 3, "train.num_steps": 7})
    never = config_lib.replace(config, {"log.dev_every": 0})
    for chosen, dev_steps in ((config, {3, 6}), (never, set())):
        tally, dev, means = loop._Tally(chosen, 0), set(), set()
        for step in range(1, 8):
            tally.add(step, measured(1))
            clock.now += 1
            values = loop._due(step, chosen, tally, STATE, lambda _: 5.0, 990.0)
            dev |= {step} if values.get("dev_ppl") == 5 else set()
            means |= {step} if "loss" in values else set()
            assert values.get("wall_seconds", clock.now - 990) == clock.now - 990
        assert (dev, means) == (dev_steps, {2, 4, 6, 7})


def test_a_line_of_progress_contains_the_time_left(caplog):
    caplog.set_level(logging.INFO)
    values = {"loss": 1.5, "ppl": 3.0, "tokens_per_second": 1234.0, "seconds_per_step": 40.0}
    metrics.log_progress(10, 110, values)  # 100 steps of 40 seconds
    expected = "step 10 of 110   loss 1.500   ppl 3.00   1,234 target tokens/s   1:06:40 left"
    assert caplog.messages == [expected]


@pytest.mark.parametrize(
    ("first", "num_steps", "begin", "end"),
    [
        (0, 20, 2, 8),
        (5, 20, 7, 13),
        (6, 20, 8, 14),
        (5, 9, 7, 9),
        (5, 7, None, None),
        (0, 1, None, None),
    ],
)
def test_a_trace_covers_six_steps_after_the_second(
    monkeypatch, tmp_path, first, num_steps, begin, end
):
    seen, now = [], 0

    @contextlib.contextmanager
    def trace(folder):
        seen.append((now, folder))
        yield
        seen.append(now)

    monkeypatch.setattr(jax.profiler, "trace", trace)
    for wanted in (False, True):
        with loop._traced(tmp_path, first, num_steps, wanted) as after:
            for now in range(first + 1, num_steps + 1):
                after(now, STATE)
    assert seen == ([(begin, str(tmp_path / "profile")), end] if begin else [])


@pytest.fixture
def train(make_config, monkeypatch, tmp_path, clock):
    """Returns a loop over 10 steps of 2 seconds, and the list of its checkpoints."""
    saved = []

    def run(first, compile_step, num_steps=10):
        def advance(state, batch, hyper, key):
            clock.now += 2
            assert batch == int(state.step)
            return state._replace(step=state.step + 1), measured(100)

        def save(state, seconds, starts):
            clock.now += 50
            saved.append((int(state.step), seconds, starts))

        checkpoints = types.SimpleNamespace(
            save=save, latest_step=lambda: first, recover=int, wait=int, close=int
        )
        batches = types.SimpleNamespace(
            from_step=lambda step: range(step, num_steps),
            batch_rows=1,
            part=lambda step: types.SimpleNamespace(plan=types.SimpleNamespace(starts=[7])),
        )
        state = STATE._replace(step=np.int32(first or 0))
        monkeypatch.setattr(checkpoint, "Checkpoints", lambda *_: checkpoints)
        monkeypatch.setattr(loop, "make_batches", lambda *_: batches)
        monkeypatch.setattr(loop, "_start_or_resume", lambda *_: (state, 500.0))
        monkeypatch.setattr(sharding, "put", lambda local, mesh, rows: local)
        monkeypatch.setattr(loop, "compile_step", lambda *_: compile_step() or advance)
        changes = {"checkpoint.every": 4, "log.every": 2, "log.dev_every": 0}
        config = make_config({**changes, "train.num_steps": num_steps})
        dataset: Any = types.SimpleNamespace(tokenizer=types.SimpleNamespace(digest=""))
        mesh = sharding.make_mesh(config.mesh)
        unchecked: Any = inspect.unwrap(loop.train)
        last, seconds = unchecked(None, dataset, config, mesh, tmp_path, lambda _: 1.0)
        return int(last.step), seconds

    return run, saved


@pytest.mark.parametrize("first", [None, 4])
def test_checkpoints_and_metrics_are_written_at_their_steps(train, tmp_path, first):
    run, saved = train
    step, seconds = run(first, lambda: None)
    done = 10 - (first or 0)
    saves = [4, 8, 10] if first is None else [8, 10]
    assert step == 10
    assert seconds == 500 + 2 * done + 50 * len(saves)
    assert saved == [
        (each, 500 + 2 * (each - (first or 0)) + 50 * number, [7])
        for number, each in enumerate(saves)
    ]
    records = metrics.read(tmp_path)
    assert [record["step"] for record in records] == list(range((first or 0) + 2, 11, 2))
    # Saving is no training.
    assert {record["tokens_per_second"] for record in records} == {50}
    assert records[0]["wall_seconds"] == 504


def test_a_finished_run_compiles_no_step(train):
    run, saved = train
    # Another number than the config's, though it equals it.
    assert run(int("300"), lambda: pytest.fail("compiled"), num_steps=300) == (300, 500)
    assert not saved


def test_a_signal_after_the_last_check_ends_the_run_too(monkeypatch):
    told = threading.Event()
    monkeypatch.setattr(preemption, "_received", told)

    def train():
        with preemption.handled():
            assert not preemption.reached()
            told.set()

    with pytest.raises(preemption.PreemptedError):
        train()
