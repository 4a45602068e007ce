"""Trains and evaluates one run. If the run is stopped, the same command resumes it.

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
_WORKDIR = flags_lib.define_required(
    "workdir", "The run's folder, on this machine or gs://BUCKET/FOLDER."
)
_CACHE_DIR = flags.DEFINE_string(
    "cache_dir",
    "",
    "Folder on this machine for tokenizers, encoded corpora and compiled programs that runs share; "
    "default WORKDIR/cache, or ./cache where WORKDIR is in a bucket.",
)
_ROW = flags.DEFINE_string(
    "row",
    "",
    "Row of a table that the run belongs to, for the record; fields without effect are allowed.",
)
_DISTRIBUTED = flags.DEFINE_boolean(
    "distributed",
    False,
    "Train with the other processes that JAX's cluster detection finds (Cloud TPU, GKE, Slurm, "
    "Open MPI). All share WORKDIR.",
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator", "", "Without cluster detection: HOST:PORT of the first process."
)
_PROCESSES = flags.DEFINE_integer(
    "processes", -1, "Without cluster detection: number of processes."
)
_PROCESS = flags.DEFINE_integer(
    "process", -1, "Without cluster detection: index of this process, from 0."
)
_START_TIMEOUT = flags.DEFINE_float(
    "start_timeout", 300, "Seconds within which all processes must connect.", lower_bound=0
)
_SILENCE_TIMEOUT = flags.DEFINE_float(
    "silence_timeout", 60, "Seconds after which a silent process counts as dead.", lower_bound=1
)
_WANDB = flags.DEFINE_string(
    "wandb",
    "",
    "Weights & Biases project that also shows the run; wandb's own variables configure it.",
)
_WANDB_GROUP = flags.DEFINE_string("wandb_group", "", "Group of runs in --wandb, such as a sweep.")
_PROFILE = flags.DEFINE_boolean("profile", False, "Write a JAX trace to WORKDIR/profile.")


def main() -> None:
    """Trains and evaluates the run that the flags describe."""
    workdir = files.path(_WORKDIR.value)
    cache_dir = flags_lib.cache_dir(_CACHE_DIR.value, workdir)
    if _PROFILE.value and not isinstance(workdir, pathlib.Path):
        raise errors.UserError("--profile writes to a --workdir of this machine only")
    tracking.require_package(_WANDB.value)
    jax.config.update("jax_compilation_cache_dir", str((cache_dir / "xla").absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    config = flags_lib.read_config(_CONFIG)
    # A sweep has already checked its rows, and some of its flags may have no effect in some rows.
    if not _ROW.value:
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
