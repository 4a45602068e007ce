"""The report of a sweep, from the results on disk: report.html, TABLE.md and TABLE.csv.

  python -m experiments.report --workdir=runs/toy
  python -m experiments.report --workdir=runs/toy --attention=17,250
  python -m experiments.report --workdir=runs/toy --beside=runs/toy_parameters,runs/toy_flops

The second also collects where each row attends in those development sentences, and keeps it. The
third shows each row's difference at several budgets (--match), side by side.
"""

from absl import flags

from experiments.reporting import document
from transformer_jax import files
from transformer_jax import flags as flags_lib

if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
    _ATTENTION = flags.DEFINE_list(
        "attention", [], "Development sentences whose attention to collect: 17,250."
    )
    _BESIDE = flags.DEFINE_list(
        "beside", [], "Folders of the same table's sweeps at other budgets, to be shown beside it."
    )
    flags_lib.run(
        lambda: document.write(
            files.local_path(_WORKDIR.value),
            flags_lib.sizes("attention", _ATTENTION.value, least=0),
            beside=[files.local_path(name) for name in _BESIDE.value],
        )
    )
