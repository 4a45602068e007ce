"""Ways to share out a step over devices, and what the compiler makes of each, device by device."""

import dataclasses
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import jax

from configs import base, big
from experiments.scaling import partitioned
from transformer_jax import config as config_lib
from transformer_jax import files, models
from transformer_jax.training import sharding
from transformer_jax.training import step as step_lib

MODELS = {"base": base.get_config, "big": big.get_config}
# The partitioner's result, before a CPU's own passes turn bfloat16 into float32.
_DUMP = "--xla_dump_hlo_pass_re=spmd-partition.* --xla_dump_hlo_module_re=jit_step --xla_dump_to="


@dataclasses.dataclass(frozen=True)
class Layout:
    """One model on a mesh.

    Attributes:
      model: the name of a config, base or big.
      data: devices that share out the batch.
      fsdp: devices that share out the batch, parameters and optimiser state.
      tensor: devices that share out heads, d_ff and the vocabulary.
      row: target, and source, positions in a packed row.
    """

    model: str
    data: int
    fsdp: int
    tensor: int
    row: int

    @property
    def devices(self) -> int:
        """How many there are in all."""
        return self.data * self.fsdp * self.tensor

    @property
    def name(self) -> str:
        """In file names and on the command line: base-32x1x2-256."""
        return f"{self.model}-{self.data}x{self.fsdp}x{self.tensor}-{self.row}"

    def config(self) -> config_lib.Config:
        """The model's config for this layout, in bfloat16, as on accelerators."""
        config = MODELS[self.model]()
        config.update_from_flattened_dict(
            {
                "model.compute_dtype": "bfloat16",
                "data.source_length": self.row,
                "data.target_length": self.row,
                "mesh.data": self.data,
                "mesh.fsdp": self.fsdp,
                "mesh.tensor": self.tensor,
            }
        )
        return config_lib.from_mapping(config.to_dict())


def parse(name: str) -> Layout:
    """The layout of a name."""
    model, mesh, row = name.split("-")
    return Layout(model, *map(int, mesh.split("x")), row=int(row))


@dataclasses.dataclass(frozen=True)
class Program:
    """What was compiled for a layout.

    Attributes:
      layout: it.
      sent: collectives as the partitioner wrote them, in the types that an accelerator would send.
      launched: those of the finished program, in which many are combined into one.
      flops: operations of one device's matrix products in a step.
      seconds: that compiling took.
    """

    layout: Layout
    sent: list[partitioned.Collective]
    launched: list[partitioned.Collective]
    flops: int
    seconds: float


def compile_here(layout: Layout, workdir: pathlib.Path) -> None:
    """Compiles a layout's step in this process, which `compile_all` has started for it."""
    jax.config.update("jax_num_cpu_devices", layout.devices)
    jax.config.update("jax_disable_most_optimizations", True)  # of machine code, which never runs
    config = layout.config()
    mesh = sharding.make_mesh(config.mesh)
    model = models.build(config.model, config.data.vocab_size)
    start = time.perf_counter()
    program = step_lib.compile_step(model, config, mesh)
    seconds = time.perf_counter() - start
    folder = pathlib.Path(os.environ["XLA_FLAGS"].split("--xla_dump_to=")[1].split()[0])
    (dumped,) = folder.glob("*after_spmd-partitioning*.txt")
    for name, text in (
        ("partitioned", dumped.read_text(encoding="utf-8")),
        ("compiled", program.as_text() or ""),
    ):
        files.write(_path(workdir, layout, f"{name}.hlo.gz"), gzip.compress(text.encode()))
    files.write_json(_path(workdir, layout, "json"), {"seconds": seconds})


def compile_apart(layout: Layout, workdir: pathlib.Path) -> None:
    """Compiles a layout in a process of its own, unless that is done: devices are set at its start.

    Raises:
      RunError: it failed; what it said is on stderr.
    """
    if _path(workdir, layout, "json").exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        flags = f"{os.environ.get('XLA_FLAGS', '')} {_DUMP}{folder}".strip()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "experiments.scaling"),
                *(f"--workdir={workdir}", f"--compile={layout.name}"),
            ],
            env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            check=False,
        )
    if done.returncode:
        raise config_lib.RunError(f"{layout.name} was not compiled; see above")


def read(layout: Layout, workdir: pathlib.Path) -> Program:
    """What `compile_apart` left."""

    def module(name: str) -> partitioned.Module:
        packed = _path(workdir, layout, f"{name}.hlo.gz").read_bytes()
        return partitioned.parse(gzip.decompress(packed).decode())

    split = module("partitioned")
    return Program(
        layout,
        sent=partitioned.collectives(split, layout.devices),
        launched=partitioned.collectives(module("compiled"), layout.devices),
        flops=partitioned.matrix_flops(split),
        seconds=json.loads(_path(workdir, layout, "json").read_text())["seconds"],
    )


def _path(workdir: pathlib.Path, layout: Layout, ending: str) -> pathlib.Path:
    return workdir / f"{layout.name}.{ending}"
