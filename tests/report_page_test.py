"""A sweep's page: what it says is what the results say, and it needs nothing but itself."""

import base64
import csv
import dataclasses
import hashlib
import html.parser
import json
import re
import shutil

import numpy as np
import pytest

from experiments import table3
from experiments.analysis import comparison, significance
from experiments.benchmarks import cost
from experiments.reporting import content as content_lib
from experiments.reporting import document, headline, latex
from experiments.sweep import results
from tests import sweeps
from transformer_jax import errors
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu


class Parts(html.parser.HTMLParser):
    """The scripts and the addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.data, self.addresses, self.policy = [], {}, [], ""
        self._open = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.addresses += [found[name] for name in ("src", "href", "srcset") if name in found]
        if tag == "meta" and found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        self._open = found if tag == "script" else None

    def handle_data(self, data):
        if self._open is not None and "id" in self._open:
            self.data[self._open["id"]] = json.loads(data)
        elif self._open is not None and data.strip():
            self.scripts.append(data)

    def handle_endtag(self, tag):
        self._open = None


def page_of(workdir):
    return Parts((workdir / "report.html").read_text(encoding="utf-8"))


def content_of(workdir):
    document.write(workdir)
    return page_of(workdir).data


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A sweep of four rows, one of which has failed at one seed and one is not run."""
    workdir = tmp_path_factory.mktemp("made") / "sweep"
    sweeps.make(workdir, sweeps.Made(sweeps.some_rows()), missing=["E"])
    sweeps.fail(workdir, "D P_drop=0.0", 7, "loss is no number")
    document.write(workdir)
    return workdir


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made, tmp_path / "sweep")


def test_the_page_shows_the_lines_of_the_markdown_and_csv(made):
    found = page_of(made).data["content-data"]
    main = found["tables"][0]
    shown = {line[0]: line for line in main["lines"]}
    assert list(shown) == list(sweeps.some_rows())
    markdown = (made / "table3.md").read_text(encoding="utf-8")
    run = tables.Printed(main["heads"], [line for line in main["lines"] if line[0] != "E"])
    assert markdown.startswith(tables.markdown([run], []).strip())
    assert found["downloads"]["table3.md"] == markdown
    assert found["downloads"]["table3.csv"] == (made / "table3.csv").read_text(encoding="utf-8")
    gaps = {
        row["row"]: row["bleu_minus_base"]
        for row in csv.DictReader(found["downloads"]["table3.csv"].splitlines())
    }
    for row in found["rows"]:
        assert gaps[row["name"]] == (str(row["gap"]["mean"]) if row["gap"] else "")


def test_failed_and_missing_rows_stand_there_with_their_reasons(made):
    found = page_of(made).data["content-data"]
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["D P_drop=0.0"]["reasons"] == ["failed, seed 7: loss is no number"]
    lines = {line[0]: line for line in found["tables"][0]["lines"]}
    assert "not run" in lines["E"]
    assert rows["E"]["score"] is None


def test_the_summary_names_the_row_that_hurts_most(made):
    found = page_of(made).data["content-data"]
    assert found["summary"].startswith("3 of 4 rows, 2 seeds")
    sweep = results.read(made)
    gap = significance.Difference(-5.0, 1.0, (2, 2))
    near, far = (significance.Difference(mean, 1.0, (2, 2)) for mean in (-3.5, -2.5))
    gaps = {"A h=1": gap, "D P_drop=0.0": near, "E": far}
    compared = comparison.Comparison(sweep, table3.TABLE, {}, gaps, (-0.5, -1, 0, 3))
    said = headline.summary(compared)
    assert (
        "−5.0 ± 1.0 BLEU; Kendall's tau with the paper −0.50 (−1.00 to 0.00, over 3 pairs of rows)."
        in said
    )
    assert "hurts most: A h=1" in said
    # A row that the paper lacks stands by its own interval, whatever verdicts there are.
    fewer = {row: numbers for row, numbers in table3.TABLE.reported.items() if row != "A h=1"}
    without = dataclasses.replace(table3.TABLE, reported=fewer)
    assert "hurts most: A h=1" in headline.summary(dataclasses.replace(compared, table=without))


def test_the_page_asks_nothing_of_a_network_and_runs_only_its_own_scripts(made):
    parts = page_of(made)
    assert parts.addresses == ["data:,"]
    assert "default-src 'none'" in parts.policy
    allowed = parts.policy.split("script-src ")[1].split(";")[0].split()
    digests = [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in parts.scripts
    ]
    assert allowed == digests
    assert len(digests) == 3
    own = parts.scripts[0] + parts.scripts[2]
    for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                  "fetch(", "XMLHttpRequest", "import("):  # fmt: skip
        assert risky not in own


def test_a_step_of_a_curve_has_its_tokens_operations_and_seconds(copied):
    folder = results.cell_folder(copied, "base", 0)
    logged = [
        {"step": 10 * i, "ppl": 3.0, "tokens": 500.0 + i, "seconds_per_step": 0.25 * i}
        for i in (1, 2, 3)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in logged))
    run = content_of(copied)["content-data"]["rows"][0]["curves"][0]
    config = results.read(copied).base
    assert run["a_step"] == {
        "tokens": pytest.approx(1506 / 30),
        "flops": pytest.approx(cost.training_flops(config) / config.train.num_steps),
        "seconds": 0.5,
    }


def test_translations_are_those_of_the_runs_and_their_scores_those_of_the_counts(made):
    found = page_of(made).data["translations-data"]
    assert [row["name"] for row in found["rows"]] == ["base", "A h=1", "D P_drop=0.0"]
    folder = results.cell_folder(made, "A h=1", 1)
    run = found["rows"][1]["runs"][1]
    assert run["seed"] == 1
    assert run["hypotheses"] == (folder / "hypotheses.txt").read_text().splitlines()
    counts = np.array(json.loads((folder / "bleu_counts.json").read_bytes())[bleu.MAIN])
    assert run["scores"] == [round(10 * bleu.of_sentence(each)) for each in counts]
    assert len(found["sets"]) == 1
    assert found["sets"][0]["sources"] == (folder / "sources.txt").read_text().splitlines()


def test_runs_that_left_no_sources_are_shown_without_them(copied):
    for path in copied.glob("*/*/sources.txt"):
        path.unlink()
    found = content_of(copied)["translations-data"]
    assert found["sets"][0]["sources"] == []
    assert len(found["sets"][0]["references"]) == 12


def test_a_sentence_may_hold_any_line_break_but_the_newline(copied):
    for path in copied.glob("*/*/*.txt"):
        path.write_text("a\u2028b\u0085c\n" * 12, encoding="utf-8")
    found = content_of(copied)["translations-data"]
    assert found["sets"][0]["references"] == ["a\u2028b\u0085c"] * 12


def test_files_of_different_lengths_are_refused(copied):
    path = results.cell_folder(copied, "A h=1", 0) / "hypotheses.txt"
    path.write_text("one\n")
    with pytest.raises(errors.UserError, match=r"A-h-1/seed0: .*hypotheses\.txt 1"):
        document.write(copied)


def test_a_long_curve_is_thinned_and_keeps_its_end(copied):
    folder = results.cell_folder(copied, "base", 0)
    lines = [json.dumps({"step": step, "loss": 1 / step}) for step in range(1, 1002)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    steps, losses = content_of(copied)["content-data"]["rows"][0]["curves"][0]["loss"]
    assert 100 < len(steps) <= content_lib.MOST_POINTS
    assert (steps[-1], losses[-1]) == (1001, pytest.approx(1 / 1001, rel=1e-3))


def test_what_rows_change_and_where_numbers_come_from_stand_there(copied):
    sweeps.change(results.cell_folder(copied, "A h=1", 0), git_commit="another", devices=8 * ["x"])
    found = content_of(copied)["content-data"]
    heads, lines = found["changes"]["heads"], found["changes"]["lines"]
    changes = [dict(zip(heads, line, strict=True)) for line in lines]
    assert (changes[0]["h"], changes[1]["h"]) == ("8", "1")
    assert (changes[1]["P_drop"], changes[2]["P_drop"]) == ("", "0")
    facts = found["provenance"]
    shared = dict(facts["shared"])
    assert (shared["corpus (SHA-256)"], shared["tokenizer (SHA-256)"]) == ("d" * 64, "e" * 64)
    assert "commit" not in shared
    commits = [line[facts["heads"].index("commit")] for line in facts["lines"]]
    assert commits == ["c0ffee" * 6] * 2 + ["another"] + ["c0ffee" * 6] * 3
    assert facts["total"].startswith("6 runs took 0.22 device hours")  # 5 minutes, and 8 times one


def cells(line):
    """The cells of a line of LaTeX; one over several columns counts as so many."""
    found = []
    for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\")):
        over = re.match(r"\s*\\multicolumn\{(\d+)\}", cell)
        found += [cell.strip()] + [""] * (int(over[1]) - 1 if over else 0)
    return found


def test_latex_has_the_papers_columns_and_only_what_rows_change(made):
    written = page_of(made).data["content-data"]["downloads"]["table3.tex"]
    lines = [line for line in written.splitlines() if line.endswith(r"\\")]
    heads, base, one_head, dropout, learned = map(cells, lines)
    spec = written.splitlines()[0].removeprefix(r"\begin{tabular}{").removesuffix("}")
    assert {len(spec), *map(len, (heads, base, one_head, dropout, learned))} == {14}
    assert base[:10] == ["base", "3", "32", "32", "8", "8", "8", "0.1", "0.1", "12"]
    assert one_head[:10] == ["(A)", "", "", "", "1", "64", "64", "", "", ""]
    assert dropout[:10] == ["(D)", "", "", "", "", "", "", "0.0", "", ""]
    assert "learned positions instead of sinusoidal ones" in learned[1]
    assert learned[10] == "not run"
    assert r"\pm" in base[11]
    assert r"\pm" in one_head[13]
    assert [written.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 4, 1]


def test_latex_prints_names_as_they_are():
    written = latex.plain(tables.Printed(["row & co"], [["50% of $x_1^2$ {#} \\ ~"]]))
    assert r"row \& co \\" in written
    expected = r"50\% of \$x\_1\textasciicircum{}2\$ \{\#\} \textbackslash{} \textasciitilde{} \\"
    assert expected in written


def test_a_sweep_that_the_paper_has_not_is_reported_without_its_columns(tmp_path):
    rows = {"base": {}, "slow": {"train.warmup_steps": 20}}
    sweeps.make(tmp_path, sweeps.Made(rows, table="mine"))
    found = content_of(tmp_path)["content-data"]
    assert not any("paper" in head for head in found["tables"][0]["heads"])
    assert all(row["paper"] is None and row["verdict"] == "" for row in found["rows"])
    assert found["downloads"]["mine.tex"].splitlines()[2].startswith("row & values & PPL")


def test_a_sweep_of_which_nothing_has_run_is_reported(tmp_path):
    rows = sweeps.some_rows()
    sweeps.make(tmp_path, sweeps.Made(rows), missing=list(rows))
    found = content_of(tmp_path)
    assert found["content-data"]["summary"] == "0 of 4 rows, 0 seeds."
    translated = found["translations-data"]
    assert translated == {"sets": [], "rows": [], "measure": "sentence BLEU, smoothed"}
