"""Ways to share out a step over chips, and what XLA's compiler for TPUs makes of each."""

import dataclasses
import datetime
import gzip
import importlib.metadata
import pathlib
import re
import zlib
from typing import Any

import jax

from configs import base, big
from experiments.benchmarks import compiled
from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files
from transformer_jax.distributed import memory, sharding
from transformer_jax.training import fitting

KIND = "v5e"
MODELS = {"base": base.get_config, "big": big.get_config}
_MADE = ("date", "jax", "libtpu")


@dataclasses.dataclass(frozen=True)
class Layout:
    """One model, base or big, on a mesh of data × fsdp × tensor chips, in rows of some positions.

    Its name, on the command line and of its files, is base-32x1x2-256.
    """

    model: str
    data: int
    fsdp: int
    tensor: int
    row: int

    @property
    def chips(self) -> int:
        """How many there are in all."""
        return self.data * self.fsdp * self.tensor

    @property
    def name(self) -> str:
        """What `parse` reads."""
        return f"{self.model}-{self.data}x{self.fsdp}x{self.tensor}-{self.row}"

    def config(self) -> config_lib.Config:
        """The model's config, in bfloat16; raises UserError if its rows cannot be shared out so."""
        sizes = {"data": self.data, "fsdp": self.fsdp, "tensor": self.tensor}
        changes = {f"mesh.{axis}": size for axis, size in sizes.items()}
        changes |= dict.fromkeys(("data.source_length", "data.target_length"), self.row)
        config = config_lib.from_mapping(MODELS[self.model]().to_dict())
        found = config_lib.replace(config, {**changes, "model.compute_dtype": "bfloat16"})
        mesh = jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes))
        sharding.rows_of(found, mesh)
        return found


def parse(name: str) -> Layout:
    """The layout of a name; raises UserError if it is none."""
    found = re.fullmatch(rf"({'|'.join(MODELS)})-(\d+)x(\d+)x(\d+)-(\d+)", name)
    if not found or not all(map(int, found.groups()[1:])):
        raise errors.UserError(
            f"--layouts={name} should be one of {', '.join(MODELS)}, the sizes of a mesh (data, "
            "fsdp, tensor) and positions in a row, as in base-4x8x1-256"
        )
    return Layout(found[1], *map(int, found.groups()[1:]))


@dataclasses.dataclass(frozen=True)
class Result:
    """What is known of a layout."""

    layout: Layout
    program: compiled.Program | None  # what its step says of itself; None if it does not fit
    refusal: str  # why it does not fit
    made: tuple[str, ...]  # the day on which it was compiled, and JAX's and libtpu's versions

    @property
    def step(self) -> compiled.Program:
        """The program of what fits."""
        if self.program is None:
            raise ValueError(f"{self.layout.name} does not fit: {self.refusal}")
        return self.program


def compile_once(layout: Layout, workdir: pathlib.Path) -> None:
    """Compiles a layout, and keeps its program's text, unless that is done.

    Raises UserError if the step cannot be shared out so, or there is no compiler or no such slice.
    """
    kept = workdir / f"{layout.name}.json"
    if kept.exists():
        return
    config, described = layout.config(), compiled.chips(KIND, layout.chips)
    made = (str(datetime.date.today()), jax.__version__, importlib.metadata.version("libtpu"))
    found: dict[str, Any] = {
        **dict(zip(_MADE, made, strict=True)),
        "memory_bytes": 0,
        "refusal": "",
    }
    text = ""
    try:
        program = compiled.compile_step(config, described)
        text = program.as_text() or ""
        found["memory_bytes"] = memory.of_program(program)
    except fitting.TooLittleMemoryError as error:
        found["refusal"] = str(error)
    files.write(workdir / f"{layout.name}.hlo.gz", gzip.compress(text.encode()))
    files.write_json(kept, found)


def read(layout: Layout, workdir: pathlib.Path) -> Result:
    """What `compile_once` left; raises UserError if it is damaged."""
    kept, packed = (workdir / f"{layout.name}.{ending}" for ending in ("json", "hlo.gz"))
    remedy = f"delete {kept.name}, and {layout.name} is compiled again"
    shape = {**dict.fromkeys(_MADE, str), "memory_bytes": fields.Natural, "refusal": str}
    found = files.read_json(kept, shape, remedy)
    program = None
    if not found["refusal"]:
        try:
            text = gzip.decompress(packed.read_bytes()).decode()
            program = compiled.of_text(text, found["memory_bytes"], KIND, layout.chips)
            if not program.seconds:
                raise ValueError("it computes nothing")
        except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
            raise errors.UserError(f"{packed} is damaged ({error}): {remedy}") from error
    return Result(layout, program, found["refusal"], tuple(found[key] for key in _MADE))
