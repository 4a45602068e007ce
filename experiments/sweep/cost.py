"""The cost of a run, computed before the run starts: parameters, FLOPs, and prices of devices."""

import dataclasses
import functools
import json
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.extend.core
import jax.numpy as jnp

from transformer_jax import config as config_lib
from transformer_jax import errors, models, sequences
from transformer_jax.data import vocabulary
from transformer_jax.models import embedding

NOTABLE = 0.02  # tables show a row's difference in parameters from base if it is above 2%

# Number of rows of the batch with which a model is traced. FLOPs are divided by this number and
# rounded down. It is larger than any other axis, so that a product without the batch axis counts 0.
_ROWS = 1_000_003
# The mesh for which models are traced. A program for a single CPU has other matrix products.
_SEVERAL = jax.sharding.AbstractMesh((2,), ("data",))


def parameters(config: config_lib.Config) -> int:
    """Returns the number of parameters of the model."""
    return _counted(config).parameters


def training_flops(config: config_lib.Config) -> float:
    """Returns the floating-point operations of matrix products in training, padding included.

    A product of (m × k) with (k × n) counts 2 m k n, and the backward pass as two forward passes.
    Attention is counted over whole packed rows. Logits are counted at every position, even if the
    objective needs fewer (`losses.sparse_cross_entropy`). A teacher adds one forward pass.
    """
    rows = config.train.batch_tokens // config.data.target_length * config.train.num_steps
    flops = 3.0 * _counted(config).flops
    if teacher := _teacher(config):
        flops += teacher.flops
    return rows * flops


def read_devices() -> Mapping[str, Any]:
    """Returns the contents of devices.json: peak rates and prices by kind of device."""
    return json.loads(pathlib.Path(__file__).with_name("devices.json").read_text(encoding="utf-8"))


def relative_difference(params: int, base_params: int) -> str:
    """Returns the relative difference of two numbers of parameters as a text, such as "−43%".

    The text is "" if the difference is at most `NOTABLE`.
    """
    share = params / base_params - 1
    return f"{share:+.0%}".replace("-", "−") if abs(share) > NOTABLE else ""


@dataclasses.dataclass(frozen=True)
class Chips:
    """Chips of one kind, each with a peak rate of dense bfloat16 products and a price."""

    kind: str
    chips: int
    tflops: float  # of one chip
    dollars: float  # for one chip and hour

    def dollars_for(self, hours: float) -> float:
        """Returns the price of all chips for a number of hours, in dollars."""
        return hours * self.chips * self.dollars


def parse_device(name: str) -> Chips:
    """Parses the value of --device: a kind of chip and a number, such as v5e-8.

    Raises:
      UserError: the value has another form, or devices.json does not list the kind.
    """
    known = read_devices()["devices"]
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if not match or match[1] not in known or not int(match[2]):
        raise errors.UserError(
            f"--device={name} should be a kind and a number of chips, such as v5e-8; known: "
            f"{', '.join(known)}"
        )
    return Chips(match[1], int(match[2]), **known[match[1]])


def matrix_flops(jaxpr: jax.extend.core.Jaxpr) -> int:
    """Returns the floating-point operations of matrix products and convolutions in a jaxpr.

    The body of a scan counts as many times as it runs. XLA's cost analysis would count it once.

    Raises:
      ValueError: the jaxpr has a while loop, whose length is unknown.
    """
    total = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        operands: list[Any] = [variable.aval for variable in equation.invars]
        results: list[Any] = [variable.aval for variable in equation.outvars]
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            total += 2 * results[0].size * math.prod(operands[0].shape[i] for i in contracted)
        elif name == "conv_general_dilated":
            features = operands[1].shape[params["dimension_numbers"].rhs_spec[0]]
            total += 2 * results[0].size * operands[1].size // features
        elif name == "while":
            raise ValueError("a while loop's operations cannot be counted")
        elif name == "cond":  # one branch runs
            total += max(matrix_flops(branch.jaxpr) for branch in params["branches"])
        else:
            inside = sum(map(matrix_flops, jax.extend.core.jaxprs_in_params(params)))
            total += inside * params.get("length", 1)
    return total


class _Counted(NamedTuple):
    """The size of a model, and the FLOPs of its forward pass."""

    parameters: int
    flops: int  # of the forward pass of one packed row


def _counted(config: config_lib.Config) -> _Counted:
    """Returns the parameters and FLOPs of a model.

    If all layers are alike, models with one layer and with two layers are traced. Their difference
    is the parameters and FLOPs of each further layer.
    """
    model = config.model
    depths = [model.num_layers]
    if model.attention_pattern != "interleaved":
        depths = list(range(1, min(model.num_layers, 2) + 1))
    one, *more = (
        _traced(
            # Dropout rate and type change no shape: with equal ones more rows share a trace.
            dataclasses.replace(
                model, num_layers=layers, dropout_rate=0.0, compute_dtype="bfloat16"
            ),
            vocabulary.size(config),
            (config.data.source_length, config.data.target_length),
        )
        for layers in depths
    )
    if not more:
        return one
    two = more[0]
    others = model.num_layers - 1
    return _Counted(
        one.parameters + others * (two.parameters - one.parameters),
        one.flops + others * (two.flops - one.flops),
    )


def _teacher(config: config_lib.Config) -> _Counted | None:
    layers = config.train.teacher_layers
    return _counted(config_lib.replace(config, {"model.num_layers": layers})) if layers else None


@functools.cache  # tracing takes half a second, and rows of a sweep share sizes
def _traced(sizes: config_lib.ModelConfig, vocab_size: int, lengths: tuple[int, int]) -> _Counted:
    model = models.build(sizes, vocab_size)
    key: Any = jax.eval_shape(lambda: jax.random.key(0))
    source, target = (
        sequences.Sequences(*[jax.ShapeDtypeStruct((_ROWS, length), jnp.int32)] * 3)
        for length in lengths
    )
    batch = sequences.Batch(source, target, target.tokens)

    def forward(key: Any, batch: sequences.Batch) -> tuple[jax.Array, Any]:
        """Returns the logits, and the parameters."""
        predicted, boxed = model.init_with_output(key, batch, method="predict")
        params = nn.unbox(boxed)
        return embedding.logits(embedding.of(params), predicted.outputs), params

    with jax.sharding.use_abstract_mesh(_SEVERAL):
        traced, (_, params) = jax.make_jaxpr(forward, return_shape=True)(key, batch)
    return _Counted(
        sum(leaf.size for leaf in jax.tree.leaves(params)),
        matrix_flops(traced.jaxpr) // _ROWS,
    )
