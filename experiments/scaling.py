r"""How far the paper's batch scales over TPUs that are not here: docs/scaling.md.

  .venv-tpu/bin/python -m experiments.scaling --workdir=runs/scaling --output=docs/scaling.md

compiles the real training step with XLA's compiler for TPUs, for each layout in one to three
minutes of a core, and reads memory, cycles and collectives from its programs. What the work folder
holds already is not compiled again, whatever has changed since: for programs of the code as it is,
name an empty one. `make .venv-tpu/.installed` installs the compiler; no TPU is
needed.
"""

import logging
import pathlib

from absl import flags

from experiments.benchmarks import layouts
from experiments.reporting import scaling_page
from transformer_jax import files
from transformer_jax import flags as flags_lib

_log = logging.getLogger("transformer_jax.scaling")

# The batch has 24,576 / (positions in a row) rows to share out.
_BOTH = ("8x1x1-256", "1x8x1-256", "16x1x1-256", "32x1x1-256", "32x1x2-256")
MESHES = {
    "base": ("1x1x1-256", *_BOTH, "64x1x1-128"),
    "big": ("1x1x1-256", "4x1x1-256", *_BOTH),
}


def _main() -> None:
    workdir = files.local_path(_WORKDIR.value)
    every = [f"{model}-{mesh}" for model, meshes in MESHES.items() for mesh in meshes]
    asked = list(map(layouts.parse, _LAYOUTS.value or every))
    for done, layout in enumerate(asked, start=1):
        _log.info("%s, %d of %d", layout.name, done, len(asked))
        layouts.compile_once(layout, workdir)
    command = ".venv-tpu/bin/python -m experiments.scaling --workdir=runs/scaling"
    command += f" --layouts={','.join(_LAYOUTS.value)}" if _LAYOUTS.value else ""
    page = scaling_page.document([layouts.read(layout, workdir) for layout in asked], command)
    files.write(pathlib.Path(_OUTPUT.value), page.encode())
    _log.info("%s is written", _OUTPUT.value)


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "Where programs are kept.", required=True)
    _LAYOUTS = flags.DEFINE_list(
        "layouts", [], "In place of all: model, data × fsdp × tensor, row; base-4x8x1-256."
    )
    _OUTPUT = flags.DEFINE_string("output", "docs/scaling.md", "What is written.")
    flags_lib.run(_main)
