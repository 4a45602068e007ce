"""Runs whose folder lies in a bucket: real gcsfs and TensorStore, a stand-in for the service."""

import functools
import importlib.util
import os
import re

import numpy as np
import pytest

import transformer_jax
from tests import fake_bucket
from tests.faults import faults, processes
from transformer_jax import errors, files
from transformer_jax.training import checkpoint, manifest


@pytest.fixture(scope="module")
def server():
    with fake_bucket.Server() as server:
        yield server


@pytest.fixture(scope="module")
def variables(server):
    """Environment that points gcsfs, TensorStore and tensorboardX to the stand-in bucket."""
    with pytest.MonkeyPatch.context() as patch:
        found = {
            "STORAGE_EMULATOR_HOST": server.address,
            "TENSORSTORE_GCS_HTTP_URL": server.address,
            "GCE_METADATA_ROOT": "127.0.0.1:1",  # nobody says there who one is
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }
        for name, value in found.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return faults.make_bench(tmp_path_factory.mktemp("bucket"))


def lead(variables):
    os.environ.update(variables)


@pytest.fixture
def start(variables, bench, tmp_path):
    """A function that starts a run in the bucket."""

    def start(workdir, *flags, cache_dir=bench.cache_dir, log="log", **overrides):
        return processes.start(
            workdir,
            cache_dir,
            *flags,
            log=tmp_path / log,
            before=functools.partial(lead, variables),
            **overrides,
        )

    return start


def names(folder):
    """Returns the files of a run's folder, except for Orbax's random names and times."""
    found = set()
    for path in folder.iterdir():
        if path.is_dir():
            found |= {f"{path.name}/{name}" for name in names(path)}
        else:
            found.add(re.sub(r"^[0-9a-f]{32}$|tfevents.*", "…", path.name))
    return found


@pytest.mark.slow
def test_killed_damaged_and_stopped_a_run_in_a_bucket_is_the_run_on_this_machine(start, bench):
    workdir = files.path("gs://bucket/run")
    folder = workdir / "checkpoints"
    run = start(workdir)
    assert run.until(lambda: len(processes.checkpoints(workdir)) == 2), run.text()
    run.kill()
    before, newest = processes.checkpoints(workdir)
    faults.flip_a_bit(folder / str(newest))
    (folder / "39" / "state" / "half").write_text("")
    run = start(workdir)
    assert run.until_printed("resuming from"), run.text()
    assert f"resuming from the checkpoint of step {before}" in run.text()
    assert (folder / f"unreadable-{newest}" / "manifest.json").exists()
    assert not (folder / "39").exists()
    assert run.until_printed(r"step \d+ of"), run.text()
    run.process.terminate()
    assert run.wait() == faults.RUN_AGAIN, run.text()
    run = start(workdir)
    assert run.wait() == 0, run.text()
    processes.assert_same(processes.outcome(workdir), bench.expected)
    there = {name for name in names(workdir) if "unreadable" not in name}
    assert there == names(bench.folder / "first")
    sources = ["The dog sleeps."]
    here = transformer_jax.load(bench.folder / "first").translate(sources)
    assert transformer_jax.load("gs://bucket/run").translate(sources) == here


@pytest.mark.slow
def test_processes_without_a_common_disk_share_a_bucket(start, bench, tmp_path):
    workdir = files.path("gs://bucket/shared")
    port = processes.free_port()
    runs = [
        start(
            workdir,
            f"--coordinator=127.0.0.1:{port}",
            "--processes=2",
            f"--process={process}",
            cache_dir=tmp_path / f"disk{process}",
            log=f"log{process}",
            train__num_steps=8,
        )
        for process in range(2)
    ]
    processes.end_well(runs)
    np.testing.assert_allclose(processes.losses(workdir), bench.expected["losses"][:8], rtol=1e-4)


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("s3://bucket/run", "is neither a folder of this machine nor one in a bucket"),
        ("gs://", "is neither a folder of this machine"),
        ("gs://bucket/none", "holds no trained run: it has no config.json"),
        ("gs://other/run", "holds no trained run: it has no config.json"),
    ],
)
def test_a_wrong_address_is_refused(name, message):
    with pytest.raises(errors.UserError, match=re.escape(f"{name} {message}")):
        transformer_jax.load(name)


@pytest.mark.slow
def test_a_bucket_that_cannot_be_written_is_refused(start):
    run = start(files.path("gs://other/run"))
    assert run.wait() == 2
    assert "error: cannot write gs://other/run/.lock" in run.text().splitlines()[-1]


@pytest.mark.usefixtures("variables")
def test_an_unreachable_bucket_condemns_no_checkpoint(server, monkeypatch):
    folder = files.path("gs://bucket/answers/5")
    for name in ("a", "b/c"):
        files.write(folder / name, name.encode())
    manifest.write(folder)
    assert manifest.fault(folder) == ""
    monkeypatch.setattr(server, "refuses", True)
    with pytest.raises(OSError, match="Forbidden") as caught:
        manifest.fault(folder)
    assert files.met_in_a_bucket(caught.value)
    with pytest.raises(errors.RunError, match="cannot write gs://bucket/answers/5/d: Forbid"):
        files.write(folder / "d", b"")


@pytest.mark.usefixtures("variables")
def test_only_checkpoints_without_mark_and_manifest_are_incomplete(make_config):
    folder = files.path("gs://bucket/marks")
    for name in ("4/state/a", "4/commit_success.txt", "8/state/a", "12/state/a"):
        files.write(folder / name, b"")
    for step in ("4", "8"):
        manifest.write(folder / step)
    checkpoints = checkpoint.Checkpoints(folder, make_config(), "digest")
    checkpoints.recover()
    checkpoints.close()
    assert sorted(path.name for path in folder.iterdir()) == ["4", "8"]


@pytest.mark.slow
def test_a_bucket_that_refuses_ends_a_run_with_one_line(start, server, monkeypatch):
    monkeypatch.setattr(server, "refuses", True)
    run = start(files.path("gs://bucket/refused"))
    assert run.wait() == 2
    assert "error: cannot write gs://bucket/refused/.lock: Forbidden" in run.text().splitlines()[-1]


def test_a_missing_gcsfs_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(errors.UserError, match=r"needs gcsfs: pip install '.*\[gcs\]'"):
        files.path("gs://bucket/run")
