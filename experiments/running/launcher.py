"""What --launcher names, which runs the cells of a sweep or is handed them, and its flags."""

import contextlib
from collections.abc import Iterator, Sequence

from absl import flags

from experiments.running import handing_over
from launch import engine, local
from transformer_jax import config as config_lib
from transformer_jax import errors, fields
from transformer_jax.distributed import sharding

LAUNCHER = flags.DEFINE_string(
    "launcher",
    local.Local.name,
    "Where to run: local, on this machine; slurm, as an array of jobs; skypilot, as managed jobs; "
    "xpk, as workloads on GKE.",
)
_HELP = {  # of engine.Settings, each of which is a flag
    "parallel": "Runs at a time, which share this machine's devices; 0: one for each CPU core, or "
    "one if JAX has an accelerator. With slurm: at most so many; 0: as many as it has room for.",
    "nodes": "With an engine: machines that train each run together.",
    "launcher_options": "More options of the engine's own command: '--partition=gpu "
    "--gpus-per-node=1 --time=8:00:00'.",
    "slurm_script": "A changed copy of launch/slurm.sh, which runs a cell.",
    "bucket": "Where machines that share no disk with this one leave runs: gs://BUCKET/FOLDER.",
    "accelerator": "What those machines have, as the engine names it: tpu-v5litepod-8, H100:8.",
    "spot": "Whether those machines may be taken away.",
}
for _name, _help in _HELP.items():
    _default = getattr(engine.Settings, _name)
    if isinstance(_default, bool):
        flags.DEFINE_boolean(_name, _default, _help)
    elif isinstance(_default, int):
        flags.DEFINE_integer(_name, _default, _help, lower_bound=_default)
    else:
        flags.DEFINE_string(_name, _default, _help)
Launcher = local.Local | engine.Queue
LAUNCHERS: dict[str, type[Launcher]] = {local.Local.name: local.Local, **handing_over.QUEUES}


def chosen() -> Launcher:
    """The engine that --launcher names, as the flags say; raises UserError if there is none."""
    kind = fields.lookup("--launcher", LAUNCHER.value, LAUNCHERS)
    return kind(engine.Settings(**{name: getattr(flags.FLAGS, name) for name in _HELP}))


def check(launcher: Launcher, base: config_lib.Config, cells: Sequence[config_lib.Config]) -> None:
    """Raises UserError or EngineError if a cell could not run, before anything is written."""
    if not launcher.shares_disk:
        handing_over.check(launcher.settings, cells)
    launcher.check()
    if isinstance(launcher, local.Local):
        sharding.mesh_sizes(base.mesh, launcher.devices.for_each)


@contextlib.contextmanager
def as_user_errors() -> Iterator[None]:
    """What an engine refuses is the user's to mend."""
    try:
        yield
    except engine.EngineError as error:
        raise errors.UserError(str(error)) from error
