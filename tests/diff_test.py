"""What two rows differ in, beside what a model really has."""

import jax
import numpy as np
import pytest

from experiments import diff, table3
from experiments.benchmarks import cost
from tests import sweeps
from transformer_jax import config as config_lib
from transformer_jax import errors, fields, models


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("diff") / "sweep"
    rows = {**table3.rows_for(sweeps.base()), "no positions": {"model.position": "none"}}
    sweeps.make(path, sweeps.Made(rows), missing=list(rows))
    return path


def test_shapes_are_those_of_a_model_that_is_made():
    config = sweeps.base()
    found = diff.shapes(config)
    model = models.build(config.model, config.data.vocab_size)
    made = models.init(model, jax.random.key(0))
    assert sorted(found.values()) == sorted(leaf.shape for leaf in jax.tree.leaves(made))
    assert sum(int(np.prod(shape)) for shape in found.values()) == cost.parameters(config)


def test_fields_and_folded_layers_that_differ_are_listed(workdir):
    (fields,), _ = diff.diff(workdir, "base", "A h=1")
    assert [line[0] for line in fields.lines] == ["model.num_heads", "model.d_k", "model.d_v"]
    (fields, params), notes = diff.diff(workdir, "base", "C d_ff=1024")
    assert [line[0] for line in fields.lines] == ["model.d_ff"]
    d_model, d_ff = sweeps.base().model.d_model, sweeps.base().model.d_ff
    shown = {line[0]: line[1:] for line in params.lines}
    wide, narrow = f"{d_model} × {d_ff}", f"{d_model} × {d_ff // 2}"
    assert shown["encoder_0…2/feed_forward/inner/kernel"] == [wide, narrow]
    assert len(shown) == 6  # kernel and bias of inner, outer's kernel; in both stacks
    total = cost.parameters(sweeps.base())
    assert f"{total:,} in base" in notes[-1]


def test_layers_that_one_row_lacks_are_dashes(workdir):
    (_, params), _ = diff.diff(workdir, "C N=2", "base")
    assert all(line[1] == "—" for line in params.lines)
    assert all(line[0].startswith(("encoder_", "decoder_")) for line in params.lines)


def test_rows_that_share_all_parameters_are_said_to(workdir):
    (fields,), notes = diff.diff(workdir, "base", "no positions")
    assert [line[0] for line in fields.lines] == ["model.position"]
    assert notes[0] == "Parameters: the same."
    _, notes = diff.diff(workdir, "base", "base")
    assert notes[:2] == ["Configuration: the same.", "Parameters: the same."]


def test_a_row_that_is_not_there_is_refused_by_name(workdir):
    with pytest.raises(errors.UserError, match="has no row 'A'; it has 'base', 'A h=1'"):
        diff.diff(workdir, "base", "A")


def test_fields_cover_the_whole_configuration():
    config = sweeps.base()
    found = {name for name, _, _ in diff.fields(config, config)}
    assert found == {
        f"{section}.{name}"
        for section, kind in fields.declared(config_lib.Config).items()
        for name in fields.declared(kind)
    }
