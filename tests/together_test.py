"""Seeds trained in one program: the same runs as apart, and one that fails stops no other."""

import json
import shutil

import jax
import numpy as np
import pytest

from configs import toy
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.distributed import memory, sharding
from transformer_jax.evaluation import bleu
from transformer_jax.runs import run_folder, training_run
from transformer_jax.training import checkpoint, loop, metrics
from transformer_jax.training import step as step_lib

SEEDS = (3, 1)


def newest(workdir):
    """The newest checkpoint of a run on one device."""
    config = run_folder.read_config(workdir)
    mesh = sharding.make_mesh(config.mesh)
    digest = json.loads((workdir / "run.json").read_text())["digests"]["tokenizer"]
    checkpoints = checkpoint.Checkpoints(workdir / "checkpoints", config, digest)
    model = models.build(config.model, config.data.vocab_size)
    state = checkpoints.restore(*step_lib.state_shapes_and_shardings(model, config, mesh)).state
    checkpoints.close()
    return jax.tree.map(np.asarray, state)


def assert_close(one, other):
    """Each array to a thousandth of its largest element."""
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        assert np.abs(a - b).max() <= 1e-3 * np.abs(a).max()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("apart"), tmp_path_factory.mktemp("packed")


@pytest.fixture(scope="module")
def config():
    values = toy.get_config()
    # Metrics are not written at the steps of checkpoints, every 4.
    values.update_from_flattened_dict({**tiny.OVERRIDES, "log.every": 3, "model.num_layers": 1})
    return config_lib.from_mapping(values.to_dict())


@pytest.fixture(scope="module")
def apart(config, folders, cache_dir):
    for seed in SEEDS:
        seeded = config_lib.replace(config, {"train.seed": seed})
        training_run.run(seeded, folders[0] / f"seed{seed}", cache_dir)
    return folders[0]


@pytest.fixture(scope="module")
def packed(config, folders, cache_dir):
    training_run.run_seeds(config, {seed: folders[1] / f"seed{seed}" for seed in SEEDS}, cache_dir)
    return folders[1]


def test_each_seed_is_its_separate_run(apart, packed):
    for seed in SEEDS:
        one, other = apart / f"seed{seed}", packed / f"seed{seed}"
        assert_close(newest(one), newest(other))
        losses = [[r["loss"] for r in metrics.read(folder)] for folder in (one, other)]
        np.testing.assert_allclose(*losses, rtol=1e-4)
        assert run_folder.read_config(one) == run_folder.read_config(other)
        results = [json.loads((f / "result.json").read_text()) for f in (one, other)]
        assert results[0]["config_hash"] == results[1]["config_hash"]
        assert results[0]["ppl"] == pytest.approx(results[1]["ppl"], rel=1e-4)
        assert set(results[0]["bleu"]) == set(results[1]["bleu"]) >= {bleu.MAIN}
        assert results[0]["seeds_together"] == [seed]
        assert results[1]["seeds_together"] == list(SEEDS)


def test_seeds_are_different_runs(packed):
    first, second = (newest(packed / f"seed{seed}").params for seed in SEEDS)
    embeddings = [params["params"]["embedding"] for params in (first, second)]
    assert not np.allclose(*embeddings)


def test_stacked_states_are_shared_out_over_a_mesh(apart, config, tmp_path, cache_dir):
    mesh = {"mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2}
    workdirs = {seed: tmp_path / f"seed{seed}" for seed in SEEDS}
    training_run.run_seeds(config_lib.replace(config, mesh), workdirs, cache_dir)
    for seed, workdir in workdirs.items():
        losses = [[r["loss"] for r in metrics.read(f)] for f in (workdir, apart / f"seed{seed}")]
        np.testing.assert_allclose(*losses, rtol=1e-3)


def test_one_whose_checkpoint_was_not_written_catches_up(packed, config, tmp_path, cache_dir):
    workdirs = {seed: tmp_path / f"seed{seed}" for seed in SEEDS}
    for seed, workdir in workdirs.items():
        shutil.copytree(packed / f"seed{seed}", workdir)
        (workdir / "result.json").unlink()
    # As if killed with seed 3's last checkpoint not yet written.
    shutil.rmtree(workdirs[3] / "checkpoints" / "12")
    training_run.run_seeds(config, workdirs, cache_dir)
    for seed, workdir in workdirs.items():
        assert_close(newest(workdir), newest(packed / f"seed{seed}"))
        assert [r["step"] for r in metrics.read(workdir)] == [3, 6, 9, 12]


def test_one_that_diverges_leaves_its_failure_and_the_others_end(
    packed, config, tmp_path, cache_dir, monkeypatch
):
    compile_step = step_lib.compile_step

    def poisoned(model, config, mesh, runs):
        step = compile_step(model, config, mesh, runs)

        def poison(state, batch, hyper, key):
            if runs == len(SEEDS) and int(state.step[0]) == 6:
                # The second is seed 1.
                params = jax.tree.map(lambda x: x.at[1].set(np.nan), state.params)
                state = state._replace(params=params)
            return step(state, batch, hyper, key)

        return poison

    monkeypatch.setattr(step_lib, "compile_step", poisoned)
    monkeypatch.setattr(memory, "check", lambda *_: None)
    workdirs = {seed: tmp_path / f"seed{seed}" for seed in SEEDS}
    with pytest.raises(loop.DivergedError, match="step 7: loss nan"):
        training_run.run_seeds(config, workdirs, cache_dir)
    assert json.loads((workdirs[1] / "failure.json").read_text())["error"].startswith("Diverged")
    assert not (workdirs[1] / "result.json").exists()
    assert (workdirs[3] / "result.json").exists()
    assert_close(newest(workdirs[3]), newest(packed / "seed3"))
