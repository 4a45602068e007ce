"""Table 4: its rows, the paper's numbers, and runs that are scored and compared by their trees."""

import csv
import json
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from configs import base as base_config
from configs import toy as toy_config
from configs import toy_parsing, wsj
from experiments import table4
from experiments.results import comparison, frames, report, tables
from experiments.stats import differences, scores
from tests import runs_test, sweeps, tiny
from transformer_jax import config as config_lib
from transformer_jax import errors, models, paper
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import toy, trees
from transformer_jax.evaluation import evaluators, measures, parseval


def base_of(module):
    return config_lib.from_mapping(module.get_config().to_dict())


def test_the_papers_parser_is_base_with_four_layers_and_twice_the_width():
    ours, theirs = (module.get_config().to_dict() for module in (wsj, base_config))
    changed = {
        f"{section}.{name}": value
        for section, values in ours.items()
        for name, value in values.items()
        if value != theirs[section][name]
    }
    model = {name: value for name, value in changed.items() if name.startswith("model.")}
    assert model == {
        "model.num_layers": 4,
        "model.d_model": 1024,
        "model.d_k": 1024 // 8,
        "model.d_v": 1024 // 8,
    }
    assert not any(name.startswith("train.") for name in changed)
    decode = {name: value for name, value in changed.items() if name.startswith("decode.")}
    assert decode == {"decode.beam_size": 21, "decode.alpha": 0.3, "decode.extra_tokens": 300}
    assert changed["data.vocab_size"] == 16_000
    assert paper.deviations(base_of(wsj)) == []


def test_the_papers_numbers_bear_out_what_its_text_says_of_them():
    f1 = {(row.name, row.training): row.f1 for row in paper.TABLE4}
    assert len(f1) == len(paper.TABLE4) == 12
    alone, besides = "WSJ only, discriminative", "semi-supervised"
    ours = "Transformer (4 layers)"
    # "outperforms the BerkeleyParser even when training only on the WSJ training set", "in contrast
    # to RNN sequence-to-sequence models".
    assert f1["Vinyals & Kaiser et al. (2014)", alone] < f1["Petrov et al. (2006)", alone]
    assert f1["Petrov et al. (2006)", alone] < f1[ours, alone] == 91.3
    # "better than all previously reported models with the exception of the RNN Grammar".
    assert [row.name for row in paper.TABLE4 if row.training == alone and row.f1 > 91.3] == [
        "Dyer et al. (2016)"
    ]
    assert max(row.f1 for row in paper.TABLE4 if row.training == besides) == f1[ours, besides]


def test_depths_are_scaled_and_other_rows_are_kinds():
    rows = table4.rows_for(base_of(wsj))
    assert rows == table4.ROWS
    rows = table4.rows_for(base_of(toy_parsing))
    assert [row.get("model.num_layers") for row in rows.values()] == [None, None, 1, 3, None, None]
    assert rows["recurrent with attention"].keys() - rows["recurrent without attention"].keys() == {
        "model.recurrent_attention"
    }
    with_trees = table4.rows_for(base_of(toy_parsing), "x.mrg")
    assert with_trees.pop("semi-supervised") == {"data.parsed": "x.mrg"}
    assert with_trees == rows


def test_every_row_has_a_use_for_what_its_base_sets():
    base = config_lib.replace(base_of(wsj), {"model.attention_dropout_rate": 0.2})
    for changes in table4.rows_for(base).values():
        models.build(config_lib.replace(base, changes).model, vocab_size=10)


@pytest.mark.parametrize(
    ("module", "changes", "message"),
    [
        (toy_config, {}, "Table 4 is of parsers: give a base with data.corpus=trees or toy_pars"),
        (toy_parsing, {"model.num_layers": 3}, "row 'N=2' cannot be scaled: model.num_layers woul"),
    ],
)
def test_a_base_that_it_is_not_for_is_refused(module, changes, message):
    with pytest.raises(errors.UserError, match=message):
        table4.rows_for(config_lib.replace(base_of(module), changes))


@pytest.fixture(scope="module")
def golds():
    return [sentence.tree for sentence in toy.sentences(60, 1, 0)[0]]


def damaged(tree, place):
    """A parse that is right in some sentences, wrong in others, and malformed in every fifth."""
    found = trees.linearised(tree, "xx")
    if place % 2:
        found = found.replace("(NP XX )NP", "XX", 1)
    return found.removesuffix(" )S") if place % 5 == 0 else found


def test_parses_are_scored_beside_bleu_and_left_in_brackets(tmp_path, golds):
    lines = [trees.linearised(tree, "xx") for tree in golds]
    sources = [" ".join(tree.words) for tree in golds]
    held_out = dataset_lib.HeldOut(sources, lines, [], [], [*map(trees.bracketed, golds)])
    hypotheses = [damaged(tree, place) for place, tree in enumerate(golds)]
    likelihoods = evaluators.Likelihoods(np.ones(len(golds)), np.ones(len(golds), int))
    measured = evaluators.Measured(likelihoods, hypotheses, 2.0)
    found = evaluators.score("test", held_out, measured, "trees", tmp_path)
    # By the rules: a bracket lost in every second sentence that has a noun phrase of one word.
    brackets = [len(tree.brackets) for tree in golds]
    lost = [place % 2 and "(NP XX )NP" in lines[place] for place in range(len(golds))]
    matched = sum(brackets) - sum(lost)
    parses = found["parses"]
    assert 0 < sum(lost) < 30
    assert parses["recall"] == pytest.approx(100 * matched / sum(brackets))
    assert parses["precision"] == pytest.approx(100)
    assert parses["exact"] == pytest.approx(100 * (1 - sum(lost) / len(golds)))
    cut = [line.endswith(" )S") for line in lines[::5]]
    assert parses["malformed"] == pytest.approx(100 * sum(cut) / len(golds))
    assert (parses["tagging"], parses["crossing"]) == (None, 0)
    assert sum(bucket["sentences"] for bucket in parses["by_length"]) == len(golds)
    assert {"bleu", "ppl", "eval_seconds"} <= found.keys()
    assert (tmp_path / "test_trees.mrg").read_text().split("\n")[:-1] == held_out.trees
    written = (tmp_path / "test_parses.mrg").read_text().split("\n")[:-1]
    right = [one == re.sub(r"\(\S+ (?=[^(])", "(XX ", two) for one, two in
             zip(written, held_out.trees, strict=True)]  # fmt: skip
    assert right == [not one for one in lost]
    counts = np.array(json.loads((tmp_path / "test_parse_counts.json").read_text())["f1"])
    assert counts[:, :3].sum(0).tolist() == [matched, sum(brackets), sum(brackets) - sum(lost)]


def made_up(workdir, golds):
    """A sweep of three rows, each with its own share of damaged parses."""
    rows = {"Transformer": {}, "no positions": {"model.position": "none"},
            "semi-supervised": {"data.parsed": "more.mrg"}}  # fmt: skip
    base = base_of(toy_parsing)
    sweeps.make(workdir, sweeps.Made(rows, sentences=len(golds), table="table4", base=base))
    f1 = {}
    for row, every in zip(rows, (7, 2, 4), strict=True):
        for seed in range(2):
            lines = [
                damaged(tree, place if (place + seed) % every == 0 else 2)
                for place, tree in enumerate(golds)
            ]
            found = [trees.from_linearised(line, tree.words)[0] for line, tree in
                     zip(lines, golds, strict=True)]  # fmt: skip
            counts = parseval.counts(golds, found)
            folder = sweeps.folder(workdir, row, seed)
            for name in ("parse_counts.json", "test_parse_counts.json"):
                (folder / name).write_text(json.dumps({"f1": counts.tolist()}))
            path = folder / "result.json"
            result = json.loads(path.read_text())
            lengths, f1_of = [len(tree.words) for tree in golds], measures.MEASURES[measures.F1]
            by_length = f1_of.by_length(counts, lengths, [9], "words", "f1")
            parses = {**parseval.score(counts), "malformed": 0.5, "by_length": by_length}
            test = {"ppl": 4.0, "bleu": result["bleu"], "parses": parses}
            result |= {"parses": parses, "test": test}
            if row == "semi-supervised":  # whose training set is larger
                result |= {"data_sha256": "c" * 64, "tokenizer_sha256": "f" * 64}
                result["bleu_by_length"] = result["bleu_by_length"][:1]  # tokens are others
            path.write_text(json.dumps(result))
            f1.setdefault(row, []).append(parses["f1"])
    return f1


def test_rows_are_compared_by_f1_with_intervals_over_sentences(tmp_path, golds):
    f1 = made_up(tmp_path, golds)
    sweep = frames.load(tmp_path)
    rows = comparison.compare(sweep, table4.TABLE).rows
    for row in ("no positions", "semi-supervised"):
        expected = np.mean(f1[row]) - np.mean(f1["Transformer"])
        assert rows.loc[row, "difference"] == pytest.approx(expected)
    # Independent of ours: F1 of samples of sentences, drawn one by one.
    rng = np.random.default_rng(5)
    ours, theirs = (sweep.counts(row, "f1")[0] for row in ("no positions", "Transformer"))

    def drawn(run, chosen):
        matched, gold, test = run[chosen].sum(0)[:3]
        return 200 * matched / (gold + test)

    gaps = []
    for _ in range(2000):
        chosen = rng.integers(len(golds), size=len(golds))
        gaps.append(drawn(ours, chosen) - drawn(theirs, chosen))
    runs = {"ours": ours, "theirs": theirs}
    means = differences.Means(
        {row: scores.from_counts({0: run}, "f1") for row, run in runs.items()}, "theirs"
    )
    alone = means.difference("ours", "theirs")
    assert alone.half_width == pytest.approx(1.96 * np.std(gaps), rel=0.1)
    assert rows.loc["no positions", "half_width"] > 0


def test_the_report_has_the_papers_whole_table_and_ours_in_its_form(tmp_path, golds):
    f1 = made_up(tmp_path, golds)
    sweep = frames.load(tmp_path)
    document = report.build(comparison.compare(sweep, table4.TABLE))
    ours, by_length, whole = document.tables
    assert len(whole.frame) == len(paper.TABLE4) + 3
    assert ["Transformer (4 layers)", "semi-supervised", "92.7", ""] in whole.cells()
    last = whole.frame.iloc[-1]
    assert (last["parser"], last["training"]) == ("ours: semi-supervised", "semi-supervised")
    assert last["ours"] == pytest.approx(np.mean(f1["semi-supervised"]))
    # Independent of ours: the interval is at least that of the mean of both seeds over sentences.
    runs = sweep.counts("semi-supervised", "f1").values()
    random = np.random.default_rng(3)
    chosen = random.integers(len(golds), size=(2000, len(golds)))
    both = [np.mean([parseval.score(run[some])["f1"] for run in runs]) for some in chosen]
    assert 0.9 * 1.96 * np.std(both) < last["half_width"] < 20
    heads = [column.head for column in ours.columns]
    first = dict(zip(heads, ours.cells()[0], strict=True))
    assert first["F1"].startswith(f"{np.mean(f1['Transformer']):.2f} ±")
    assert first["tagging"] == ""  # parses have no parts of speech
    assert by_length.columns[1].head.startswith("F1, 1-9 words")
    line = next(csv.DictReader(tables.csv(document.data).splitlines()))
    assert float(line["f1"]) == pytest.approx(np.mean(f1["Transformer"]))
    recalls = sweep.values("Transformer", "recall")
    assert float(line["recall_sd"]) == pytest.approx(np.std(recalls, ddof=1))


def test_counts_of_another_width_are_damaged(tmp_path, golds):
    made_up(tmp_path, golds)
    path = sweeps.folder(tmp_path, "Transformer") / "parse_counts.json"
    path.write_text(json.dumps({"f1": [[1] * 10] * len(golds)}))
    with pytest.raises(errors.UserError, match=r"parse_counts\.json is damaged .* has 6 counts"):
        comparison.compare(frames.load(tmp_path), table4.TABLE)


@pytest.mark.slow
def test_a_parser_is_trained_parses_new_text_and_another_learns_from_it(server, tmp_path):
    overrides = {
        **tiny.OVERRIDES,
        "train.num_steps": 4,
        "data.target_length": 80,
        "data.vocab_size": 450,
        "decode.beam_size": 2,
        "evaluation.average_checkpoints": 1,
    }
    fields = [f"--config.{name}={value}" for name, value in overrides.items()]
    arguments = ["--config=configs/toy_parsing.py", *fields, f"--workdir={tmp_path}/sweep"]

    def command(module, *more, **options):
        done = server.run(module, *more, environment={"COLUMNS": "200"}, **options)
        assert done.code == 0, done.stderr
        return done.stdout.decode()

    def folder_of(row):
        sweep = frames.load(tmp_path / "sweep")
        return sweep.folders[sweep.of(row)["config_hash"].iloc[0]]

    rows = "--rows=Transformer,recurrent with attention"
    command("experiments.table4", *arguments, rows)
    sentences = [sentence.tree.words for sentence in toy.sentences(5, 1, 9)[0]]
    run = f"--workdir={folder_of('Transformer')}"
    parsed, other = (
        command(
            "transformer_jax.parse", run, stdin="\n".join(map(between.join, sentences)).encode()
        )
        for between in (" ", " \t")
    )
    assert parsed == other
    (tmp_path / "more.mrg").write_text(parsed)
    assert parsed.count("\n") == 5
    more = [f"--parsed={tmp_path}/more.mrg", "--rows=semi-supervised,Transformer"]
    shown = command("experiments.table4", *arguments, *more)
    assert "semi-supervised" in shown
    result = json.loads((folder_of("semi-supervised") / "result.json").read_text())
    assert result["data"]["pairs"]["train"] == 400 + 5


@pytest.mark.slow
def test_a_parser_killed_and_started_again_writes_the_same_trees(server, tmp_path):
    values = {**tiny.OVERRIDES, "train.num_steps": 60, "checkpoint.every": 1, "checkpoint.keep": 60,
              "data.target_length": 80, "data.vocab_size": 450, "decode.beam_size": 2}  # fmt: skip
    fields = [f"--config.{name}={value}" for name, value in values.items()]
    command = ["transformer_jax.train", "--config=configs/toy_parsing.py", *fields]
    whole, killed = ([*command, f"--workdir={tmp_path / name}"] for name in ("whole", "killed"))
    assert server.run(*whole).code == 0
    with subprocess.Popen([*runs_test.PYTHON, *killed], env=server.environment) as process:
        while process.poll() is None and not runs_test.newest_checkpoint(tmp_path / "killed"):
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "the run ended before it was killed"
    done = server.run(*killed)
    assert done.code == 0, done.stderr
    assert "resuming from the checkpoint of step" in done.stderr
    for name in ("hypotheses.txt", "parses.mrg"):
        one, other = ((tmp_path / run / name).read_text() for run in ("whole", "killed"))
        assert one == other, name
    assert one.count("\n") == 16
