"""What is asked of a step that does not fit, whatever it takes: nothing is compiled."""

import contextlib

import jax
import pytest

from transformer_jax import errors
from transformer_jax.distributed import memory, sharding
from transformer_jax.training import fitting
from transformer_jax.training import step as step_lib


@pytest.mark.parametrize("size", ["3145728.00K", "3072.00M", "3.00G", "0.0029296875T"])
def test_a_refusals_sizes_are_read_in_any_unit(make_config, monkeypatch, size):
    monkeypatch.setattr(fitting, "_remedy", lambda config, mesh, *sizes: str(sizes))
    config, refusal = make_config(), f"RESOURCE_EXHAUSTED: ({size}) exceeds available HBM (1.00G)."
    with (
        pytest.raises(errors.UserError, match=rf"takes 3\.00 GiB.*\({3 * 1024**3}, {1024**3}\)"),
        fitting.refusals_explained(config, sharding.make_mesh(config.mesh)),
    ):
        raise jax.errors.JaxRuntimeError(refusal)


@pytest.mark.parametrize(
    ("error", "is_passed_over"),
    [
        (errors.UserError("parts do not divide the batch"), True),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Used 18.20G of 15.75G hbm."), True),
        (jax.errors.JaxRuntimeError("INTERNAL: the compiler broke"), False),
    ],
    ids=["UserError", "refusal", "fault"],
)
def test_a_remedy_that_cannot_be_leaves_the_next_its_turn(
    make_config, monkeypatch, error, is_passed_over
):
    config = make_config({"data.target_length": 64, "mesh.data": 1, "train.batch_tokens": 64 * 64})
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])

    def steps(model, config, mesh):
        if config.train.accumulation_steps < 8:
            raise error

    monkeypatch.setattr(step_lib, "compile_step", steps)
    monkeypatch.setattr(memory, "of_program", lambda _: 2**30)
    outcome = contextlib.nullcontext() if is_passed_over else pytest.raises(type(error))
    with outcome:
        found = fitting._remedy(config, mesh, 2 * 2**30, 2**30)
        assert found == "with --config.train.accumulation_steps=8 it takes 1.00 GiB"


@pytest.mark.parametrize(
    ("needed", "fit", "rows", "tried"),
    [
        (1.5, 2, 64, [2]),
        (1.5, 8, 64, [2, 4, 8]),
        (3.0, 16, 64, [4, 8, 16]),
        (3.0, 17, 64, [4, 8, 16]),
        (3.0, 16, 16, [4, 8, 16]),  # a row each
        (3.0, 16, 8, [4, 8]),
        (1.0, 4, 64, [1, 2, 4]),
    ],
)
def test_the_fewest_parts_that_fit_are_found_by_doubling(
    make_config, monkeypatch, needed, fit, rows, tried
):
    """Begins with the least power of two that the excess asks for."""
    config = make_config(
        {"data.target_length": 64, "mesh.data": 1, "train.batch_tokens": 64 * rows}
    )
    mesh, seen = sharding.make_mesh(config.mesh, jax.devices()[:1]), []

    def steps(model, config, mesh):
        seen.append(config.train.accumulation_steps)
        return seen[-1]

    monkeypatch.setattr(step_lib, "compile_step", steps)
    monkeypatch.setattr(memory, "of_program", lambda parts: 2**30 if parts >= fit else 2**30 + 1)
    found = fitting._remedy(config, mesh, int(needed * 2**30), 2**30)
    assert seen == tried
    if tried[-1] >= fit:
        assert found == f"with --config.train.accumulation_steps={tried[-1]} it takes 1.00 GiB"
    else:
        assert found.startswith("take a smaller train.batch_tokens")
