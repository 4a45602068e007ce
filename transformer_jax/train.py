"""Trains and evaluates one run; started again, it goes on where it was stopped.

python -m transformer_jax.train --config=configs/toy.py --workdir=runs/one
srun python -m transformer_jax.train --config=configs/base.py --workdir=runs/base --distributed
"""

import pathlib

import jax
from absl import flags

from transformer_jax import errors, files, models
from transformer_jax import flags as flags_lib
from transformer_jax.distributed import hosts, preemption
from transformer_jax.runs import training_run
from transformer_jax.training import tracking

_CONFIG = flags_lib.define_config()
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "The run's folder, on this machine or gs://BUCKET/FOLDER.", required=True
)
_CACHE_DIR = flags.DEFINE_string(
    "cache_dir",
    "",
    "Where tokenizers, encoded corpora and compiled programs are shared, on this machine; default "
    "WORKDIR/cache, or ./cache where WORKDIR is in a bucket.",
)
_ROW = flags.DEFINE_string(
    "row",
    "",
    "The run's name in a table, for the record; what the table sets may have no effect on it.",
)
_DISTRIBUTED = flags.DEFINE_boolean(
    "distributed",
    False,
    "Train with other processes, which JAX's cluster detection finds: on Cloud TPU, GKE, Slurm, "
    "Open MPI. All share WORKDIR.",
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator", "", "Elsewhere: HOST:PORT of the first process, alike for all."
)
_PROCESSES = flags.DEFINE_integer("processes", -1, "Elsewhere: how many processes there are.")
_PROCESS = flags.DEFINE_integer("process", -1, "Elsewhere: this one's number: 0, 1, …")
_START_TIMEOUT = flags.DEFINE_float(
    "start_timeout", 300, "Seconds within which all processes must have come.", lower_bound=0
)
_SILENCE_TIMEOUT = flags.DEFINE_float(
    "silence_timeout", 60, "Seconds after which a silent process counts as dead.", lower_bound=1
)
_WANDB = flags.DEFINE_string(
    "wandb", "", "Project of Weights & Biases that shows the run too; its settings are wandb's own."
)
_WANDB_GROUP = flags.DEFINE_string("wandb_group", "", "What --wandb gathers runs under: a sweep.")
_PROFILE = flags.DEFINE_boolean("profile", False, "Write a JAX trace to WORKDIR/profile.")


def main() -> None:
    """Runs the run that the flags describe."""
    workdir = files.path(_WORKDIR.value)
    cache_dir = flags_lib.cache_dir(_CACHE_DIR.value, workdir)
    if _PROFILE.value and not isinstance(workdir, pathlib.Path):
        raise errors.UserError("--profile writes to a --workdir of this machine only")
    tracking.require_package(_WANDB.value)
    jax.config.update("jax_compilation_cache_dir", str((cache_dir / "xla").absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    config = flags_lib.read_config(_CONFIG)
    if not _ROW.value:  # what sets all rows of a table may serve some alone; the sweep has checked
        models.require_used(config.model, flags_lib.overrides())
    if place := hosts.place(
        _DISTRIBUTED.value, _COORDINATOR.value, _PROCESSES.value, _PROCESS.value
    ):
        hosts.join(place, _START_TIMEOUT.value, _SILENCE_TIMEOUT.value)
    else:
        preemption.watch()
    with hosts.together():
        training_run.run(
            config,
            workdir,
            cache_dir,
            table_row=_ROW.value,
            overrides=flags_lib.overrides(),
            profile=_PROFILE.value,
            project=tracking.Project(_WANDB.value, _WANDB_GROUP.value),
        )


if __name__ == "__main__":
    flags_lib.run(main)
