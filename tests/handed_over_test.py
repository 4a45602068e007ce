"""What is rendered for engines, and what is kept and found of cells that they were given."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from experiments.running import handing_over
from experiments.sweep import cells
from launch import engine, local, skypilot, slurm, tpu_vm, xpk
from transformer_jax import errors


def job(name, *command, folder=pathlib.Path("x")):
    return engine.Job(name, name, command, folder / "log.txt")


def test_machines_of_one_cell_train_it_together(tmp_path):
    batch = engine.Submission("x", [job("x", "echo", "run")], tmp_path, [])
    sky = skypilot.SkyPilot(engine.Settings(accelerator="a", nodes=2))
    run = sky.task(batch, tmp_path / "x.yaml").split("run: |\n")[1]
    variables = {"CELL": "0", "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8", "SKYPILOT_NODE_RANK": "1"}
    ran = subprocess.run(["bash", "-c", run], env={**os.environ, **variables}, capture_output=True,
                         text=True, check=True)  # fmt: skip
    assert ran.stdout == "run --coordinator=10.0.0.7:8476 --processes=2 --process=1\n"
    ran = subprocess.run(
        ["bash", "-c", run], env={**os.environ, **variables, "CELL": "7"}, check=False
    )
    assert ran.returncode == 2


def test_what_was_run_again_keeps_no_word_of_its_earlier_failure(tmp_path):
    names = ("done", "failed", "stopped", "waiting")
    paths = [tmp_path / name / "failure.json" for name in names]
    for path in paths:
        path.parent.mkdir()
        path.write_text("earlier")

    def run():
        with cells.without_failures(paths, begun := set()):
            (tmp_path / "done/result.json").touch()
            paths[1].write_text("later")
            begun.update(path.parent for path in paths[:3])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert [path.exists() for path in paths] == [False, True, False, True]
    assert [path.read_text() for path in paths[1::2]] == ["later", "earlier"]


def test_what_was_left_elsewhere_is_found_from_anywhere(tmp_path, make_config):
    cell = cells.Cell("base", 0, make_config(), {}, tmp_path / "sweep/base/seed0", "0f3a9c12" * 8)
    queue = xpk.Xpk(engine.Settings(bucket=str(tmp_path / "bucket")))
    given = handing_over.given(cell, queue)
    there = pathlib.Path(given.there)
    there.mkdir(parents=True)
    (there / "run.json").write_text(json.dumps({"config_hash": cell.digest, "digests": {}}))
    (there / "result.json").write_text("{}")
    (tmp_path / "sweep").mkdir()
    handing_over.remember(tmp_path / "sweep", queue, {cell.key: given})
    other = dataclasses.replace(cell, digest="1" * 64)
    handing_over.fetch([other], tmp_path / "sweep", queue)
    assert not cell.folder.exists()
    handing_over.fetch([cell], tmp_path / "sweep", queue)
    assert (cell.folder / "result.json").exists()
    handing_over.forget(tmp_path / "sweep", [cell])
    assert handing_over.remembered(tmp_path / "sweep")[1] == {}


def test_an_engine_that_cannot_be_asked_is_left_once_all_its_results_are_here(
    tmp_path, make_config
):
    folder = tmp_path / "base/seed0"
    cell = cells.Cell("base", 0, make_config(), {}, folder, "0f3a9c12" * 8)
    queue, here = tpu_vm.TpuVm(engine.Settings()), local.Local(engine.Settings())
    handing_over.remember(tmp_path, queue, {cell.key: handing_over.given(cell, queue)})
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    for digest in ("1" * 64, cell.digest):  # of another configuration, then its own
        with pytest.raises(errors.UserError, match="cannot be asked for them"):
            handing_over.require_no_other([cell], tmp_path, here)
        (folder / "run.json").write_text(json.dumps({"config_hash": digest, "digests": {}}))
    handing_over.require_no_other([cell], tmp_path, here)


@pytest.mark.parametrize("kind", [slurm.Slurm, xpk.Xpk])
def test_what_begins_elsewhere_with_weights_that_are_not_there_is_refused(
    tmp_path, make_config, kind
):
    config = make_config({"train.start_from": "../../source/seed0"})
    cell = cells.Cell("row", 0, config, {}, tmp_path / "row/seed0", "0f3a9c12" * 8)
    queue = kind(engine.Settings(bucket=str(tmp_path / "bucket")))
    says = "not there yet" if queue.shares_disk else "not on that disk"
    with pytest.raises(errors.UserError, match=f"row 'row' starts from the weights.*{says}"):
        handing_over.require_own_weights([cell], queue)
    given = handing_over.given(cell, queue)
    begun = pathlib.Path(given.there) if given.there else cell.folder
    (begun / "checkpoints/2").mkdir(parents=True)
    handing_over.require_own_weights([cell], queue)


def test_options_in_another_order_are_the_same_place():
    one, other = (
        xpk.Xpk(engine.Settings(launcher_options=options)).where
        for options in ("--zone=z --cluster c --priority=low", "--cluster=c --zone z")
    )
    assert one == other == ["--cluster=c", "--zone=z"]


@pytest.mark.parametrize("row", ["A h=1", "1", "Ä", "x" * 90, "-"])
def test_labels_are_names_that_engines_take(row, make_config):
    cell = cells.Cell(row, 3, make_config(), {}, pathlib.Path("x"), "0f3a9c12" * 8)
    label = cell.label
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", label)  # GKE's
    assert len(label) <= 40


def test_the_lines_for_a_slice_run_every_cell_until_it_is_done(tmp_path):
    """Runs the script with a gcloud that runs here what it would run on the slice."""
    stand_in = """#!/bin/bash
echo "$*" >> calls
case "$*" in
  *describe*) echo ACTIVE ;;
  *"ssh"*"cell"*) for last; do :; done; bash -c "${last#--command=cd transformer_jax && }" ;;
esac
"""
    (tmp_path / "gcloud").write_text(stand_in)
    (tmp_path / "gcloud").chmod(0o755)
    first = "test -e stopped && echo cell 1 >> done || { touch stopped; exit 42; }"
    jobs = [
        job("one", "bash", "-c", first, "cell"),
        job("two", "bash", "-c", "exit 1", "cell"),
        job("three", "bash", "-c", "echo cell 3 >> done", "cell"),
    ]
    options = "--zone z --project=p --runtime-version=v2-alpha-tpuv5-lite --network=n"
    settings = engine.Settings(launcher_options=options, accelerator="v5litepod-8", spot=True)
    script = tpu_vm.TpuVm(settings).script(engine.Submission("x", jobs, tmp_path, []))
    (tmp_path / "x.sh").write_text(script)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    settings = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "deleted").touch()
    subprocess.run(["git", "add", "deleted"], cwd=tmp_path, check=True)
    (tmp_path / "deleted").unlink()  # one that git still tracks
    ran = subprocess.run(["bash", "x.sh"], cwd=tmp_path, env=settings, capture_output=True,
                         text=True, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "done").read_text() == "cell 1\ncell 3\n"
    assert "failed, exit code 1: " in ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all("--project=p --zone=z" in call for call in calls)
    assert "--network=n --spot" in calls[0]
    assert "--spot" not in "".join(calls[1:])
    assert "queued-resources delete x" in calls[-1]
    assert script.splitlines()[-1] == f"# gcloud {calls[-1]}"
    (tmp_path / "calls").unlink()
    shutil.rmtree(tmp_path / ".git")
    ran = subprocess.run(["bash", "x.sh"], cwd=tmp_path, env=settings, capture_output=True,
                         check=False)  # fmt: skip
    assert ran.returncode != 0  # what cannot be packed costs nothing
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("option", ["--dependency=x", "--depend x", "--depend=x", "-d x", "-dx"])
def test_what_a_sweep_tells_slurm_itself_is_refused_however_it_is_written(option, monkeypatch):
    monkeypatch.setattr(slurm.Slurm, "programs", ())
    slurm.Slurm(engine.Settings(launcher_options="--nodelist=a --deadline=now -t 60")).check()
    with pytest.raises(engine.EngineError, match=r"-d\w* is not for --launcher_options"):
        slurm.Slurm(engine.Settings(launcher_options=option)).check()


def test_slurm_is_given_an_array_and_a_report_that_waits_for_it(tmp_path):
    jobs = [job(f"cell {i}", "echo", "a b", str(i), folder=tmp_path / str(i)) for i in range(3)]
    options = "--part=gpu --gpus-per-node=4 -t 60"
    settings = engine.Settings(nodes=2, parallel=2, launcher_options=options)
    batch = engine.Submission("x", jobs, tmp_path, ["echo", "report"])
    array, report = slurm.Slurm(settings).render(batch, tmp_path / "slurm")
    assert "--array=0-2%2" in array
    assert "--nodes=2" in array
    assert "--gpus-per-node=4" in array
    assert "--part=gpu" in report
    assert "-t60" in report
    assert not any("gpus" in option for option in report)
    script = tmp_path / "slurm/1.sh"
    subprocess.run(["bash", script], check=True)
    assert (tmp_path / "1/log.txt").read_text() == "a b 1 --distributed\n"
    subprocess.run(["bash", script, "died", "2"], check=True)  # refused: it has said so itself
    assert not (tmp_path / "1/failure.json").exists()
    subprocess.run(["bash", script, "died", "9"], check=True)
    failure = json.loads((tmp_path / "1/failure.json").read_text())
    assert failure["error"] == "exit code 9 (see log.txt)"
    subprocess.run(["bash", script, "died", "10"], check=True)  # the first word stands
    assert json.loads((tmp_path / "1/failure.json").read_text()) == failure
    for path in (slurm.SCRIPT, tmp_path / "slurm/submit.sh", pathlib.Path("tests/debian.sh")):
        subprocess.run(["bash", "-n", path], check=True)
