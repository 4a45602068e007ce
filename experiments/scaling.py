r"""How far the paper's batch scales over TPUs that are not here: the tables of docs/scaling.md.

  .venv-tpu/bin/python -m experiments.scaling --workdir=runs/scaling

writes them into scaling.md of the work folder. It compiles the real training step with XLA's
compiler for TPUs, for each layout in one to three minutes of a core, and reads memory, cycles and
collectives from its programs. What the work folder holds already is not compiled again, whatever
has changed since: for programs of the code as it is, name an empty one.
`make .venv-tpu/.installed` installs the compiler; no TPU is needed.
"""

import logging

from absl import flags

from experiments.benchmarks import layouts, scaling_tables
from transformer_jax import files
from transformer_jax import flags as flags_lib
from transformer_jax.drawing import tables

_log = logging.getLogger("transformer_jax.scaling")

# The batch has 24,576 / (positions in a row) rows to share out.
_BOTH = ("8x1x1-256", "1x8x1-256", "16x1x1-256", "32x1x1-256", "32x1x2-256")
MESHES = {"base": ("1x1x1-256", *_BOTH, "64x1x1-128"), "big": ("1x1x1-256", "4x1x1-256", *_BOTH)}


def _main() -> None:
    workdir = files.local_path(_WORKDIR.value)
    every = [f"{model}-{mesh}" for model, meshes in MESHES.items() for mesh in meshes]
    asked = list(map(layouts.parse, _LAYOUTS.value or every))
    for done, layout in enumerate(asked, start=1):
        _log.info("%s, %d of %d", layout.name, done, len(asked))
        layouts.compile_once(layout, workdir)
    shown, made = scaling_tables.of([layouts.read(layout, workdir) for layout in asked])
    tables.show(shown, [made])
    files.write(workdir / "scaling.md", tables.markdown(shown, [made]).encode())


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "Where programs are kept.", required=True)
    _LAYOUTS = flags.DEFINE_list(
        "layouts", [], "In place of all: model, data × fsdp × tensor, row; base-4x8x1-256."
    )
    flags_lib.run(_main)
