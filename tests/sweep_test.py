"""A small sweep of Table 3 from start to report."""

import csv
import dataclasses
import json
import os
import re
import shutil

import pytest

from experiments import publish, table3
from experiments.analysis import comparison
from experiments.reporting import comparison_table, translations
from experiments.sweep import progress, results
from tests import sweeps, tiny
from tests.rows_test import paper_base
from transformer_jax import errors


def run_table3(server, workdir, *arguments, **overrides):
    values = {"train.num_steps": 4, "model.num_layers": 3, "model.num_heads": 8, "model.d_k": 8,
              "model.d_v": 8, "model.d_model": 64, **overrides}  # fmt: skip
    return tiny.sweep(server, "table3", workdir, *arguments, **values)


@pytest.fixture(scope="module")
def swept(server, tmp_path_factory):
    """A sweep of three rows, one of which fails in the middle of its work.

    That with fewer layers takes less time.
    """
    workdir = tmp_path_factory.mktemp("sweep")
    # A file where the run of row E wants its checkpoints.
    blocked = results.cell_folder(workdir, "E", 0)
    blocked.mkdir(parents=True)
    (blocked / "checkpoints").write_text("in the way")
    return workdir, run_table3(server, workdir, "--rows=base,C N=2,E")


def test_a_failed_row_does_not_stop_the_others(swept):
    workdir, done = swept
    assert done.returncode == 1
    for row in ("base", "C N=2"):
        result = json.loads((results.cell_folder(workdir, row, 0) / "result.json").read_text())
        assert (result["row"], result["seed"]) == (row, 0)
    failure = json.loads((results.cell_folder(workdir, "E", 0) / "failure.json").read_text())
    assert set(failure) == {"error", "traceback", "step"}
    assert "failed: E, seed 0: " in done.stderr


def test_the_table_shows_ours_beside_the_papers(swept):
    workdir, done = swept
    markdown = (workdir / "table3.md").read_text()
    first = markdown.split("\n## ")[0].splitlines()
    lines = {line.split(" | ")[0].strip("| "): line for line in first}
    assert lines["C N=2"].endswith("| 6.11 | 23.7 | −2.1 | 36 | undecided (one seed) |")
    assert lines["C N=2"].startswith("| C N=2 | N=1 | ")  # of our three layers
    assert "failed" in lines["E"]
    assert "paper: BLEU" in lines["row"]
    assert "WMT14 newstest2013" in markdown
    assert "Not run: “A h=1”" in markdown
    with (workdir / "table3.csv").open() as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert len(rows) == 20
    result = json.loads((results.cell_folder(workdir, "C N=2", 0) / "result.json").read_text())
    assert float(rows["C N=2"]["bleu"]) == result["bleu"]["sacrebleu_13a"]["score"]
    assert float(rows["C N=2"]["params"]) == result["params"]
    assert "C N=2" in done.stdout


@pytest.fixture
def copied(swept, tmp_path):
    """The sweep's folder, to be changed at will."""
    return shutil.copytree(swept[0], tmp_path / "sweep")


@pytest.mark.slow
def test_a_second_start_runs_only_what_is_missing(server, copied):
    (results.cell_folder(copied, "E", 0) / "checkpoints").unlink()
    untouched = results.cell_folder(copied, "base", 0) / "result.json"
    before = untouched.stat().st_mtime_ns
    left = run_table3(server, copied, "--rows=base,C N=2,E")
    assert left.returncode == 1
    assert "2 of 3 runs are done; 0 to go" in left.stderr
    assert re.search("failed: E, seed 0: NotADirectoryError: .*--retry_failed", left.stderr)
    done = run_table3(server, copied, "--rows=base,C N=2,E", "--retry_failed")
    assert done.returncode == 0, done.stderr
    assert "2 of 3 runs are done; 1 to go" in done.stderr
    assert untouched.stat().st_mtime_ns == before
    assert not (results.cell_folder(copied, "E", 0) / "failure.json").exists()


@pytest.mark.slow
def test_a_changed_config_sets_old_runs_aside_and_brings_them_back(server, copied):
    base = results.cell_folder(copied, "base", 0)
    old = (base / "result.json").read_text()
    old_hash = json.loads(old)["config_hash"]
    changed = run_table3(server, copied, "--rows=base", **{"train.learning_rate_scale": 0.25})
    assert changed.returncode == 0, changed.stderr
    assert (base.with_name(f"seed0.{old_hash[:8]}") / "result.json").read_text() == old
    assert json.loads((base / "result.json").read_text())["config_hash"] != old_hash
    # The other rows are still those of the first base: they do not enter this table.
    table = (copied / "table3.md").read_text()
    assert "Left out, being of another configuration: C N=2 (seed 0), E (seed 0)." in table
    with (copied / "table3.csv").open() as file:
        assert {line["row"] for line in csv.DictReader(file) if line["seeds"] != "0"} == {"base"}
    back = run_table3(server, copied, "--rows=base")
    assert "1 of 1 runs are done; 0 to go" in back.stderr
    assert (base / "result.json").read_text() == old


@pytest.mark.slow
def test_missing_seeds_of_a_row_are_trained(server, copied):
    done = run_table3(server, copied, "--rows=C N=2", "--seeds=3")
    assert done.returncode == 0, done.stderr
    assert "1 of 3 runs are done; 2 to go" in done.stderr
    rows = {row.name: row for row in results.read(copied).rows}
    assert rows["C N=2"].results.keys() == {0, 1, 2}
    runs = [(run.row, run.seed) for run in progress.read(copied)]  # of this start and the first
    assert runs == [("base", 0), *(("C N=2", seed) for seed in range(3)), ("E", 0)]


def test_what_is_published_is_the_table_the_results_and_ten_sentences(swept, tmp_path):
    workdir, _ = swept
    publish.publish(workdir, tmp_path)
    expected = {"table3.md", "table3.csv", "scores.md", "examples.md", "sweep.json"}
    left = ("bleu_counts.json", "nll.json", translations.PUBLISHED)
    of_a_run = ("result.json", "run.json", "metrics.jsonl", *left)
    expected |= {f"{row}/seed0/{name}" for row in ("base", "C-N-2") for name in of_a_run}
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert found == expected
    for name in ("table3.md", "table3.csv", "C-N-2/seed0/result.json", "C-N-2/seed0/run.json"):
        assert (tmp_path / name).read_bytes() == (workdir / name).read_bytes()
    result = json.loads((tmp_path / "base/seed0/result.json").read_bytes())
    scores = (tmp_path / "scores.md").read_text(encoding="utf-8")
    assert all(f"{each['score']:.2f}" in scores for each in result["bleu"].values())
    shown = (tmp_path / "examples.md").read_text(encoding="utf-8")
    references = (workdir / "base/seed0/references.txt").read_text(encoding="utf-8").splitlines()
    assert shown.count("| (reference) |") == publish.EXAMPLES
    assert sum(f"| {sentence} |" in shown for sentence in set(references)) == publish.EXAMPLES


def test_what_is_published_without_examples_has_no_sentence(swept, tmp_path):
    workdir, _ = swept
    publish.publish(workdir, tmp_path)  # nor is one left of an earlier time
    publish.publish(workdir, tmp_path, with_examples=False)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not {"examples.md", translations.PUBLISHED} & {path.name for path in files}
    references = (workdir / "base/seed0/references.txt").read_text(encoding="utf-8").splitlines()
    sentence = max(references, key=len)
    assert not any(sentence in path.read_text(encoding="utf-8") for path in files)


def test_what_is_published_can_be_reported_reused_and_published_again(swept, server, tmp_path):
    workdir, _ = swept
    published, again, taken = (tmp_path / name for name in ("published", "again", "taken"))
    publish.publish(workdir, published)
    publish.publish(published, again)
    for path in (each for each in published.rglob("*.*") if each.name != "report.html"):
        assert (again / path.relative_to(published)).read_bytes() == path.read_bytes(), path
    done = run_table3(server, taken, "--rows=base,C N=2", f"--reuse={published}")
    assert done.returncode == 0, done.stderr
    shown, expected = (
        (folder / "table3.csv").read_text().splitlines() for folder in (taken, workdir)
    )
    assert shown[:9] == expected[:9]  # the failed row is not copied
    assert not list(taken.rglob("checkpoints"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"data_sha256": "other"}, "corpus"),
        ({"tokenizer_sha256": "other"}, "tokenizer"),
        ({"test_sha256": "other"}, r"test set \(not scored, other\)"),
        ({"data": {"languages": ["de", "en"]}}, r"direction \(de to en, en to de\)"),
        ({"decode": {"alpha": 1.0}}, r"decode\.alpha \(0\.6, 1\.0\)"),
        ({"bleu": {"sacrebleu_13a": {"score": 1, "signature": "other"}}}, "BLEU signature"),
    ],
)
def test_results_measured_differently_do_not_share_a_table(swept, changes, what):
    workdir, _ = swept
    read = results.read(workdir)
    row = read.rows[0]
    mixed = dataclasses.replace(row, results={**row.results, 1: {**row.results[0], **changes}})
    with pytest.raises(errors.UserError, match=f"differ in {what}"):
        comparison.require_alike([mixed, *read.rows[1:]])
    if "decode" in changes:  # which a row may be there to vary
        declared = dataclasses.replace(
            row, overrides={"decode.alpha": 1.0}, results={0: {**row.results[0], **changes}}
        )
        comparison.require_alike([declared, *read.rows[1:]])


def test_the_dry_run_prints_rows_and_runs_nothing(server, tmp_path):
    flags = ["--config=configs/base.py", "--config.data.vocab_size=40960", "--dry_run"]
    flags.append("--rows=base,A h=1,B d_k=16")
    columns = {"COLUMNS": "200"}
    done = server.run("experiments.table3", *flags, f"--workdir={tmp_path}", environment=columns)
    assert done.code == 0, done.stderr
    lines = {line.strip().split("  ")[0]: line for line in done.stdout.decode().splitlines()}
    assert lines["base"].split()[1:4] == ["65.073", "65", "6.99e-04"]
    assert lines["B d_k=16"].split()[2:5] == ["57.995", "−11%", "58"]
    assert "model.num_heads=1 model.d_k=512 model.d_v=512" in lines["A h=1"]
    assert {*table3.ROWS} & {*lines} == {"base", "A h=1", "B d_k=16"}
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.position": "lerned"}, "row 'base': model.position='lerned' is unknown"),
        ({"model.num_kv_heads": 2}, "row 'A h=1': model.num_kv_heads=2 should divide"),
        ({"decode.penalty": "gmnt"}, "row 'base': decode.penalty='gmnt' is unknown"),
        ({"mesh.data": 3}, "mesh.data=3, mesh.fsdp=1 and mesh.tensor=1 do not share out 1 devices"),
        ({"train.seed": 3}, "--config.train.seed: a sweep sets the seeds; use --seeds"),
    ],
)
def test_a_sweep_that_cannot_run_starts_nothing(server, tmp_path, overrides, message):
    done = run_table3(server, tmp_path, **overrides)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"] or not os.listdir(tmp_path)


def test_below_a_narrow_base_a_line_says_that_bigs_dropout_is_not_scaled(tmp_path):
    for name, base, width in (("narrow", sweeps.base(), 64), ("paper", paper_base(), None)):
        rows = {row: table3.rows_for(base)[row] for row in ("base", "big")}
        sweeps.make(tmp_path / name, sweeps.Made(rows, base=base))
        notes = comparison_table.notes(comparison.compare(results.read(tmp_path / name)))
        lines = [note for note in notes if note.startswith("big:")]
        assert len(lines) == (width is not None)
        if width:
            assert (
                f"P_drop=0.3 meets {width} dimensions where the paper's big has 1,024" in lines[0]
            )


def test_a_table_whose_runs_had_other_devices_says_so(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows()))

    def said():
        notes = comparison_table.notes(comparison.compare(results.read(tmp_path)))
        return [note for note in notes if note.startswith("Runs by the devices")]

    assert not said()
    runs = len([*tmp_path.glob("*/seed*/result.json")])
    sweeps.change(results.cell_folder(tmp_path, "base", 0), devices=8 * ["NVIDIA H100"])
    assert said() == [
        f"Runs by the devices that trained them: {runs - 1} on cpu, 1 on NVIDIA H100."
    ]


def test_a_test_set_like_the_development_set_gives_the_same_differences_and_verdicts(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows()))
    without = comparison_table.document(comparison.compare(results.read(tmp_path)))
    for path in tmp_path.glob("*/seed*/result.json"):
        result = json.loads(path.read_text())
        result["test"] = {name: result[name] for name in ("ppl", "bleu")}
        path.write_text(json.dumps(result))
        shutil.copy(path.with_name("bleu_counts.json"), path.with_name("test_bleu_counts.json"))
    dev, test, *rest = comparison_table.document(comparison.compare(results.read(tmp_path))).shown
    assert [each.title for each in without.shown] == [each.title for each in (dev, *rest)]
    chosen = [dev.heads.index(name) for name in ("row", "PPL", "BLEU", "− base", "paper: − base")]
    expected = [[line[place] for place in [*chosen, -1]] for line in dev.lines if line[2]]
    assert [*map(list, test.lines)] == expected
    assert any(line[3] for line in expected)


def test_no_folder_of_the_runs_machine_is_published(copied, tmp_path):
    path = results.cell_folder(copied, "base", 0) / "result.json"
    result = json.loads(path.read_text())
    result["overrides"] = {"data.train": "/mine/one/train,/mine/other/more"}
    result["data"]["files"] = [{"path": "/mine/one/train.en"}]
    path.write_text(json.dumps(result))
    publish.publish(copied, tmp_path)
    shown = json.loads((tmp_path / "base/seed0/result.json").read_text())
    assert shown["overrides"] == {"data.train": "train,more"}
    assert shown["data"]["files"] == [{"path": "train.en"}]
    assert shown["bleu"] == result["bleu"]
