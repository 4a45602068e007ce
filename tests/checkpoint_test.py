"""What is done to checkpoints that a kill or a fault has left half: none that is whole is lost."""

import pathlib
import shutil

import jax
import jax.numpy as jnp
import pytest

from tests.faults import faults
from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.distributed import sharding
from transformer_jax.training import checkpoint, manifest
from transformer_jax.training import step as step_lib

STEPS = (2, 4, 6, 8)
CHANGES = {
    "checkpoint.every": 2,
    "checkpoint.keep": 4,
    "evaluation.average_checkpoints": 3,
    "train.num_steps": 10,
}


@pytest.fixture
def opened(make_config, tmp_path):
    """A folder of four sound checkpoints, and the three last of them in use."""
    config = make_config(CHANGES)
    mesh = sharding.make_mesh(config_lib.MeshConfig(1, 1, 1), jax.devices()[:1])
    state = step_lib.init_state(models.build(config.model, config.data.vocab_size), config, mesh)
    found = checkpoint.Checkpoints(tmp_path, config, "digest")
    for step in STEPS:
        found.save(state._replace(step=jnp.int32(step)), 0.0)
    found.wait()
    yield found, state
    found.close()


def there(folder):
    return sorted(path.name for path in folder.iterdir())


def test_half_of_an_old_checkpoint_condemns_no_other(opened, tmp_path):
    checkpoints, _ = opened
    half = tmp_path / "0"  # superseded, and its removal cut short
    shutil.copytree(tmp_path / "2", half)
    manifest.remove(half)
    faults.DAMAGES["a flipped bit"](tmp_path / "8")
    checkpoints.recover()
    assert there(tmp_path) == ["2", "4", "6", "unreadable-8"]


def test_killed_while_it_sets_aside_a_start_still_sees_what_is_damaged(
    opened, tmp_path, monkeypatch
):
    checkpoints, _ = opened
    faults.DAMAGES["a flipped bit"](tmp_path / "6")

    def killed(*_):
        raise KeyboardInterrupt

    rename = pathlib.Path.rename
    renamed = iter([rename, killed])
    monkeypatch.setattr(pathlib.Path, "rename", lambda *paths: next(renamed)(*paths))
    with pytest.raises(KeyboardInterrupt):
        checkpoints.recover()
    monkeypatch.setattr(pathlib.Path, "rename", rename)
    checkpoints.recover()
    assert there(tmp_path) == ["2", "4", "unreadable-6", "unreadable-8"]


def test_an_old_checkpoint_that_cannot_be_removed_fails_no_save(opened, tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError("not yours")

    monkeypatch.setattr(manifest, "remove", refuse)
    checkpoints, state = opened
    checkpoints.save(state._replace(step=jnp.int32(10)), 0.0)
    checkpoints.wait()
    assert there(tmp_path) == ["10", "2", "4", "6", "8"]
    assert manifest.fault(tmp_path / "10") == ""
