"""The report of a sweep, from the results on disk: report.html, TABLE.md and TABLE.csv.

  python -m experiments.report runs/toy
  python -m experiments.report runs/toy --attention=17,250

The second also collects where each row attends in those development sentences, and keeps it.
"""

from absl import flags

from experiments.reporting import document
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib


def main(folder: str = "") -> None:
    """Writes the report and prints its table."""
    workdir = folder or _WORKDIR.value
    if not workdir:
        raise errors.UserError("name the sweep's folder: python -m experiments.report DIR")
    sentences = flags_lib.sizes("attention", _ATTENTION.value, least=0)
    document.write(files.local_path(workdir), sentences)


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder, if no argument names it.")
    _ATTENTION = flags.DEFINE_list(
        "attention", [], "Development sentences whose attention to collect: 17,250."
    )
    flags_lib.run(main, "[DIR]")
