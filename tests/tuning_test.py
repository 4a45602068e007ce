"""Tuning: chosen on dev, scored on test; base is tuned as its rows, and edges are named."""

import json
import re

import numpy as np
import pytest
from sacrebleu.metrics import bleu as sacrebleu

from experiments import publish, table2, table3
from experiments.analysis import comparison, tuning
from experiments.reporting import comparison_table, document, sensitivity_table
from experiments.running import runner
from experiments.sweep import results
from experiments.sweep import rows as rows_lib
from tests import refusals, sweeps
from transformer_jax import errors
from transformer_jax.evaluation import bleu

FIELD = "train.learning_rate_scale"
SIZES = ("num_heads", "d_k", "d_v", "d_model", "d_ff")
SCORED = "--config.evaluation.score_test=True"


def made(workdir, values=(0.25, 1.0), table="mine", seeds=2):
    """A sweep of two rows at base's 0.5 and other values, whose counts are of its translations."""
    base = sweeps.base()
    own = {"base": {}, "A h=1": {"model.num_heads": 1}}
    tune = {FIELD: list(values)}
    planned = {}
    for name, changes in own.items():
        planned |= results.tuned(name, changes, base, tune)
    sweeps.make(workdir, sweeps.Made(planned, seeds, sentences=41, table=table))
    sweeps.set_record(workdir, rows=own, tune=tune)
    for folder in workdir.glob("*/seed*"):
        said, references = (
            (folder / f"{name}.txt").read_text().splitlines()
            for name in ("hypotheses", "references")
        )
        counts = bleu.counts(said, references, "de", bleu.MAIN)
        sweeps.keep_counts(folder, counts[:21].tolist())
        sweeps.keep_counts(folder, counts[21:].tolist(), "test")
    return planned


def shown(workdir):
    """A sweep's panel by row, and its notes."""
    section = sensitivity_table.section(comparison.compare(results.read(workdir)))
    (printed,) = section.shown
    lines = {line[0]: dict(zip(printed.heads, line, strict=True)) for line in printed.lines}
    return lines, " ".join(section.notes)


def test_dev_chooses_and_test_scores(tmp_path):
    planned = made(tmp_path)
    dev, test = ({}, {})
    for name in planned:
        for scored, sentences in ((dev, slice(21)), (test, slice(21, None))):
            scores = []
            for seed in range(2):
                folder = results.cell_folder(tmp_path, name, seed)
                said, references = (
                    (folder / f"{file}.txt").read_text().splitlines()[sentences]
                    for file in ("hypotheses", "references")
                )
                metric = sacrebleu.BLEU(tokenize="13a", force=True)
                scores.append(metric.corpus_score(said, [references]).score)
            scored[name] = np.mean(scores)
    lines, notes = shown(tmp_path)
    for row, line in lines.items():
        own = [name for name in planned if name.startswith(row)]
        best, worst = max(own, key=dev.__getitem__), min(own, key=dev.__getitem__)
        assert line["BLEU: best"] == f"{test[best]:.2f}"
        assert line["BLEU: worst"].split(" at ")[0] == f"{test[worst]:.2f}"
        value = planned[best].get(FIELD, 0.5)
        assert line["best at"].split()[0] == str(value)
        compared = comparison.compare(results.read(tmp_path))
        assert comparison_table._best(compared.sweep.rows[row != "base"], compared) == (
            f"{test[best]:.2f} at {value}"
        )
    best = {row: float(line["BLEU: best"]) for row, line in lines.items()}
    gap = float(lines["A h=1"]["− base: best"].split()[0])
    assert gap == pytest.approx(best["A h=1"] - best["base"], abs=0.011)
    assert "chosen on the development set, scored on the test set" in notes


@pytest.mark.parametrize(
    ("values", "edge", "expected"),
    [
        ([0.5, 1.0, 2.0], 2.0, 4.0),
        ([2.0, 0.5, 1.0], 0.5, 0.25),
        ([0.0, 0.1, 0.2], 0.2, 0.3),
        ([0.0, 0.1, 0.2], 0.0, -0.1),
        ([0.1, 0.2, 0.3], 0.1, 0.0),
        ([100, 200], 200, 400),
        ([1, 2, 3], 3, 4),
        ([3, 4], 3, 2),
        ([1, 2], 1, 0),
    ],
)
def test_a_grid_goes_on_as_it_went(values, edge, expected):
    assert tuning.beyond(values, edge) == pytest.approx(expected)


def alike(right):
    """Counts of sentences of nine words, so many of which are right."""
    matches = [right - n for n in range(4)]
    return [[9, 9, *matches, 9, 8, 7, 6]] * 41


def test_an_edge_is_named_with_the_value_to_add(tmp_path):
    made(tmp_path)
    for folder in tmp_path.glob("*/seed*"):  # the higher the rate the better
        scale = re.search(r"scale-([\d.]+)", str(folder))
        right = {"0.25": 4, "1.0": 9}.get(scale[1] if scale else "", 6)
        for of in ("dev", "test"):
            sweeps.keep_counts(folder, alike(right), of)
    lines, notes = shown(tmp_path)
    assert {line["best at"] for line in lines.values()} == {"1.0 (edge)"}
    assert "edge of the grid, base at 1.0 (add 2.0), A h=1 at 1.0 (add 2.0)" in notes
    assert f"--tune={FIELD}:0.25,1.0,2.0." in notes
    assert {line["BLEU: worst"].split()[-1] for line in lines.values()} == {"0.25"}
    for folder in tmp_path.glob("*/seed*"):  # all alike, there is no way to go on
        for of in ("dev", "test"):
            sweeps.keep_counts(folder, alike(6), of)
    assert "edge" not in shown(tmp_path)[1]


def test_tuning_is_counted_and_its_losses_are_those_of_the_runs(tmp_path):
    planned = made(tmp_path)
    on_eight = next(name for name in planned if "scale" in name)
    sweeps.change(results.cell_folder(tmp_path, on_eight, 1), devices=8 * ["x"])
    lines, notes = shown(tmp_path)
    seconds, nats = {}, {}
    for name in planned:
        runs = [
            json.loads((results.cell_folder(tmp_path, name, seed) / "result.json").read_bytes())
            for seed in range(2)
        ]
        one, other = (run["wall_seconds"] for run in runs)
        seconds[name] = one + other * (8 if name == on_eight else 1)
        nats[name] = np.mean([np.log(run["ppl"]) for run in runs])
    for row, line in lines.items():
        own = [name for name in planned if name.startswith(row)]
        spent = sum(seconds[name] for name in own[1:]) / 3600
        assert (line["cells"], line["hours"]) == ("4", f"{spent:.2f}")
        losses = sorted(nats[name] for name in own)
        assert (line["nats: best"], line["nats: worst"]) == (
            f"{losses[0]:.3f}",
            f"{losses[-1]:.3f}",
        )
    total = sum(seconds[name] for name in planned if "scale" in name) / 3600
    assert f"Tuning took 8 cells and {total:.2f} device hours, beside 4 and" in notes


def test_a_best_is_compared_only_with_a_base_that_was_tuned_as_far(tmp_path):
    made(tmp_path, table="table3")
    lines, _ = shown(tmp_path)
    line = lines["A h=1"]
    assert line["verdict: recipe"]
    assert line["same"] == ("yes" if line["verdict: recipe"] == line["verdict: best"] else "no")
    for path in tmp_path.glob("base-*1.0/seed*/result.json"):
        path.unlink()
    lines, notes = shown(tmp_path)
    line = lines["A h=1"]
    assert line["verdict: recipe"]
    assert line["− base: best"] == line["verdict: best"] == line["same"] == ""
    assert "Not tuned to the end: base at 1.0." in notes
    for path in tmp_path.glob("A-h-1*/seed*/result.json"):
        sweeps.change(path.parent, bleu={}, bleu_by_length=[], test={"ppl": 3.0, "bleu": {}})
        for name in ("bleu_counts.json", "test_bleu_counts.json"):
            (path.parent / name).unlink()
    lines, notes = shown(tmp_path)
    assert [*lines] == ["base"]
    assert "Without sentences of their own, and so not tuned: A h=1." in notes


def test_the_panel_counts_seeds_by_the_noise_floor(tmp_path):
    made(tmp_path, seeds=1)
    sweeps.add_seeds(tmp_path, "base", 4)
    for seed in range(4):  # so much of each sentence is right
        counts = alike(4 + seed)[:20]
        sweeps.keep_counts(results.cell_folder(tmp_path, "base", seed), counts, "test")

    def halves():
        lines, _ = shown(tmp_path)
        return [float(lines["A h=1"][f"− base: {of}"].split()[-1]) for of in ("recipe", "best")]

    without = halves()
    sweeps.set_record(tmp_path, noise_floor=4)
    assert all(wide > narrow for wide, narrow in zip(halves(), without, strict=True))


def test_tuning_stays_within_the_budget(make_config):
    base = make_config()
    free = {"base": {}, "base x": {FIELD: 2.0}, "base y": {"model.dropout_rate": 0.3}}
    for budget in results.BUDGETS:
        rows_lib.require_within(base, "base", free, budget)
        bigger = {"base": {}, "base d_model=32": {"model.d_model": 32}}
        with pytest.raises(errors.UserError, match=f"'base d_model=32' would leave the {budget}"):
            rows_lib.require_within(base, "base", bigger, budget)


def test_what_was_tuned_is_published_with_its_runs(tmp_path):
    made(tmp_path / "own", seeds=1)
    publish.publish(tmp_path / "own", tmp_path / "copy")
    document.write(tmp_path / "copy")
    said = [(tmp_path / name / "mine.md").read_text() for name in ("own", "copy")]
    assert said[0] == said[1]
    assert "Sensitivity to" in said[0]


def test_a_grid_ends_where_a_field_does(tmp_path):
    made(tmp_path)
    config = results.read(tmp_path).base
    assert tuning._is_allowed(config, "model.dropout_rate", 0.3)
    assert not tuning._is_allowed(config, "model.dropout_rate", -0.1)
    assert not tuning._is_allowed(config, "model.num_layers", 0)


@pytest.mark.slow
def test_tuning_goes_with_a_budget_and_a_noise_floor(server, tmp_path):
    done = server.run(
        "experiments.table3", *refusals.TOY, *(f"--config.model.{name}=8" for name in SIZES),
        "--config.model.num_layers=3", "--rows=base", f"--workdir={tmp_path / 'w'}", "--dry_run",
        "--match=parameters", f"--tune={FIELD}:0.5,2", "--noise_floor=4", SCORED,
    )  # fmt: skip
    assert done.code == 0, done.stderr
    assert "base learning_rate_scale=2.0" in done.stdout.decode()


def test_values_that_change_the_data_are_refused_before_anything_runs(server, tmp_path):
    sizes = ("--config.data.toy_pairs=500", "--config.data.vocab_size=400")
    folder = tmp_path / "sweep"
    flags = ["--config=configs/toy.py", *sizes, f"--workdir={folder}", "--rows=base"]
    tune = "--tune=data.vocab_size:400,420"
    message = r"nothing was run: .*they differ in tokenizer \(.*\): see base and base \w+=\d+; give"
    refusals.assert_refused(server.run("experiments.table3", *flags, tune, SCORED), message)
    assert [path.name for path in folder.iterdir()] == ["cache"]


def test_tuning_needs_a_test_set(make_config):
    with pytest.raises(errors.UserError, match=r"set --config\.evaluation\.score_test=True"):
        rows_lib.parse_tune(f"{FIELD}:0.5,2", make_config({"evaluation.score_test": False}))


def test_what_earlier_starts_asked_for_stays_with_rows_that_have_not_changed(tmp_path):
    rows = {"base": {}, "a": {"model.d_ff": 16}, "b": {"model.d_ff": 64}}
    sweeps.make(tmp_path, sweeps.Made(rows))
    sweeps.set_record(tmp_path, noise_floor=4, seeds={"base": 4, "a": 3, "b": 2}, digests=["1"])
    record = {**results.read_record(tmp_path), "seeds": dict.fromkeys(rows, 1), "digests": ["2"]}
    same = {"seeds": {"base": 4, "a": 3, "b": 2}, "noise_floor": 4}
    assert runner._asked_before(tmp_path, record) == {**same, "digests": ["1", "2"]}
    more = {**rows, "c": {"model.d_ff": 128}}
    assert runner._asked_before(tmp_path, {**record, "rows": more}) == same
    assert runner._asked_before(tmp_path, {**record, "tune": {FIELD: [0.5, 2.0]}}) == same
    other = {"base": {}, "a": {"model.d_ff": 8}}
    found = runner._asked_before(tmp_path, {**record, "rows": other, "seeds": {"a": 1}})
    assert found == {"seeds": {"base": 4, "a": 1}, "noise_floor": 4}
    base = {**record["base"], "train": {**record["base"]["train"], "num_steps": 7}}
    assert runner._asked_before(tmp_path, {**record, "base": base}) == {}


def test_a_noise_floor_that_serves_no_row_is_refused():
    rows = {"base": {}, "E": {}}
    assert rows_lib.floor_row(table3.TABLE, rows, ["base"], 2) == "base"
    for runs, chosen, message in (
        (1, ["base"], "--noise_floor=1: one run has no deviation"),
        (9, ["E"], "--noise_floor runs 'base': name it in --rows too"),
    ):
        with pytest.raises(errors.UserError, match=message):
            rows_lib.floor_row(table3.TABLE, rows, chosen, runs)
    rows = {"base EN-DE": {}, "base EN-FR": {}}
    with pytest.raises(errors.UserError, match="table2 compares no row with 'base EN-DE'"):
        rows_lib.floor_row(table2.TABLE, rows, [*rows], 9)
