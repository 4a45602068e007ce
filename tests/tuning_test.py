"""Tuning: chosen on dev, scored on test; base is tuned as its rows, and edges are named."""

import json
import re

import numpy as np
import pytest
from sacrebleu.metrics import bleu as sacrebleu

from experiments import table2, table3
from experiments.results import comparison, frames, sensitivity, tuning
from experiments.sweep import rows as rows_lib
from experiments.sweep import store
from tests import refusals, sweeps
from transformer_jax import errors
from transformer_jax.evaluation import bleu

FIELD = "train.learning_rate_scale"
SIZES = ("num_heads", "d_k", "d_v", "d_model", "d_ff")
SCORED = "--config.evaluation.score_test=True"


def make(workdir, values=(0.25, 1.0), table="mine", seeds=2):
    """Writes a sweep of two rows at base's 0.5 and other values; returns its variants by row."""
    rows = {"base": {}, "A h=1": {"model.num_heads": 1}}
    tune = {FIELD: list(values)}
    made = sweeps.Made(rows, seeds, sentences=21, table=table, tune=tune, tested=True)
    sweeps.make(workdir, made)
    description = store.read(workdir)
    variants = {row: list(description.variants(row).values()) for row in rows}
    for name in [name for names in variants.values() for name in names]:
        for seed in range(seeds):
            folder = sweeps.folder(workdir, name, seed)
            for split in ("dev", "test"):
                hypotheses, references = texts_of(folder, split)
                counts = bleu.counts(hypotheses, references, "de", bleu.MAIN)
                sweeps.set_counts(folder, counts.tolist(), split)
    return variants


def texts_of(folder, split):
    return [
        (folder / f"{frames.SPLITS[split]}{name}.txt").read_text().splitlines()
        for name in ("hypotheses", "references")
    ]


def sensitivity_of(workdir):
    """Returns the cells of the table of sensitivity by row, and its notes."""
    compared = comparison.compare(frames.load(workdir))
    section = sensitivity.section(compared)
    (table,) = section.tables
    heads = [column.full_head for column in table.columns]
    lines = {line[0]: dict(zip(heads, line, strict=True)) for line in table.cells()}
    return lines, " ".join(section.notes)


def test_the_development_set_chooses_and_the_test_set_scores(tmp_path):
    variants = make(tmp_path)
    scores = {}
    for name in [name for names in variants.values() for name in names]:
        for split in ("dev", "test"):
            runs = []
            for seed in range(2):
                hypotheses, references = texts_of(sweeps.folder(tmp_path, name, seed), split)
                metric = sacrebleu.BLEU(tokenize="13a", force=True)
                runs.append(metric.corpus_score(hypotheses, [references]).score)
            scores[name, split] = np.mean(runs)
    lines, notes = sensitivity_of(tmp_path)
    compared = comparison.compare(frames.load(tmp_path))
    values = {name: value for row in variants
              for value, name in compared.sweep.description.variants(row).items()}  # fmt: skip
    for row, line in lines.items():
        best, worst = (f(variants[row], key=lambda name: scores[name, "dev"]) for f in (max, min))
        assert line["best: BLEU"] == f"{scores[best, 'test']:.2f}"
        assert line["worst: BLEU"] == f"{scores[worst, 'test']:.2f}"
        assert line["best: value"].split()[0] == str(values[best])
        assert compared.rows.loc[row, "best_score"] == pytest.approx(scores[best, "test"])
        assert compared.rows.loc[row, "best_value"] == values[best]
    best = {row: float(line["best: BLEU"]) for row, line in lines.items()}
    gap = float(lines["A h=1"]["at best: − base"].replace("−", "-").split()[0])
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
    """Returns counts of sentences of nine words, a number of which is right."""
    matches = [right - n for n in range(4)]
    return [[9, 9, *matches, 9, 8, 7, 6]] * 41


def test_an_edge_is_named_with_the_value_to_add(tmp_path):
    make(tmp_path)
    for folder in tmp_path.glob("*/seed*"):  # the higher the rate the better
        scale = re.search(r"scale-([\d.]+)", str(folder))
        right = {"0.25": 4, "1.0": 9}.get(scale[1] if scale else "", 6)
        for split in ("dev", "test"):
            sweeps.set_counts(folder, alike(right), split)
    lines, notes = sensitivity_of(tmp_path)
    assert {line["best: value"] for line in lines.values()} == {"1.0 (edge)"}
    assert "edge of the grid, base at 1.0 (add 2.0), A h=1 at 1.0 (add 2.0)" in notes
    assert f"--tune={FIELD}:0.25,1.0,2.0." in notes
    assert {line["worst: value"] for line in lines.values()} == {"0.25"}
    for folder in tmp_path.glob("*/seed*"):  # all alike, there is no way to go on
        for split in ("dev", "test"):
            sweeps.set_counts(folder, alike(6), split)
    assert "edge" not in sensitivity_of(tmp_path)[1]


def test_tuning_is_counted_and_its_losses_are_those_of_the_runs(tmp_path):
    variants = make(tmp_path)
    sweeps.change(sweeps.folder(tmp_path, variants["base"][1], 1), devices=8 * ["x"])
    lines, notes = sensitivity_of(tmp_path)
    seconds, nats = {}, {}
    for name in [name for names in variants.values() for name in names]:
        runs = [
            json.loads((sweeps.folder(tmp_path, name, seed) / "result.json").read_bytes())
            for seed in range(2)
        ]
        seconds[name] = sum(run["wall_seconds"] * len(run["devices"]) for run in runs)
        nats[name] = np.mean([np.log(run["ppl"]) for run in runs])
    for row, line in lines.items():
        spent = sum(seconds[name] for name in variants[row][1:]) / 3600
        assert (line["further runs"], line["device hours"]) == ("4", f"{spent:.2f}")
        losses = sorted(nats[name] for name in variants[row])
        assert (line["nats: least"], line["nats: most"]) == (
            f"{losses[0]:.3f}",
            f"{losses[-1]:.3f}",
        )
    total = sum(seconds[name] for names in variants.values() for name in names[1:]) / 3600
    assert f"Tuning took 8 runs and {total:.2f} device hours, beside 4 and" in notes


def test_a_best_is_compared_only_with_a_base_that_has_run_with_all_values(tmp_path):
    make(tmp_path, table="table3")
    lines, _ = sensitivity_of(tmp_path)
    line = lines["A h=1"]
    same = line["recipe: verdict"] == line["at best: verdict"]
    assert line["recipe: verdict"]
    assert line["same verdict"] == ("yes" if same else "no")
    for path in tmp_path.glob("base-*1.0/seed*/result.json"):
        path.unlink()
    lines, notes = sensitivity_of(tmp_path)
    line = lines["A h=1"]
    assert line["recipe: verdict"]
    assert line["at best: − base"] == line["at best: verdict"] == line["same verdict"] == ""
    assert "Tuning is not complete: base at 1.0." in notes
    for path in tmp_path.glob("A-h-1*/seed*/result.json"):
        sweeps.change(path.parent, bleu={}, bleu_by_length=[], test={"ppl": 3.0, "bleu": {}})
        for name in ("bleu_counts.json", "test_bleu_counts.json"):
            (path.parent / name).unlink()
    lines, notes = sensitivity_of(tmp_path)
    assert [*lines] == ["base"]
    assert "Not tuned, since they generate no text: A h=1." in notes


def test_the_variance_over_seeds_widens_the_intervals_of_single_seeds(tmp_path):
    make(tmp_path, seeds=1)

    def half_widths():
        lines, _ = sensitivity_of(tmp_path)
        return [float(lines["A h=1"][f"{at}: − base"].split()[-1]) for at in ("recipe", "at best")]

    without = half_widths()
    sweeps.add_seeds(tmp_path, "base", 4)
    assert all(wide > narrow for wide, narrow in zip(half_widths(), without, strict=True))


def test_tuning_stays_within_the_budget(make_config):
    base = make_config()
    free = {"base": {}, "base x": {FIELD: 2.0}, "base y": {"model.dropout_rate": 0.3}}
    for budget in store.BUDGETS:
        rows_lib.require_within(base, "base", free, budget)
        bigger = {"base": {}, "base d_model=32": {"model.d_model": 32}}
        with pytest.raises(
            errors.UserError, match=f"'base d_model=32' would not have the {budget}"
        ):
            rows_lib.require_within(base, "base", bigger, budget)


def test_a_grid_ends_where_a_field_does():
    config = sweeps.base()
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


def test_a_noise_floor_that_serves_no_row_is_refused():
    rows = {"base": {}, "E": {}}
    assert rows_lib.floor_row(table3.TABLE, rows, ["base"], 2) == "base"
    for runs, chosen, message in (
        (1, ["base"], "--noise_floor=1: one run has no variance"),
        (9, ["E"], "--noise_floor runs 'base': name it in --rows too"),
    ):
        with pytest.raises(errors.UserError, match=message):
            rows_lib.floor_row(table3.TABLE, rows, chosen, runs)
    rows = {"base EN-DE": {}, "base EN-FR": {}}
    with pytest.raises(errors.UserError, match="table2 compares no row with 'base EN-DE'"):
        rows_lib.floor_row(table2.TABLE, rows, [*rows], 9)
