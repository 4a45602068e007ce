"""Writes the report of a sweep from the results on disk: report.html, TABLE.md and TABLE.csv.

  python -m experiments.report runs/toy

TABLE is the name of the table, such as table3. For a published folder, report.html is not written.
"""

from absl import flags

from experiments.results import report
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib


def main(folder: str = "") -> None:
    """Writes the report and prints its first table."""
    workdir = folder or _WORKDIR.value
    if not workdir:
        raise errors.UserError("name the sweep's folder: python -m experiments.report DIR")
    report.write(files.local_path(workdir))


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder, if no argument names it.")
    flags_lib.run(main, "[DIR]")
