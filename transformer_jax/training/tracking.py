"""Runs shown in Weights & Biases: an option, whose failures end no training."""

import dataclasses
import hashlib
import importlib
import importlib.util
import logging
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, final

from transformer_jax import config as config_lib
from transformer_jax import errors, files

_log = logging.getLogger(__name__)

SECONDS_TO_FINISH = 60  # for what is not uploaded yet: who stops a run waits for 120 at most


@dataclasses.dataclass(frozen=True)
class Project:
    """Where runs are shown; a name of "": nowhere."""

    name: str
    group: str = ""


NONE = Project("")


def require_package(project: str) -> None:
    """Raises UserError if runs should be shown in a project, and cannot for lack of a package."""
    found = importlib.util.find_spec("wandb") if project else None
    # Without an origin it is what wandb leaves where it has run: a folder of its name.
    if project and (found is None or found.origin is None):
        raise errors.UserError("--wandb needs: pip install 'transformer_jax[wandb]'")


@final
class Tracker:
    """One run there; started again, it goes on in the same one."""

    def __init__(
        self,
        project: Project,
        name: str,
        workdir: files.Path,
        config: config_lib.Config,
        config_hash: str,
    ) -> None:
        """Opens the run, which is known by its name, its group and its config's hash.

        Its files lie in the run's folder, or in a temporary one, if that is in a bucket.
        """
        here = isinstance(workdir, pathlib.Path)
        self._temporary = None if here else tempfile.TemporaryDirectory(prefix="wandb-")
        folder = self._temporary.name if self._temporary else workdir
        identity = "\n".join((config_hash, project.group, name))

        def init() -> Any:
            wandb: Any = importlib.import_module("wandb")
            return wandb.init(
                project=project.name,
                group=project.group or None,
                name=name,
                id=hashlib.sha256(identity.encode()).hexdigest()[:16],
                resume="allow",
                dir=str(folder),
                config=config_lib.to_dict(config),
                settings=wandb.Settings(console="off", finish_timeout=SECONDS_TO_FINISH),
            )

        self._run: Any = self._try(init)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds metrics, unless an earlier start has told those of that step, or of a later one."""

        def tell() -> None:
            if step >= self._run.step:  # offline, it knows of no other start
                self._run.log(dict(values), step=step)

        if self._run is not None:
            self._try(tell)

    def close(self, result: Mapping[str, Any] | None) -> None:
        """Ends the run, with what its result.json says; None: it failed or was stopped."""
        if self._run is not None:
            if result is not None:
                self._try(lambda: self._run.summary.update({"result": dict(result)}))
            self._try(lambda: self._run.finish(exit_code=0 if result is not None else 1))
            self._run = None
        if self._temporary:
            self._temporary.cleanup()

    def _try(self, action: Callable[[], Any]) -> Any:
        """What an action returns; a failure is said, and costs the showing alone."""
        try:
            return action()
        except Exception as error:  # the network's, the service's or wandb's: they share no class
            _log.warning("wandb fails, the training goes on: %s", " ".join(str(error).split()))
            return None
