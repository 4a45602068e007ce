"""Planned runs: their hashes and order, and the weights that they start from."""

import pytest

from experiments import families
from experiments.scheduling import local_runs, planning
from experiments.sweep import store
from tests import pages
from transformer_jax import errors, files

PUBLISHED = pages.ROOT / "experiments/published/families_toy"


@pytest.fixture
def plan(monkeypatch, make_config, cache_dir, tmp_path):
    """A function from rows to their planned runs."""
    monkeypatch.setattr(planning.flags_lib, "overrides", dict)

    def plan(rows, chosen=None, seeds=1):
        chosen = {row: rows[row] for row in chosen or rows}
        return planning.plan(
            make_config(), rows, chosen, dict.fromkeys(chosen, seeds), tmp_path, cache_dir
        )

    return plan


def work(planned, tmp_path):
    return planning.Work("mine", planned, len(planned), tmp_path, tmp_path, {})


def finish(one, checkpoints=True):
    """Writes the files by which a finished run is recognised."""
    record = {"config_hash": one.run.config_hash, "digests": {}}
    files.write_json(one.folder / "run.json", record)
    files.write_json(one.folder / "result.json", {})
    if checkpoints:
        (one.folder / "checkpoints").mkdir()


def test_rows_with_equal_settings_share_a_run(plan, caplog):
    rows = {"base": {}, "same": {"train.label_smoothing": 0.1}, "other": {"model.d_ff": 12}}
    base, same, other = plan(rows)
    assert base.run.config_hash == same.run.config_hash != other.run.config_hash
    assert base.folder == same.folder
    (warning,) = caplog.messages
    assert warning == "row 'same' has the settings of row 'base': they share their runs"


def test_a_run_waits_for_the_run_of_another_row_with_its_sources_settings(
    plan, tmp_path, monkeypatch
):
    monkeypatch.setattr(planning, "config_file", lambda: "configs/toy.py")
    rows = {"base": {}, "same": {}, "row": {"train.start_from": "same"}}
    planned = plan(rows, ["base", "row"])
    missing, weights = planning.unfinished(planned, ["base", "row"], [])
    work = planning.Work("mine", missing, 2, tmp_path, tmp_path, weights)
    base, row = work.local_jobs()
    assert row.after == base.name == "base, seed 0"
    assert f"--config.train.start_from={base.log.parent}" in row.command


def test_a_runs_hash_depends_on_the_run_it_starts_from(plan):
    rows = {"base": {}, "row": {"train.start_from": "base"}}
    changed = {"base": {"model.d_ff": 12}, "row": {"train.start_from": "base", "model.d_ff": 24}}
    hashes = {
        next(one.run.config_hash for one in plan(each) if one.run.row == "row")
        for each in (rows, changed, {"base": {}, "row": {}})
    }
    assert len(hashes) == 3


def test_a_row_follows_the_row_it_starts_from(plan, tmp_path):
    rows = {
        "base": {},
        "third": {"train.start_from": "second"},
        "second": {"train.start_from": "first"},
        "first": {},
    }
    order = [one.run.row for one in work(plan(rows), tmp_path).in_order()]
    assert order.index("first") < order.index("second") < order.index("third")
    assert order[0] == "base"


def test_rows_of_families_name_the_rows_they_start_from(make_config):
    base = make_config()
    rows = families.rows_for(base)
    sources = {row: planning.source_row(row, rows, base) for row in rows}
    assert sources["E DistilBERT"] == "E BERT"
    assert sources["E RoBERTa translator"] == "E RoBERTa"
    assert sources["base"] == ""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": {"train.start_from": "a"}}, "row 'a' would start from its own weights"),
        (
            {"a": {"train.start_from": "b"}, "b": {"train.start_from": "a"}},
            "row 'a' would start from its own weights .*a → b → a",
        ),
        ({"a": {"train.start_from": "c"}}, "train.start_from='c' is no row of this table"),
    ],
)
def test_impossible_sources_are_refused(plan, rows, message):
    with pytest.raises(errors.UserError, match=message):
        plan(rows)


def test_weights_come_from_a_finished_run_with_checkpoints(plan, tmp_path):
    rows = {"base": {}, "row": {"train.start_from": "base"}}
    row, base = sorted(plan(rows, ["row"]), key=lambda one: one.depth, reverse=True)
    chosen = {"row": rows["row"]}
    with pytest.raises(errors.UserError, match="choose row 'base' too"):
        planning.unfinished([row], chosen, [])
    finish(base, checkpoints=False)
    with pytest.raises(errors.UserError, match="a finished run without its checkpoints: delete"):
        planning.unfinished([base, row], rows, [])
    (base.folder / "checkpoints").mkdir()
    missing, weights = planning.unfinished([row], chosen, [])
    assert missing == [row]
    assert weights == {base.run.config_hash: base.folder}
    finish(row)
    assert planning.unfinished([row], chosen, []) == ([], {})


def test_a_started_run_needs_its_sources_weights_no_more(plan, tmp_path):
    rows = {"base": {}, "row": {"train.start_from": "base"}}
    _, row = sorted(plan(rows, ["row"]), key=lambda one: one.depth)
    (row.folder / "checkpoints/4").mkdir(parents=True)
    missing, _ = planning.unfinished([row], {"row": rows["row"]}, [])
    assert missing == [row]


def test_runs_that_start_from_a_failed_run_are_not_started(plan):
    rows = {"base": {}, "row": {"train.start_from": "base"}}
    planned = plan(rows)
    assert local_runs.separate_failed(planned) == (planned, [])
    base = planned[0]
    files.write_json(base.folder / "failure.json", {"error": "diverged"})
    kept, (of_base, of_row) = local_runs.separate_failed(planned)
    assert kept == []
    assert of_base.startswith("base, seed 0: diverged (not run again; --retry_failed")
    assert of_row.startswith("row, seed 0: it starts from the weights of base, seed 0, which")


@pytest.mark.parametrize("row", ["A h=1", "1", "Ä", "x" * 90])
def test_labels_are_names_that_engines_accept(row, plan):
    (one,) = plan({row: {}})
    assert len(one.label) <= 40
    assert one.label.replace("-", "").isalnum()
    assert one.label[0].isalpha()
    assert one.label.endswith(one.run.config_hash[: store.HASH_LENGTH])


def test_published_runs_are_reused_without_weights(server, tmp_path):
    done = server.run(
        "experiments.families",
        "--config=configs/toy.py",
        f"--workdir={tmp_path}",
        "--rows=base,E RoBERTa translator",
        f"--reuse={PUBLISHED}",
    )
    assert done.code == 0, done.stderr
    assert "2 of 2 runs are done; 0 to go" in done.stderr
