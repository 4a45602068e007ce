"""Recovery from incomplete and damaged checkpoints, without losing complete ones."""

import functools
import pathlib
import shutil

import jax
import jax.numpy as jnp
import pytest

from tests.faults import faults
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.distributed import sharding
from transformer_jax.training import checkpoint, manifest
from transformer_jax.training import step as step_lib

STEPS = (2, 4, 6, 8)
CHANGES = {
    "model.num_layers": 1,
    "checkpoint.every": 2,
    "checkpoint.keep": 4,
    "evaluation.average_checkpoints": 3,
    "train.num_steps": 10,
}


@functools.cache
def first_state(config):
    mesh = sharding.make_mesh(config_lib.MeshConfig(1, 1, 1), jax.devices()[:1])
    return step_lib.init_state(models.build(config.model, config.data.vocab_size), config, mesh)


@pytest.fixture
def opened(make_config, tmp_path):
    """A folder of four intact checkpoints, the last three of which are in use."""
    config = make_config(CHANGES)
    state = first_state(config)
    found = checkpoint.Checkpoints(tmp_path, config, "digest")
    for step in STEPS:
        found.save(state._replace(step=jnp.int32(step)), 0.0)
    found.wait()
    yield found, state
    found.close()


def there(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("averaged", [1, 2, 3])
def test_the_newest_and_those_to_be_averaged_are_in_use(make_config, tmp_path, averaged):
    config = make_config({**CHANGES, "evaluation.average_checkpoints": averaged})
    checkpoints = checkpoint.Checkpoints(tmp_path, config, "digest")
    for step in (2, 3, 4, 6, 7):  # 3 and 7: the run was stopped there
        (tmp_path / str(step)).mkdir()
    assert checkpoints._in_use() == {1: [7], 2: [4, 6, 7], 3: [2, 4, 6, 7]}[averaged]
    checkpoints.close()


def test_unreadable_checkpoints_are_named(opened, tmp_path):
    checkpoints, state = opened
    with_another = checkpoint.Checkpoints(tmp_path, checkpoints._config, "0123456789abcdefghi")
    with pytest.raises(errors.UserError, match="the tokenizer digest…, not with 0123456789abcdef…"):
        with_another.restore(state)
    with_another.close()
    faults.flip_a_bit(tmp_path / "8")
    checkpoints._verified.clear()
    with pytest.raises(errors.UserError, match=f"checkpoint {tmp_path / '8'} cannot be read: "):
        checkpoints.restore(state)
    (tmp_path / "8" / manifest.NAME).unlink()
    with pytest.raises(errors.UserError, match=r"cannot be read: .*manifest"):
        checkpoints.restore(state)


def test_a_partly_removed_old_checkpoint_affects_no_other(opened, tmp_path):
    checkpoints, _ = opened
    half = tmp_path / "0"  # superseded, and its removal cut short
    shutil.copytree(tmp_path / "2", half)
    manifest.remove(half)
    faults.flip_a_bit(tmp_path / "8")
    checkpoints.recover()
    assert there(tmp_path) == ["2", "4", "6", "unreadable-8"]


def test_only_incomplete_checkpoints_are_removed(opened, tmp_path):
    checkpoints, _ = opened
    shutil.copytree(tmp_path / "2", tmp_path / "0")  # superseded, and whole
    (tmp_path / "8" / manifest.NAME).unlink()
    checkpoints.recover()
    assert there(tmp_path) == ["0", "2", "4", "6", "unreadable-8"]


def test_recovery_that_is_killed_finds_the_damaged_checkpoint_again(opened, tmp_path, monkeypatch):
    checkpoints, _ = opened
    faults.flip_a_bit(tmp_path / "6")

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


def test_a_checkpoint_without_its_arrays_does_not_count_as_saved(make_config, tmp_path):
    config = make_config(CHANGES)
    folder = tmp_path / "v[2]"  # a pattern to Orbax, which then finds no arrays and only warns
    checkpoints = checkpoint.Checkpoints(folder, config, "digest")
    checkpoints.save(first_state(config), 0.0)
    with pytest.raises(errors.RunError, match=r"step 0 could not be written: NOT_FOUND"):
        checkpoints.wait()
    assert not manifest.exists(folder / "0")
    checkpoints.close()


def test_failing_to_remove_an_old_checkpoint_fails_no_save(opened, tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError("not yours")

    monkeypatch.setattr(manifest, "remove", refuse)
    checkpoints, state = opened
    checkpoints.save(state._replace(step=jnp.int32(10)), 0.0)
    checkpoints.wait()
    assert there(tmp_path) == ["10", "2", "4", "6", "8"]
    assert manifest.fault(tmp_path / "10") == ""
