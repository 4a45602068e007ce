r"""How far the paper's batch scales over accelerators that are not here: docs/scaling.md.

  python -m experiments.scaling --workdir=runs/scaling --output=docs/scaling.md

compiles the real training step for as many virtual CPU devices as each size has, without making any
array of full size; reads what each device sends and multiplies; and sets that against published
rates. Each size compiles in a process of its own, in about a minute; what the work folder holds
already is not compiled again.
"""

import logging
import pathlib

from absl import flags

from experiments.scaling import layouts, report
from transformer_jax import files
from transformer_jax import flags as flags_lib

_log = logging.getLogger("transformer_jax.scaling")

# data × fsdp × tensor, and the length of a row: the batch has 24,576 / length rows to share out.
MESHES = (
    *((data, 1, 1, 256) for data in (2, 4, 8, 16, 32)),
    *((64, 1, 1, 128), (128, 1, 1, 64), (256, 1, 1, 32)),
    *((4, 1, 2, 256), (32, 1, 2, 256), (32, 1, 4, 256), (32, 1, 8, 256)),
    (1, 8, 1, 256),
)


def _main() -> None:
    workdir = files.local_path(_WORKDIR.value)
    if _COMPILE.value:
        layouts.compile_here(layouts.parse(_COMPILE.value), workdir)
        return
    asked = [layouts.Layout(model, *mesh) for model in ("base", "big") for mesh in MESHES]
    for done, layout in enumerate(asked, start=1):
        _log.info("%s, %d of %d", layout.name, done, len(asked))
        layouts.compile_apart(layout, workdir)
    page = report.document([layouts.read(layout, workdir) for layout in asked])
    files.write(pathlib.Path(_OUTPUT.value), page.encode())
    _log.info("%s is written", _OUTPUT.value)


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "Where programs are kept.", required=True)
    _COMPILE = flags.DEFINE_string("compile", "", "Compiles one layout; for its own use.")
    _OUTPUT = flags.DEFINE_string("output", "docs/scaling.md", "What is written.")
    flags_lib.run(_main)
