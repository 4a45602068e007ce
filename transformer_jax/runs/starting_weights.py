"""Initial weights from another run (train.start_from), and the parameters of a teacher.

An array is copied if both models have an array of its name. For example, a translation model gets
the layers and the embedding of an encoder-only model, or a model gets all arrays of the same model
with another objective. The remaining arrays keep their random initial values.
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
    """Returns whether a run reads the weights of the run in train.start_from now.

    A new run reads them as its initial weights. A run with a teacher needs them as the teacher's
    weights, and therefore also reads them when it is resumed.
    """
    if not config.train.start_from:
        return False
    return config.train.teacher_layers > 0 or not run_folder.has_checkpoints(workdir)


def start(
    state: step_lib.TrainState,
    config: config_lib.Config,
    read_source: Callable[[], tuple[int, Any]],
) -> step_lib.TrainState:
    """Returns a new run's state, with weights copied from the run in train.start_from if it is set.

    Args:
      state: the randomly initialised state.
      config: the new run's configuration.
      read_source: returns the number of layers and the parameters of the run in train.start_from,
        as `read` does.

    Raises:
      UserError: the run in train.start_from cannot be read, or its model has other sizes.
    """
    if not config.train.start_from:
        return state
    num_layers, params = read_source()
    return state._replace(params=take(state.params, params, _layer_stride(config, num_layers)))


def teacher(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    read_source: Callable[[], tuple[int, Any]],
) -> Any:
    """Returns the teacher's parameters, replicated on all devices.

    Returns None if train.teacher_layers is 0. The arguments are those of `start`.

    Raises:
      UserError: the run in train.start_from cannot be read, or its model differs from this run's
        model in more than the number of layers.
    """
    if not config.train.teacher_layers:
        return None
    _, params = read_source()
    _require_teacher(config, params)
    return jax.device_put(params, sharding.replicated(mesh))


def require(config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer) -> None:
    """Raises UserError if a run cannot use the weights of the run in train.start_from.

    The checks are those of `source`, `start` and `teacher`, but need only the arrays' shapes, so
    that no checkpoint is read.
    """
    _, source_config = source(config, tokenizer)
    target_params = _shapes(models.build(config.model, vocabulary.size(config)))
    source_params = _shapes(models.build(source_config.model, vocabulary.size(source_config)))
    source_params = jax.eval_shape(
        lambda params: _shared_words(params, config, source_config), source_params
    )
    if config.train.teacher_layers:
        _require_teacher(config, source_params)
    stride = _layer_stride(config, source_config.model.num_layers)
    _origins(_flatten(target_params), _flatten(source_params), stride)


def source(
    config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> tuple[files.Path, config_lib.Config]:
    """Returns the folder and the configuration of the run that train.start_from names.

    Raises:
      UserError: the folder holds no finished run or lacks its last checkpoint; the run has another
        tokenizer; or its number of layers is no multiple of model.num_layers.
    """
    folder = files.path(config.train.start_from)
    name = f"train.start_from={config.train.start_from}"
    if not (folder / "result.json").exists():
        raise errors.UserError(f"{name}: {folder} holds no finished run; train it first")
    source_config = run_folder.read_config(folder)
    last_step = source_config.train.num_steps
    if not (folder / "checkpoints" / str(last_step)).exists():
        raise errors.UserError(
            f"{name}: {folder} has no checkpoint of its last step, {last_step:,}; "
            "train it again, in an empty folder"
        )
    if run_folder.read_tokenizer(folder, source_config).digest != tokenizer.digest:
        raise errors.UserError(
            f"{name}: its tokenizer is not this run's; train both on one corpus, with one "
            "data.vocab_size"
        )
    _layer_stride(config, source_config.model.num_layers)
    return folder, source_config


def read(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    tokenizer: tokenizer_lib.Tokenizer,
) -> tuple[int, Any]:
    """Returns the number of layers and the parameters of the run that train.start_from names.

    The ids after the tokenizer's ids are those of language tags and of the objective. If they
    differ between the two runs, their rows are removed from the embedding.

    Raises:
      UserError: as `source`.
    """
    folder, source_config = source(config, tokenizer)
    params = run_folder.restore_params(source_config, mesh, folder, tokenizer)
    return source_config.model.num_layers, _shared_words(params, config, source_config)


def take(target_params: Any, source_params: Any, stride: int) -> Any:
    """Returns a model's parameters with the values of a source model's parameters of equal name.

    Layer i gets the parameters of the source model's layer stride × i. (DistilBERT takes every
    second layer of its teacher, Sanh et al. 2019.) If the embeddings have different numbers of
    rows, the rows that both have are copied.

    Args:
      target_params: the model's parameters.
      source_params: the source model's parameters.
      stride: the distance between the layers of the source model that are copied.

    Raises:
      UserError: two arrays of equal name differ in shape, or the models have no name in common.
    """
    target_arrays = _flatten(target_params)
    source_arrays = _flatten(source_params)
    origins = _origins(target_arrays, source_arrays, stride)
    result = dict(target_arrays)
    for name, origin in origins.items():
        array, new = target_arrays[name], source_arrays[origin]
        if new.shape != array.shape:  # only embeddings may differ
            rows = min(len(array), len(new))
            new = array.at[:rows].set(new[:rows])
        result[name] = jax.device_put(new, array.sharding)
    copied = sum(target_arrays[name].size for name in origins)
    share = copied / sum(array.size for array in target_arrays.values())
    _log.info("%.0f%% of the parameters start from those of the other run", 100 * share)
    return traverse_util.unflatten_dict(result, sep="/")


def _layer_stride(config: config_lib.Config, source_layers: int) -> int:
    """Returns the distance between the layers of the source model that are copied.

    Raises:
      UserError: the number of source layers is no multiple of model.num_layers.
    """
    stride, rest = divmod(source_layers, config.model.num_layers)
    if rest:
        raise errors.UserError(
            f"train.start_from={config.train.start_from}: its {source_layers} layers are no "
            f"multiple of model.num_layers={config.model.num_layers}, which takes evenly spaced "
            "ones of them"
        )
    return stride


def _require_teacher(config: config_lib.Config, params: Any) -> None:
    """Raises UserError if parameters do not have the shapes of `step.teacher_model`'s parameters.

    Args:
      config: the config of the run that has a teacher.
      params: the teacher's parameters, or their shapes.
    """
    expected = _shapes(step_lib.teacher_model(config))
    if jax.tree.map(jnp.shape, params) != jax.tree.map(jnp.shape, expected):
        raise errors.UserError(
            f"train.start_from={config.train.start_from}: the teacher should be this model with "
            f"train.teacher_layers={config.train.teacher_layers} layers, but its parameters are "
            "others"
        )


def _shapes(model: Any) -> Any:
    return nn.unbox(jax.eval_shape(lambda: models.init(model, jax.random.key(0))))


def _shared_words(params: Any, config: config_lib.Config, source_config: config_lib.Config) -> Any:
    """Returns the source model's parameters without rows of the embedding that do not fit.

    If language tags or the objective's ids differ between the two runs, only the rows of the
    tokenizer's ids are kept.

    Args:
      params: the source model's parameters.
      config: the config of the run that gets the parameters.
      source_config: the config of the source model's run.
    """
    if _further_ids(config) == _further_ids(source_config):
        return params
    words = params["params"]["embedding"][: config.data.vocab_size]
    return {**params, "params": {**params["params"], "embedding": words}}


def _further_ids(config: config_lib.Config) -> tuple[dict[str, int], str]:
    """Returns the meaning of a run's ids after the tokenizer's ids.

    It consists of the language tags and the objective's name. The name is "" for all encoder-only
    objectives, because they have the same ids.
    """
    objective = objectives.of(config)
    is_encoder_only = objective is not None and objective.encoder_only
    name = "" if is_encoder_only else config.train.objective
    return directions.tags(config.data), name


def _flatten(params: Any) -> dict[str, Any]:
    return traverse_util.flatten_dict(params, sep="/")


def _origins(
    target_params: dict[str, Any], source_params: dict[str, Any], stride: int
) -> dict[str, str]:
    """Maps the name of each parameter that is copied to its name in the source model.

    Raises:
      UserError: a parameter and the one that it is copied from differ in shape, or none is copied.
    """
    origins = {}
    for name, array in target_params.items():
        # The first number in a name is the layer's: bridge_1_0 belongs to layer 1.
        origin = re.sub(r"(?<=_)\d+", lambda layer: str(int(layer[0]) * stride), name, count=1)
        if origin not in source_params:
            continue
        shape, other_shape = array.shape, source_params[origin].shape
        fixed = slice(1, None) if name == "params/embedding" else slice(None)
        if shape[fixed] != other_shape[fixed]:
            raise errors.UserError(
                f"{name.removeprefix('params/')} has the shape {shape} here and {other_shape} "
                "in the run of train.start_from: give both runs the same sizes"
            )
        origins[name] = origin
    if not origins:
        raise errors.UserError("the run of train.start_from has no parameter of this one's")
    return origins
