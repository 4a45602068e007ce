"""Weights of another run, in the place of those that a run would draw for its start.

What bears one name in both is taken: an encoder's layers and embedding for a translator that has
the like, or all for another objective of the same model. What the other run lacks is drawn.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import traverse_util

from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax.data import directions, objectives, vocabulary
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.distributed import sharding
from transformer_jax.runs import run_folder
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)


def are_read(config: config_lib.Config, workdir: files.Path) -> bool:
    """Whether a run reads the weights of another: at its start, or as a student throughout."""
    is_student = config.train.teacher_layers > 0
    return bool(config.train.start_from) and (is_student or not run_folder.has_begun(workdir))


def start(
    state: step_lib.TrainState, config: config_lib.Config, other: Callable[[], tuple[int, Any]]
) -> step_lib.TrainState:
    """A new run's state with the weights that train.start_from names; as it is where that is empty.

    Raises:
      UserError: the other run, which `read` gives, cannot be read or has other sizes.
    """
    if not config.train.start_from:
        return state
    layers, params = other()
    return state._replace(params=take(state.params, params, _every(config, layers)))


def _every(config: config_lib.Config, layers: int) -> int:
    """Of how many layers of the other run one is taken."""
    every, rest = divmod(layers, config.model.num_layers)
    if rest:
        raise errors.UserError(
            f"train.start_from={config.train.start_from}: its {layers} layers are no multiple of "
            f"model.num_layers={config.model.num_layers}, which takes evenly spaced ones of them"
        )
    return every


def teacher(
    config: config_lib.Config, mesh: jax.sharding.Mesh, other: Callable[[], tuple[int, Any]]
) -> Any:
    """The teacher's parameters, those of train.start_from's run, on every device; or None.

    Raises:
      UserError: as `start`, or it is not the model of which this is the student.
    """
    if not config.train.teacher_layers:
        return None
    _, params = other()
    _require_teacher(config, params)
    return jax.device_put(params, sharding.replicated(mesh))


def _require_teacher(config: config_lib.Config, params: Any) -> None:
    """Raises UserError if parameters, or their shapes, are no teacher's of this student."""
    expected = _shapes(step_lib.teacher(config))
    if jax.tree.map(jnp.shape, params) != jax.tree.map(jnp.shape, expected):
        raise errors.UserError(
            f"train.start_from={config.train.start_from}: the teacher should be this model with "
            f"train.teacher_layers={config.train.teacher_layers} layers, but its parameters are "
            "others"
        )


def _shapes(model: Any) -> Any:
    return nn.unbox(jax.eval_shape(lambda: models.init(model, jax.random.key(0))))


def require(config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer) -> None:
    """Raises UserError, before anything is compiled, if a run cannot start as it says.

    As `source`, `start` and `teacher` do; a damaged checkpoint is named once it is read.
    """
    _, other = source(config, tokenizer)
    mine, theirs = (
        _shapes(models.build(each.model, vocabulary.size(each))) for each in (config, other)
    )
    theirs = jax.eval_shape(lambda params: _own_words(params, config, other), theirs)
    if config.train.teacher_layers:
        _require_teacher(config, theirs)
    _origins(_flat(mine), _flat(theirs), _every(config, other.model.num_layers))


def source(
    config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> tuple[files.Path, config_lib.Config]:
    """The folder and the configuration of the run that train.start_from names.

    Raises:
      UserError: no finished run is there, it lacks its last checkpoint, its tokenizer is another,
        or its layers are no multiple of this model's.
    """
    folder = files.path(config.train.start_from)
    name = f"train.start_from={config.train.start_from}"
    if not (folder / "result.json").exists():
        raise errors.UserError(f"{name}: {folder} holds no finished run; train it first")
    other = run_folder.read_config(folder)
    if not (folder / "checkpoints" / str(other.train.num_steps)).exists():
        raise errors.UserError(
            f"{name}: {folder} has no checkpoint of its last step, {other.train.num_steps:,}; "
            "train it again, in an empty folder"
        )
    if run_folder.read_tokenizer(folder, other).digest != tokenizer.digest:
        raise errors.UserError(
            f"{name}: its tokenizer is not this run's; train both on one corpus, with one "
            "data.vocab_size"
        )
    _every(config, other.model.num_layers)
    return folder, other


def read(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    tokenizer: tokenizer_lib.Tokenizer,
) -> tuple[int, Any]:
    """Layers and parameters of the run that train.start_from names.

    Where its ids after the tokenizer's mean something else, it has no vectors for them.

    Raises:
      UserError: as `source`.
    """
    folder, other = source(config, tokenizer)
    params = run_folder.restore_params(other, mesh, folder, tokenizer)
    return other.model.num_layers, _own_words(params, config, other)


def _own_words(params: Any, config: config_lib.Config, other: config_lib.Config) -> Any:
    """Another run's parameters without vectors for ids that mean something else here."""
    if _further_ids(config) == _further_ids(other):
        return params
    words = params["params"]["embedding"][: config.data.vocab_size]
    return {**params, "params": {**params["params"], "embedding": words}}


def _further_ids(config: config_lib.Config) -> tuple[dict[str, int], str]:
    """What a run's ids after the tokenizer's mean: tags, and those of an objective."""
    kind = objectives.KINDS.get(config.train.objective)
    of_whole_texts = kind is not None and kind.in_place  # which have the same, whatever they ask
    return directions.tags(config.data), "" if of_whole_texts else config.train.objective


def take(own: Any, others: Any, every: int) -> Any:
    """A model's parameters, with those of another in the place of what bears their names.

    Of the other's layers the first of each `every` is taken: DistilBERT takes every second of its
    teacher's. Of its embedding the first rows are taken, as many as both have.

    Raises:
      UserError: an array of one name has another shape, or no name is in both.
    """
    mine, theirs = _flat(own), _flat(others)
    found, origins = dict(mine), _origins(mine, theirs, every)
    for name, origin in origins.items():
        array, new = mine[name], theirs[origin]
        if new.shape != array.shape:  # an embedding's
            rows = min(len(array), len(new))
            new = array.at[:rows].set(new[:rows])
        found[name] = jax.device_put(new, array.sharding)
    share = sum(mine[name].size for name in origins) / sum(array.size for array in mine.values())
    _log.info("%.0f%% of the parameters begin as those of the other run", 100 * share)
    return traverse_util.unflatten_dict(found, sep="/")


def _flat(params: Any) -> dict[str, Any]:
    return traverse_util.flatten_dict(params, sep="/")


def _origins(mine: dict[str, Any], theirs: dict[str, Any], every: int) -> dict[str, str]:
    """The names that a model's arrays, or their shapes, have in another; raises as `take`."""
    found = {}
    for name, array in mine.items():
        # The first number of a name is its layer's; bridge_1_0 is a part of layer 1's.
        origin = re.sub(r"(?<=_)\d+", lambda layer: str(int(layer[0]) * every), name, count=1)
        if origin not in theirs:
            continue
        shapes = array.shape, theirs[origin].shape
        rows_aside = slice(1 if name == "params/embedding" else 0, None)
        if shapes[0][rows_aside] != shapes[1][rows_aside]:
            raise errors.UserError(
                f"{name.removeprefix('params/')} has the shape {shapes[0]} here and {shapes[1]} "
                "in the run of train.start_from: give both runs the same sizes"
            )
        found[name] = origin
    if not found:
        raise errors.UserError("the run of train.start_from has no parameter of this one's")
    return found
