"""Optional tracking of runs in Weights & Biases.

If Weights & Biases fails, a warning is logged and training continues.
"""

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

SECONDS_TO_FINISH = 60  # for uploads; launchers wait 120 seconds for a run that they stop


@dataclasses.dataclass(frozen=True)
class Project:
    """A project of Weights & Biases; with an empty name, runs are not tracked."""

    name: str
    group: str = ""


NONE = Project("")


def require_package(project: str) -> None:
    """Raises UserError if a project is named but wandb is not installed."""
    package = importlib.util.find_spec("wandb") if project else None
    # wandb leaves a folder "wandb" behind, which is imported as a package without an origin.
    if project and (package is None or package.origin is None):
        raise errors.UserError("--wandb needs: pip install 'transformer_jax[wandb]'")


@final
class Tracker:
    """A run in Weights & Biases; a resumed training run continues the same Weights & Biases run."""

    def __init__(
        self,
        project: Project,
        name: str,
        workdir: files.Path,
        config: config_lib.Config,
        config_hash: str,
    ) -> None:
        """Opens or resumes the run.

        Args:
          project: the project, which may have a group.
          name: the run's name.
          workdir: the run's folder, in which wandb puts its files unless it is in a bucket.
          config: the run's config.
          config_hash: the run's config_hash, which identifies it together with name and group.
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
        """Logs the metrics of a step, unless this or a later step has been logged already."""

        def send() -> None:
            if step >= self._run.step:
                self._run.log(dict(values), step=step)

        if self._run is not None:
            self._try(send)

    def close(self, result: Mapping[str, Any] | None) -> None:
        """Ends the run.

        Args:
          result: the content of result.json, which is shown as the run's result; None if the run
            failed or was stopped.
        """
        if self._run is not None:
            if result is not None:
                self._try(lambda: self._run.summary.update({"result": dict(result)}))
            self._try(lambda: self._run.finish(exit_code=0 if result is not None else 1))
            self._run = None
        if self._temporary:
            self._temporary.cleanup()

    def _try(self, action: Callable[[], Any]) -> Any:
        """Returns the result of `action`; if it fails, logs a warning and returns None."""
        try:
            return action()
        except Exception as error:  # errors of wandb and of the network have no common class
            _log.warning("wandb failed, training continues: %s", " ".join(str(error).split()))
            return None
