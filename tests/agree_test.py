"""What two sweeps agree on, against scipy and against counting by hand."""

import itertools
import json
import shutil

import numpy as np
import pytest
import scipy.stats

from experiments import agree, compare, table3
from experiments.analysis import noise_floor, ranks
from experiments.sweep import results
from tests import sweeps
from transformer_jax import errors
from transformer_jax.evaluation import bleu, measures

ROWS = ["base", "A h=1", "C N=2", "D P_drop=0.0", "D eps_ls=0.2"]


def counted(right, seeds=2, sentences=40):
    """Counts of runs that have a share of their words right."""
    random = np.random.default_rng(round(1000 * right))
    found = {}
    for seed in range(seeds):
        kept = random.binomial(12, right, size=sentences)
        ngrams = [np.maximum(kept - n, 0) for n in range(4)]
        totals = [np.full(sentences, 12 - n) for n in range(4)]
        words = np.full(sentences, 12)
        found[seed] = np.stack([words, words, *ngrams, *totals], axis=1).astype(np.int32)
    return found


def mean_score(runs):
    score = measures.MEASURES[bleu.MAIN].from_counts
    return np.mean([score(run.sum(0)) for run in runs.values()])


def test_orders_are_compared_as_scipy_and_hand_counts_do():
    shares = {"base": (0.6, 0.7), "a": (0.5, 0.75), "b": (0.55, 0.5), "c": (0.8, 0.9)}
    sides = [{name: counted(each[i]) for name, each in shares.items()} for i in (0, 1)]
    references = dict.fromkeys("abc", "base")
    found = ranks.agreement(sides, references, (bleu.MAIN, bleu.MAIN))
    ours, theirs = ([mean_score(runs) for runs in side.values()] for side in sides)
    assert found.tau.value == pytest.approx(scipy.stats.kendalltau(ours, theirs)[0])
    pairs = [(i, j) for i, j in itertools.combinations(range(4), 2)]
    alike = [(ours[i] > ours[j]) == (theirs[i] > theirs[j]) for i, j in pairs]
    assert found.pairs.value == np.mean(alike)
    assert found.signs.value == pytest.approx(2 / 3)  # a turns
    assert found.num_pairs == len(pairs)
    for each in (found.tau, found.pairs, found.signs):
        assert each.low <= each.value <= each.high


def test_noise_widens_the_interval():
    def tau(sentences):
        shares = {"x": 0.5, "y": 0.55, "z": 0.6}
        side = {name: counted(share, 2, sentences) for name, share in shares.items()}
        references = {"y": "x", "z": "x"}
        return ranks.agreement([side, side], references, (bleu.MAIN, bleu.MAIN)).tau

    few, many = tau(10), tau(2000)
    assert (many.low, many.value, many.high) == (1, 1, 1)
    assert few.high - few.low > 0.5


def test_a_noise_floor_stands_for_the_seeds_of_single_runs():
    shares = {"x": 0.5, "y": 0.55, "z": 0.6}
    side = {name: counted(share, 1, 2000) for name, share in shares.items()}
    scores = {name: mean_score(runs) for name, runs in side.items()}
    step = scores["y"] - scores["x"]

    def sign_of_y(deviation):
        spread = noise_floor.Spread(deviation**2, 1000)
        floor = noise_floor.Floor(spread, ["x"], deviation, {}, {})
        return ranks.agreement(
            [side, side], {"y": "x"}, (bleu.MAIN, bleu.MAIN), (floor, None)
        ).signs

    assert sign_of_y(step / 20).low == 1
    assert sign_of_y(step).low == 0  # y turns in one of Φ(-1/√2), 24%, of the draws
    assert sign_of_y(step).value == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("agree") / "small"
    rows = table3.rows_for(sweeps.base())
    sweeps.make(workdir, sweeps.Made({row: rows[row] for row in (*ROWS, "E")}), missing=["E"])
    return workdir


def test_a_sweep_agrees_with_itself(made):
    table, notes = agree.agree(made, made)
    assert [line[0] for line in table.lines] == ROWS[1:]
    assert {line[3].split(",")[0] for line in table.lines} == {agree.SAME}
    assert notes[0].startswith("Decision accuracy over 4 rows against base: 100% ")
    assert notes[1].startswith("Kendall's tau-b between both orders: 1.00 ")
    assert notes[2] == "Turned: none; surely in both: none."


def test_a_row_that_turns_is_named(made, tmp_path):
    other = shutil.copytree(made, tmp_path / "large")
    row = "D eps_ls=0.2"  # of the made-up rows, a good one
    for seed in range(2):
        path = results.cell_folder(other, row, seed) / "bleu_counts.json"
        counts = json.loads(path.read_bytes())[bleu.MAIN]
        worse = [[*line[:2], 1, 0, 0, 0, *line[6:]] for line in counts]
        sweeps.keep_counts(path.parent, worse)
    shutil.rmtree(results.cell_folder(other, "A h=1", 0).parent)
    table, notes = agree.agree(made, other)
    lines = {line[0]: line[3] for line in table.lines}
    assert "A h=1" not in lines
    assert f"{made}: left out, since the other has not run it: A h=1." in notes
    assert {name for name, said in lines.items() if said.startswith(agree.TURNED)} == {row}
    assert notes[2] == f"Turned: {row}; surely in both: {row}."
    assert lines[row] == agree.TURNED


def test_what_one_seed_says_is_perhaps_by_chance(made, tmp_path):
    alone = shutil.copytree(made, tmp_path / "one")
    for folder in alone.glob("*/seed1"):
        shutil.rmtree(folder)
    table, notes = agree.agree(made, alone)
    assert all(line[3].endswith(agree.PERHAPS) for line in table.lines)
    assert any("one seed and no noise floor: base, A h=1" in note for note in notes)


def test_bases_of_two_names_are_refused(made, tmp_path):
    other = shutil.copytree(made, tmp_path / "other")
    record = json.loads((made / "sweep.json").read_bytes())
    base, *rest = record["rows"]
    turned = {name: record["rows"][name] for name in (*rest, base)}
    sweeps.set_record(other, rows=turned)
    with pytest.raises(errors.UserError, match=f"'base' and .* with '{rest[0]}': give two sweeps"):
        agree.agree(made, other)


def test_a_comparison_knows_the_noise_that_each_side_knows(made, tmp_path):
    def halves(folder):
        table, notes = compare.compare(made, folder)
        cells = {line[0]: line[3] for line in table.lines if line[3]}
        return {row: float(cell.split(" ± ")[1].split()[0]) for row, cell in cells.items()}, notes

    alone, floored = (tmp_path / name for name in ("alone", "floored"))
    for folder in (alone, floored):
        shutil.copytree(made, folder)
        for row in ROWS[folder is floored :]:
            shutil.rmtree(results.cell_folder(folder, row, 1))
    sweeps.set_record(floored, noise_floor=2)
    narrow, notes = halves(alone)
    assert (
        f"Over sentences alone, one side having one seed and no noise floor: {', '.join(ROWS)}."
        in (notes)
    )
    wide, notes = halves(floored)
    assert not any("alone" in note.split("/")[-1] for note in notes)
    assert all(wide[row] > narrow[row] for row in ROWS)
    folder = results.cell_folder(floored, "A h=1", 0)
    sweeps.change(folder, bleu={}, bleu_by_length=[])
    (folder / "bleu_counts.json").unlink()
    rest, notes = halves(floored)
    assert "A h=1" not in rest
    assert "Without a difference, since they write no sentences: A h=1." in notes


def test_sentences_in_another_order_are_not_compared(made, tmp_path):
    other = shutil.copytree(made, tmp_path / "other")
    path = results.cell_folder(other, "A h=1", 0) / "bleu_counts.json"
    sweeps.keep_counts(path.parent, json.loads(path.read_bytes())[bleu.MAIN][::-1])
    with pytest.raises(errors.UserError, match=r"row 'A h=1': .* or in another order: delete"):
        compare.compare(made, other)


def test_sweeps_of_two_tables_or_of_no_shared_row_are_refused(made, tmp_path):
    rows = {"base": {}, "other": {"train.warmup_steps": 3}}
    sweeps.make(tmp_path / "a", sweeps.Made(rows, table="mine"))
    with pytest.raises(errors.UserError, match="give two sweeps of one table"):
        agree.agree(made, tmp_path / "a")
    sweeps.make(tmp_path / "b", sweeps.Made(rows))
    with pytest.raises(errors.UserError, match="share no row that both compare with base"):
        agree.agree(made, tmp_path / "b")


def test_a_row_that_is_compared_with_different_rows_is_left_out_and_named(tmp_path):
    short = {"data.train_max_tokens": 8}
    rows = {"base": {}, "short": short, "wide": {"model.d_ff": 64}}
    rows["short wide"] = {**short, **rows["wide"]}
    sweeps.make(tmp_path / "a", sweeps.Made(rows))
    del rows["short"]
    sweeps.make(tmp_path / "b", sweeps.Made(rows))
    table, notes = agree.agree(tmp_path / "a", tmp_path / "b")
    assert [line[0] for line in table.lines] == ["wide"]
    assert sum("compares them with another row: short wide." in note for note in notes) == 2


def test_what_commands_print_of_sweeps_is_what_they_write(server, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for workdir in (one, other):
        sweeps.make(workdir, sweeps.Made(sweeps.some_rows()))
    for command in ("agree", "compare"):
        output = tmp_path / f"{command}.md"
        done = server.run(f"experiments.{command}", str(one), str(other), f"--output={output}")
        assert done.code == 0, done.stderr
        assert " A h=1 " in done.stdout.decode()
        assert "| A h=1 |" in output.read_text(encoding="utf-8")
    done = server.run("experiments.diff", str(one), "base", "A h=1")
    assert done.code == 0, done.stderr
    assert " model.num_heads " in done.stdout.decode()
    for flag, shows in (("--examples", True), ("--noexamples", False)):
        there = tmp_path / "published"
        done = server.run("experiments.publish", f"--workdir={one}", f"--output={there}", flag)
        assert done.code == 0, done.stderr
        assert (there / "table3.md").read_bytes() == (one / "table3.md").read_bytes()
        assert (there / "examples.md").exists() == shows
