"""What the compilers of devices that are not here make of a step: memory, seconds, what is sent.

XLA's compiler for TPUs is a library, libtpu, that needs no TPU: it compiles for chips that are
described to it. `make accelerators` installs it, in an environment of its own.
"""

import dataclasses
import importlib.util
import math
import os
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies

from experiments.benchmarks import hlo, network, partitioned
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import vocabulary
from transformer_jax.distributed import memory, sharding
from transformer_jax.training import fitting
from transformer_jax.training import step as step_lib

# Without these, libtpu looks for a TPU's surroundings, and for another process that holds it.
_NO_TPU_HERE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled step on each of some chips; times are in seconds.

    Operations take the cycles that the compiler estimates, at the clock at which a chip's matrix
    units reach the published rate; collectives send by the ring algorithm, at published rates.
    """

    memory_bytes: int
    computing: float  # of its operations
    products: float  # of those that hold a matrix product
    sending: float  # by which collectives make the step longer
    links: float  # of all collectives, one after another
    sent_bytes: float
    collectives: Sequence[partitioned.Collective]

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.computing + self.sending

    @property
    def hidden(self) -> float:
        """Seconds of collectives that pass beside operations."""
        return max(0.0, self.links - self.sending)


def chips(kind: str, number: int) -> Sequence[Any]:
    """Descriptions of the chips of a slice, for a mesh.

    Raises UserError if there is no compiler for the kind, no such slice, or no libtpu installed.
    """
    compilers = network.read_data()["compilers"]
    if kind not in compilers:
        raise errors.UserError(
            f"--compile estimates no time on {kind}, only on {', '.join(compilers)}: plan for one "
            "of these, or leave --compile out"
        )
    slices = {math.prod(map(int, name.split("x"))): name for name in compilers[kind]["slices"]}
    if number not in slices:
        raise errors.UserError(
            f"there is no slice of {number} {kind}: the numbers are {', '.join(map(str, slices))}"
        )
    if importlib.util.find_spec("libtpu") is None:
        raise errors.UserError(
            "this needs XLA's compiler for TPUs: `make .venv-tpu/.installed` installs it, for "
            "`.venv-tpu/bin/python` in place of this Python"
        )
    os.environ.update(_NO_TPU_HERE)
    options: dict[str, Any] = {"chips_per_host_bounds": [1, 1, 1]} if number == 1 else {}
    topology = topologies.get_topology_desc(
        platform="tpu", topology_name=f"{kind}:{slices[number]}", **options
    )
    return topology.devices


def compile_step(config: config_lib.Config, devices: Sequence[Any]) -> jax.stages.Compiled:
    """A run's step, for some devices; raises UserError if it does not fit or divide."""
    mesh = sharding.make_mesh(config.mesh, devices)
    model = models.build(config.model, vocabulary.size(config), devices[0].platform)
    with fitting.refusals_explained(config, mesh):
        return step_lib.compile_step(model, config, mesh)


def read(program: jax.stages.Compiled, kind: str, number: int) -> Program:
    """What a program for so many chips of a kind says of itself."""
    return of_text(program.as_text() or "", memory.of_program(program) or 0, kind, number)


def of_text(text: str, memory_bytes: int, kind: str, number: int) -> Program:
    """What a program's text says, which is walked as each of so many chips of a kind would.

    Operations follow one another, and so do collectives. One that the program begins before it
    awaits it takes time only as far as what stands between is done sooner.
    """
    torus = network.torus(kind)
    hertz = 1e9 * network.read_data()["compilers"][kind]["gigahertz"]
    now = free = computing = products = links = 0.0  # free: when the links are
    ends: dict[str, float] = {}
    module = hlo.read(text)
    for event in partitioned.events(module, number):
        match event:
            case partitioned.Computing(cycles, product):
                computing += cycles / hertz
                products += product * cycles / hertz
                now += cycles / hertz
            case partitioned.Sending(key, one):
                seconds = torus.seconds(one)
                links += seconds
                free = ends[key] = max(now, free) + seconds
                now = now if one.beside else free
            case partitioned.Awaiting(key):
                now = max(now, ends[key])
    found = partitioned.collectives(module, number)
    sent = sum(one.sent_bytes for one in found)
    return Program(memory_bytes, computing, products, now - computing, links, sent, found)
