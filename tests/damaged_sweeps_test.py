"""Damaged files of a sweep: one clear line names the file and the remedy, and nothing is reported.

Those of a run that was trained stand in `tests/damaged_files_test.py`; here sweeps are made up.
"""

import json
import re
import shutil

import pytest

from experiments import publish
from experiments.reporting import document
from experiments.sweep import results
from tests import refusals, sweeps
from transformer_jax import errors
from transformer_jax.evaluation import bleu

RESULT, METRICS = "A-h-1/seed1/result.json", "A-h-1/seed1/metrics.jsonl"
EXAMPLES, PARSED = "base/seed0/examples.json", "base/seed0/test_parse_counts.json"
SENTENCES = 12
SAID = {"why": "a", "expect": "b", "date": "2026-01-02", "when": "before its runs"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two rows, scored on a development and a test set."""
    workdir = tmp_path_factory.mktemp("made") / "sweep"
    rows = {name: sweeps.some_rows()[name] for name in ("base", "A h=1")}
    sweeps.make(workdir, sweeps.Made(rows, sentences=SENTENCES))
    for path in workdir.glob("*/seed*/result.json"):
        scores = json.loads(path.read_bytes())["bleu"]
        sweeps.change(path.parent, test={"ppl": 4.0, "bleu": scores}, test_sha256="a" * 64)
        shutil.copy(path.with_name("bleu_counts.json"), path.with_name("test_bleu_counts.json"))
    return workdir


def logged(**record):
    """A line more at the end of a metrics.jsonl."""
    return lambda content: content + json.dumps(record).encode() + b"\n"


def without(field):
    def change(content):
        record = json.loads(content)
        del record[field]
        return json.dumps(record).encode()

    return change


def said(reference, row):
    """An examples.json of the sentences of these titles."""
    texts = {"(reference)": dict.fromkeys(reference, "a"), "row": dict.fromkeys(row, "b")}
    return json.dumps(texts).encode()


def refused(path, what, remedy):
    """The message about a file."""
    return rf"{re.escape(path)}.*{what}.*: {remedy}"


def about_line(what, line=41):
    return refused(METRICS, f"line {line} is damaged \\({what}", "delete that line")


def about_result(what):
    return refused(RESULT, f"is damaged \\({what}", "delete it and start the run again")


def about_sweep(what):
    return refused("sweep.json", f"is damaged \\({what}", "start the sweep again")


def about_examples(title):
    return refused(EXAMPLES, f"is damaged \\('{title}' is no sentence of it", "delete it")


change = refusals.changed


@refusals.table(
    ("no object", METRICS, lambda b: b + b"5\n", about_line("it is 5, which is no object")),
    ("step 0", METRICS, lambda b: b'{"step": 0, "tokens": 5}\n' + b, about_line("it.step=0", 1)),
    ("text", METRICS, logged(step=900, loss="low"), about_line('it.loss is "low"')),
    ("no number", METRICS, logged(step=900, ppl=None), about_line("it.ppl is null")),
    ("no perplexity", METRICS, logged(step=900, ppl=0), about_line("it.ppl=0 should be above 0")),
    ("a negative one", METRICS, logged(step=900, dev_ppl=-1.5), about_line("it.dev_ppl=-1.5")),
    ("not a number", METRICS, logged(step=900, ppl=float("nan")), about_line("NaN is no JSON")),
    ("tokens", METRICS, logged(step=900, tokens=-1), about_line("it.tokens=-1 should be at least")),
    ("back", METRICS, logged(step=5, ppl=2), about_line("step 5 comes after step 400")),
    ("again", METRICS, logged(step=400, ppl=2), about_line("step 400 comes after step 400")),
    ("test null", RESULT, change("test", None), about_result("it.test is null, which is no obj")),
    ("test empty", RESULT, change("test", {}), about_result("it.test has no ppl")),
    ("test missing", RESULT, without("test"), about_result("it has no test")),
    ("test without BLEU", RESULT, change("test/bleu", {}), about_result("it.test.bleu has no")),
    ("parses", RESULT, change("test/parses", {}), about_result("it.test.parses has no f1")),
    ("devices", RESULT, change("devices", "cpu"), about_result('it.devices is "cpu"')),
    ("no device", RESULT, change("devices", []), about_result("a run on no device")),
    ("versions", RESULT, change("versions", ["jax"]), about_result('it.versions is \\["jax"\\]')),
    ("ppl", RESULT, change("ppl", 0), about_result("it.ppl=0 should be above 0")),
    ("score", RESULT, change(f"bleu/{bleu.MAIN}/score", -1), about_result(".*score=-1 should be")),
    ("buckets", RESULT, change("bleu_by_length", []), about_result("no sentence of any length")),
    ("hours", RESULT, change("wall_seconds", -1), about_result("it.wall_seconds=-1 should be")),
    ("answers", RESULT, change("accuracy", {"share": 2}), about_result("it.accuracy.share=2 sho")),
    ("speed", RESULT, change("tokens_per_second", "x"), about_result("it.tokens_per_second is")),
    ("directions", RESULT, change("directions", {"x": {}}), about_result("it.directions.x has no")),
    ("no table", "sweep.json", change("table", "table1"), about_sweep("no table is called 'tabl")),
    ("a floor below 0", "sweep.json", change("noise_floor", -3), about_sweep("it.noise_floor=-3")),
    ("a floor of 1", "sweep.json", change("noise_floor", 1), about_sweep(".*at least 2, or 0 for")),
    ("no seed", "sweep.json", change("seeds", {"base": 0}), about_sweep("it.seeds.base=0 should")),
    ("seeds", "sweep.json", change("seeds", {"Z": 1}), about_sweep("seeds names 'Z', which is no")),
    ("said", "sweep.json", change("said", {"Z": SAID}), about_sweep("said names 'Z', which is no")),
    ("said what", "sweep.json", change("said", {"base": {"x": "a"}}), about_sweep(".* has no why")),
    ("budget", "sweep.json", change("match", "money"), about_sweep("match='money' is unknown")),
    (
        "two fields",
        "sweep.json",
        change("tune", {"model.d_k": [4], "model.d_v": [4]}),
        about_sweep("it tunes several fields: model.d_k, model.d_v"),
    ),
    ("no title", EXAMPLES, said(["S1"], ["S1"]), about_examples("S1")),
    ("no number of a sentence", EXAMPLES, said([","], [","]), about_examples(",")),
    *(
        (name, EXAMPLES, said(reference, row), about_examples(wrong))
        for name, reference, row, wrong in (
            ("commas", ["Sentence , of ,"], ["Sentence , of ,"], "Sentence , of ,"),
            ("sentence 0", ["Sentence 0 of 9"], ["Sentence 0 of 9"], "Sentence 0 of 9"),
            ("beyond", ["Sentence 10 of 9"], ["Sentence 10 of 9"], "Sentence 10 of 9"),
            ("reference alone", ["Sentence 1 of 9"], [], "Sentence 1 of 9"),
            ("row alone", [], ["Sentence 1 of 9"], "Sentence 1 of 9"),
            ("totals", *[["Sentence 1 of 9", "Sentence 2 of 8"]] * 2, "Sentence 2 of 8"),
        )
    ),
)
def test_a_damaged_file_is_not_reported(made, tmp_path, case):
    name, content, message = case
    copy = shutil.copytree(made, tmp_path / "sweep")
    refusals.damage(copy / name, content)
    if name == EXAMPLES:  # of a run that was published, which has no other texts
        for path in copy.glob("base/seed0/*.txt"):
            path.unlink()
    with pytest.raises(errors.UserError, match=message):
        document.write(copy)
    assert not (copy / "table3.md").exists()


@pytest.mark.parametrize(
    ("table", "lacks"), [("table2", "test.bleu has no paper"), ("table4", "parses")]
)
def test_a_sweep_of_another_table_is_not_reported_as_this_one(made, tmp_path, table, lacks):
    copy = shutil.copytree(made, tmp_path / "sweep")
    sweeps.set_record(copy, table=table)
    message = rf"base/seed0/result\.json is no result of {table} \(it.*{lacks}\), which sweep\.json"
    with pytest.raises(errors.UserError, match=message):
        document.write(copy)


@refusals.table(
    ("cut short", PARSED, b'{"f1": [', r"seed0/test_parse_counts\.json is damaged .*: delete the"),
    ("of another measure", "base/seed1/parse_counts.json", b'{"x": []}', r"damaged \(it has no f1"),
    ("a tuned run's log", "base-d_k-4/seed0/metrics.jsonl", b"5\n", r"d_k-4/.*line 1 is damaged"),
)
def test_what_the_report_does_not_read_is_checked_before_it_is_published(made, tmp_path, case):
    name, content, message = case
    copy = shutil.copytree(made, tmp_path / "sweep")
    shutil.copytree(copy / "base", copy / "base-d_k-4")
    sweeps.set_record(copy, tune={"model.d_k": [4]})
    refusals.damage(copy / name, content)
    document.write(copy)
    with pytest.raises(errors.UserError, match=message):
        publish.publish(copy, tmp_path / "published")


def test_counts_of_a_test_set_that_no_result_speaks_of_are_named(made, tmp_path):
    copy = shutil.copytree(made, tmp_path / "sweep")
    for path in copy.glob("*/*/result.json"):
        sweeps.change(path.parent, test_sha256="")
        refusals.damage(path, without("test"))
    message = (
        r"base/seed0/test_bleu_counts\.json counts sentences of which .* has no BLEU: delete it"
    )
    with pytest.raises(errors.UserError, match=message):
        document.write(copy)


@pytest.mark.parametrize("file", ["bleu_counts.json", "test_bleu_counts.json"])
def test_a_scored_run_that_has_lost_its_counts_is_named(made, tmp_path, file):
    copy = shutil.copytree(made, tmp_path / "sweep")
    (results.cell_folder(copy, "A h=1", 1) / file).unlink()
    with pytest.raises(errors.UserError, match=f"A-h-1/seed1/{file} is missing, .*result.json"):
        document.write(copy)


def test_one_test_sentence_is_shown_without_a_difference(made, tmp_path):
    copy = shutil.copytree(made, tmp_path / "sweep")
    for path in copy.glob("*/*/test_bleu_counts.json"):
        counts = json.loads(path.read_bytes())[bleu.MAIN]
        sweeps.keep_counts(path.parent, counts[:1], "test")
    document.write(copy)
    assert "The test set says" not in (copy / "report.html").read_text(encoding="utf-8")
    text = (copy / "table3.md").read_text(encoding="utf-8")
    whole, tested, _ = re.split("^## ", text, flags=re.MULTILINE)
    assert tested.startswith("Test set, 1 sentence\n")
    lines = {line.split(" | ")[0]: line.split(" | ") for line in tested.splitlines()}
    scores = [
        json.loads((copy / f"A-h-1/seed{seed}/result.json").read_bytes())["test"]["bleu"]
        for seed in range(2)
    ]
    mean = sum(score[bleu.MAIN]["score"] for score in scores) / 2
    assert lines["| A h=1"][1].startswith("4.000")
    assert lines["| A h=1"][2].startswith(f"{mean:.2f}")
    assert not lines["| A h=1"][3].strip()
    on_dev = next(line for line in whole.splitlines() if line.startswith("| A h=1 |"))
    assert re.search(r"\+\d+\.\d+ ± \d", on_dev)  # many sentences do say something


@pytest.mark.parametrize("sentences", [2, 3])
def test_a_half_of_one_sentence_says_nothing_of_a_tuned_row(tmp_path, sentences):
    rows, tune = {"base": {}, "E": sweeps.some_rows()["E"]}, {"train.learning_rate_scale": [2.0]}
    variants = {}
    for name, changes in rows.items():
        variants |= results.tuned(name, changes, sweeps.base(), tune)
    sweeps.make(tmp_path, sweeps.Made(variants, sentences=sentences))
    sweeps.set_record(tmp_path, rows=rows, tune=tune)
    document.write(tmp_path)
    text = (tmp_path / "table3.md").read_text(encoding="utf-8").partition("## Sensitivity")[2]
    heads, _, *lines = (line.split(" | ") for line in text.splitlines() if line.startswith("| "))
    cells = dict(zip(heads, next(line for line in lines if line[0] == "| E"), strict=True))
    assert cells["best at"]
    assert not cells["− base: recipe"].strip()


def test_a_variant_that_some_runs_lack_has_no_mean(made, tmp_path):
    copy = shutil.copytree(made, tmp_path / "sweep")
    own = json.loads((copy / RESULT).read_bytes())["bleu"]
    sweeps.change(copy / "A-h-1/seed1", bleu={"paper": {"score": 7.0, "signature": "s"}, **own})
    publish.publish(copy, tmp_path / "published")
    text = (tmp_path / "published/scores.md").read_text(encoding="utf-8").partition("## Test")[0]
    heads, _, *lines = (line.split(" | ") for line in text.splitlines() if line.startswith("|"))
    columns = [head.strip(" |") for head in heads]
    assert {*columns} == {"row", "seeds", "PPL", bleu.MAIN, "paper"}
    for line in lines:
        cells = dict(zip(columns, [cell.strip(" |") for cell in line], strict=True))
        assert (cells["paper"], float(cells[bleu.MAIN]) > 0) == ("", True)


def test_examples_of_two_sets_stand_below_their_own_references(made, tmp_path):
    copy = shutil.copytree(made, tmp_path / "sweep")
    for row, text in (("base", "Hund"), ("A-h-1", "chien")):
        for path in copy.glob(f"{row}/*/*.txt"):
            path.unlink()
        for folder in copy.glob(f"{row}/*"):
            texts = {"(reference)": text, "row": f"{text}!"}
            said_here = {name: {"Sentence 1 of 9": each} for name, each in texts.items()}
            (folder / "examples.json").write_text(json.dumps(said_here))
    publish.publish(copy, tmp_path / "published")
    text = (tmp_path / "published/examples.md").read_text(encoding="utf-8")
    shown = [line for line in text.splitlines() if "Hund" in line or "chien" in line]
    assert shown == [
        *("| (reference) | Hund |", "| base | Hund! |"),
        *("| (reference) | chien |", "| A h=1 | chien! |"),
    ]


@pytest.mark.parametrize(
    ("tune", "what"),
    [("data.vocab_size:400,420", "tokenizer"), ("data.toy_seed:0,1", "corpus")],
)
def test_values_that_could_not_stand_in_one_table_are_not_run(server, tmp_path, tune, what):
    sizes = ("--config.data.toy_pairs=500", "--config.data.vocab_size=400")
    folder = tmp_path / "sweep"
    flags = ["--config=configs/toy.py", *sizes, f"--workdir={folder}", "--rows=base"]
    message = rf"nothing was run: .*they differ in {what} \(.*\): see base and base \w+=\d+; give"
    refusals.assert_refused(server.run("experiments.table3", *flags, f"--tune={tune}"), message)
    assert [path.name for path in folder.iterdir()] == ["cache"]
