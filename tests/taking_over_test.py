"""What a sweep takes over, and what it demands of the weights that its rows start from."""

import dataclasses
import shutil

import pytest

from configs import toy
from experiments import families
from experiments.sweep import cells, results, taking_over
from tests import pages
from transformer_jax import config as config_lib
from transformer_jax import errors, files

RESULT = pages.ROOT / "experiments/published/families_toy/base/seed0/result.json"


def toy_base():
    return config_lib.from_mapping(toy.get_config().to_dict())


def cells_of(rows, folder):
    base = toy_base()
    return [
        cells.Cell(row, 0, config_lib.replace(base, changes), changes, own, "")
        for row, changes in rows.items()
        for own in [results.cell_folder(folder, row, 0)]
    ]


def in_order(rows, folder):
    work = cells.Work("families", cells_of(rows, folder), 0, folder, folder)
    return [cell.row for cell in work.in_order()]


def test_a_row_that_starts_from_another_comes_after_it(tmp_path):
    base = toy_base()
    order = in_order(dict(reversed(families.rows_for(base).items())), tmp_path)
    assert sorted(order) == sorted(families.rows_for(base))
    for first, then in (
        ("E BERT", "E DistilBERT"),
        ("E DistilBERT", "E DistilBERT pairs"),
        ("E ELMo", "E ELMo pairs"),
        ("E RoBERTa", "E RoBERTa translator"),
    ):
        assert order.index(first) < order.index(then)


@pytest.mark.parametrize("rows", ["a", "ab", "abc"])
def test_rows_that_start_from_one_another_in_a_circle_are_refused(rows, tmp_path):
    following = zip(rows, rows[1:] + rows[0], strict=True)
    circle = {row: {"train.start_from": f"../../{other}/seed{{seed}}"} for row, other in following}
    with pytest.raises(errors.UserError, match="starts from weights that start from its own"):
        in_order({"base": {}, **circle}, tmp_path)


def test_weights_that_nobody_makes_are_missed_before_a_run(tmp_path):
    rows = {"source": {}, "row": {"train.start_from": "../../source/seed{seed}"}}
    source, row = cells_of(rows, tmp_path)
    taking_over.require_weights([source, row])
    begins = "^row 'row' starts from the weights in .*source/seed0, which holds"
    for name, fault in (("result.json", "no finished run"), ("checkpoints", "a run without its")):
        for known, remedy in (
            ({"cells": [row], "others": [source]}, "choose row 'source' too, or leave this row"),
            ({"cells": [row]}, "train that run first, or leave this row out"),
        ):
            with pytest.raises(errors.UserError, match=f"{begins} {fault}.*: {remedy}"):
                taking_over.require_weights(**known)
        (source.folder / name).mkdir(parents=True)
    shutil.rmtree(source.folder / "checkpoints")
    with pytest.raises(errors.UserError, match="a run without its checkpoints: delete that folder"):
        taking_over.require_weights([source, row])
    (source.folder / "checkpoints").mkdir()
    taking_over.require_weights([row], [source])
    files.write_json(source.folder / "run.json", {"config_hash": "1" * 64, "digests": {}})
    taking_over.require_weights([row], [dataclasses.replace(source, digest="1" * 64)])
    with pytest.raises(errors.UserError, match="a run of another config: choose row 'source' too"):
        taking_over.require_weights([row], [dataclasses.replace(source, digest="2" * 64)])
    shutil.rmtree(source.folder)
    (row.folder / "checkpoints/5").mkdir(parents=True)  # a run that was stopped goes on by itself
    taking_over.require_weights([row], [source])
    taught = dataclasses.replace(row.config.train, teacher_layers=2)
    student = dataclasses.replace(row, config=dataclasses.replace(row.config, train=taught))
    with pytest.raises(errors.UserError, match=f"{begins} no finished run"):
        taking_over.require_weights([student], [source])
    files.write(row.folder / "result.json", b"{}")
    taking_over.require_weights([row, student], [source])


def test_a_run_without_its_checkpoints_is_not_taken_over_where_others_start_from_it(tmp_path):
    rows = {"source": {}, "row": {"train.start_from": "../../source/seed{seed}"}}
    source, row = (
        dataclasses.replace(cell, digest=digit * 64)
        for cell, digit in zip(cells_of(rows, tmp_path / "here"), "12", strict=True)
    )
    theirs = {}
    for cell in (source, row):
        theirs[cell.digest] = folder = results.cell_folder(tmp_path / "there", cell.row, 0)
        files.write_json(folder / "run.json", {"config_hash": cell.digest, "digests": {}})
        shutil.copy(RESULT, folder)
    assert taking_over.missing([source, row], {source.digest: theirs[source.digest]}) == [
        source,
        row,
    ]
    assert not source.folder.exists()
    assert taking_over.missing([source, row], theirs) == []
    shutil.rmtree(row.folder)
    assert taking_over.missing([source, row], {}) == [row]
    (source.folder / "checkpoints").mkdir()
    taking_over.require_weights([source, row])


def test_what_starts_from_a_run_that_failed_is_left_with_it(tmp_path):
    source, row = cells_of(
        {"source": {}, "row": {"train.start_from": "../../source/seed0"}}, tmp_path
    )
    assert cells.without_failed([row, source]) == ([row, source], [])
    for name in ("run.json", "failure.json"):
        files.write_json(source.folder / name, {"error": "diverged", "traceback": "", "step": 1})
    left, (of_row, of_source) = cells.without_failed([row, source])
    assert left == []
    assert of_source.startswith("source, seed 0: diverged (left as it is")
    assert of_row.startswith(
        f"row, seed 0: it starts from {source.folder}, where a run failed (left"
    )


def test_a_run_that_is_taken_over_needs_no_weights(server, tmp_path):
    chosen = ("--rows=base,E RoBERTa translator", "--reuse=experiments/published/families_toy")
    done = server.run(
        "experiments.families", "--config=configs/toy.py", f"--workdir={tmp_path}", *chosen
    )
    assert done.code == 0, done.stderr
    assert "2 of 2 runs are done; 0 to go" in done.stderr


def test_a_run_that_began_with_other_weights_is_not_taken_over(tmp_path):
    base = toy_base()
    rows = {"source": {"model.d_ff": 16}, "row": {"train.start_from": "../../source/seed{seed}"}}

    def lay(place, row, config_hash):
        folder = results.cell_folder(tmp_path / place, row, 0)
        files.write_json(folder / "run.json", {"config_hash": config_hash, "digests": {}})
        files.write_json(folder / "result.json", {"config_hash": config_hash})
        return folder

    for place, of_source in (("same", "1" * 64), ("other", "2" * 64)):
        lay(place, "source", of_source)
        files.write(tmp_path / place / "sweep.json", b"{}")
        theirs = lay(place, "row", "3" * 64)
        folder = results.cell_folder(tmp_path / "here" / place, "row", 0)
        config = config_lib.replace(base, rows["row"])
        cell = cells.Cell("row", 0, config, rows["row"], folder, "3" * 64)
        assert cell.source
        reusable = taking_over.finished(tmp_path / place)
        assert reusable["3" * 64] == theirs
        assert taking_over._begins_otherwise(cell, theirs, {cell.source: "1" * 64}) == (
            place == "other"
        )
        assert not taking_over._begins_otherwise(
            cell, theirs, {}
        )  # the row is not chosen: nothing is known
    assert not taking_over.is_done(cell, reusable, {cell.source: "1" * 64})
    assert not cell.folder.exists()


def test_of_the_tables_other_rows_those_are_known_that_some_start_from(tmp_path, monkeypatch):
    monkeypatch.setattr(cells.flags_lib, "overrides", dict)
    rows = {"source": {}, "another": {}, "row": {"train.start_from": "../../source/seed1"}}
    _, _, row = cells_of(rows, tmp_path)
    (other,) = cells.others([row], toy_base(), rows, tmp_path)
    assert other.folder.resolve() == row.source
    assert (other.row, other.seed, other.config.train.seed) == ("source", 1, 1)
    assert cells.others([row, other], toy_base(), rows, tmp_path) == []
