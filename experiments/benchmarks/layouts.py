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
from transformer_jax import errors, files
from transformer_jax.distributed import memory, sharding
from transformer_jax.training import fitting

KIND = "v5e"
MODELS = {"base": base.get_config, "big": big.get_config}


@dataclasses.dataclass(frozen=True)
class Layout:
    """One model on a mesh.

    Attributes:
      model: the name of a config, base or big.
      data: chips that share out the batch.
      fsdp: chips that share out the batch, parameters and optimiser state.
      tensor: chips that share out heads, d_ff and the vocabulary.
      row: target, and source, positions in a packed row.
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
        """In file names and on the command line: base-32x1x2-256."""
        return f"{self.model}-{self.data}x{self.fsdp}x{self.tensor}-{self.row}"

    def config(self) -> config_lib.Config:
        """The model's config for this layout, in bfloat16.

        Raises:
          UserError: the batch's rows cannot be shared out so.
        """
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
        found = config_lib.from_mapping(config.to_dict())
        sizes = (self.data, self.fsdp, self.tensor)
        mesh = jax.sharding.AbstractMesh(sizes, ("data", "fsdp", "tensor"))
        parts = found.train.accumulation_steps
        sharding.rows_for_budget(found.train.batch_tokens, self.row, parts, mesh)
        return found


def parse(name: str) -> Layout:
    """The layout of a name.

    Raises:
      UserError: it is none.
    """
    found = re.fullmatch(rf"({'|'.join(MODELS)})-(\d+)x(\d+)x(\d+)-(\d+)", name)
    if not found or not all(map(int, found.groups()[1:])):
        raise errors.UserError(
            f"--layouts={name} should be one of {', '.join(MODELS)}, the sizes of a mesh (data, "
            "fsdp, tensor) and positions in a row, as in base-4x8x1-256"
        )
    return Layout(found[1], *map(int, found.groups()[1:]))


@dataclasses.dataclass(frozen=True)
class Result:
    """What is known of a layout.

    Attributes:
      layout: it.
      program: what its compiled step says of itself; None if it does not fit.
      refusal: why it does not fit.
      made: the day on which it was compiled, and the versions of JAX and libtpu that did it.
    """

    layout: Layout
    program: compiled.Program | None
    refusal: str
    made: tuple[str, str, str]


def compile_once(layout: Layout, workdir: pathlib.Path) -> None:
    """Compiles a layout, and keeps its program's text, unless that is done.

    Raises:
      UserError: the step cannot be shared out so, or there is no compiler or no such slice.
    """
    kept = _path(workdir, layout, "json")
    if kept.exists():
        return
    config, described = layout.config(), compiled.chips(KIND, layout.chips)
    text = ""
    found: dict[str, Any] = {
        "date": str(datetime.date.today()),
        "jax": jax.__version__,
        "libtpu": importlib.metadata.version("libtpu"),
    }
    try:
        program = compiled.compile_step(config, described)
        text = program.as_text() or ""
        found["memory_bytes"] = memory.of_program(program)
    except fitting.TooLittleMemoryError as error:
        found["refusal"] = str(error)
    files.write(_path(workdir, layout, "hlo.gz"), gzip.compress(text.encode()))
    files.write_json(kept, found)


def read(layout: Layout, workdir: pathlib.Path) -> Result:
    """What `compile_once` left.

    Raises:
      UserError: it is damaged.
    """
    kept = _path(workdir, layout, "json")
    remedy = f"delete {kept.name}, and {layout.name} is compiled again"
    found = files.read_json(kept, dict.fromkeys(("date", "jax", "libtpu"), str), remedy)
    program = None
    if "refusal" not in found:
        packed = _path(workdir, layout, "hlo.gz")
        try:
            text = gzip.decompress(packed.read_bytes()).decode()
            program = compiled.of_text(text, found["memory_bytes"], KIND, layout.chips)
        except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
            raise errors.UserError(f"{packed} is damaged ({error}): {remedy}") from error
    made = (found["date"], found["jax"], found["libtpu"])
    return Result(layout, program, found.get("refusal", ""), made)


def _path(workdir: pathlib.Path, layout: Layout, ending: str) -> pathlib.Path:
    return workdir / f"{layout.name}.{ending}"
