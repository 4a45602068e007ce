"""Typed, frozen configurations, checked as a whole before anything is built.

`configs/*.py` hold the values; here stand only names, types and what is allowed. There are no
defaults: a field that a config lacks is an error, as is one it should not have.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import typing
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import jax.numpy as jnp

from transformer_jax import errors

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Sizes and kinds of the model, named as in the paper; see `configs/base.py`."""

    architecture: str
    num_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    num_kv_heads: int
    d_k: int
    d_v: int
    dropout_rate: float
    attention_dropout_rate: float
    feed_forward_dropout_rate: float
    position: str
    max_positions: int
    norm: str
    norm_placement: str
    feed_forward: str
    attention_pattern: str
    window: int
    global_every: int
    recurrent_attention: str
    kernel_size: int
    compute_dtype: str
    attention_kernel: str
    rematerialise: bool

    @property
    def key_value_heads(self) -> int:
        """K: num_kv_heads, or num_heads where that is 0."""
        return self.num_kv_heads or self.num_heads

    @property
    def dtype(self) -> jnp.dtype:
        """The type that activations are computed in."""
        return jnp.dtype(self.compute_dtype)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The optimiser's schedule, the batch and the seed; see `configs/base.py`."""

    num_steps: int
    warmup_steps: int
    learning_rate_scale: float
    label_smoothing: float
    adam_beta2: float
    scheduled_sampling: float
    batch_tokens: int
    accumulation_steps: int
    seed: int


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Corpus, tokenizer and row lengths; see `configs/base.py`."""

    corpus: str
    train: str
    dev: str
    test: str
    source_language: str
    target_language: str
    tfds_name: str
    tfds_dir: str
    toy_pairs: int
    toy_held_out_pairs: int
    toy_seed: int
    vocab_size: int
    tokenizer_pairs: int
    source_length: int
    target_length: int
    packing_window: int
    train_max_tokens: int


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Beam search; see `configs/base.py`."""

    beam_size: int
    alpha: float
    penalty: str
    extra_tokens: int
    batch_sentences: int


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Which parameters are evaluated, and on what; see `configs/base.py`."""

    average_checkpoints: int
    score_test: bool


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Devices along each axis of the mesh; see `configs/base.py`."""

    data: int
    fsdp: int
    tensor: int


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """How often to checkpoint and how many to keep."""

    every: int
    keep: int


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """How often to measure, and in what."""

    every: int
    dev_every: int
    bucket_tokens: int


@dataclasses.dataclass(frozen=True)
class Config:
    """One run, whole."""

    model: ModelConfig
    train: TrainConfig
    data: DataConfig
    decode: DecodeConfig
    evaluation: EvaluationConfig
    mesh: MeshConfig
    checkpoint: CheckpointConfig
    log: LogConfig


def from_mapping(values: Mapping[str, Any]) -> Config:
    """Builds and checks a configuration from nested mappings (a ConfigDict or parsed JSON).

    Raises:
      UserError: a field is unknown, missing, of the wrong type or out of range.
    """
    config = _build(Config, values, "")
    _check_ranges(config)
    return config


def to_dict(config: Config) -> dict[str, Any]:
    """The nested dictionary that `from_mapping` reads."""
    return dataclasses.asdict(config)


def get(config: Config, name: str) -> Any:
    """A field by its dotted name.

    Raises:
      UserError: there is no such field.
    """
    section, field = _section_and_field(name)
    return getattr(getattr(config, section), field)


def replace(config: Config, changes: Mapping[str, Any]) -> Config:
    """A configuration with some fields changed, by dotted name, and checked.

    Raises:
      UserError: a field does not exist, or a value is not allowed.
    """
    values = to_dict(config)
    for name, value in changes.items():
        section, field = _section_and_field(name)
        values[section][field] = value
    return from_mapping(values)


def _section_and_field(name: str) -> tuple[str, str]:
    section, _, field = name.partition(".")
    sections = typing.get_type_hints(Config)
    fields = typing.get_type_hints(sections[section]) if section in sections else {}
    if field not in fields:
        known = fields or sections
        hint = _closest(field if fields else section, known)
        raise errors.UserError(f"there is no config field {_printable(name)}{hint}")
    return section, field


def lookup(field: str, name: str, table: Mapping[str, T]) -> T:
    """The entry of a table of kinds.

    Raises:
      UserError: there is no such kind; the message lists those there are.
    """
    require_known(field, name, table)
    return table[name]


def require_known(field: str, name: str, known: Collection[str]) -> None:
    """Raises UserError, listing what is known, unless `name` is."""
    if name not in known:
        raise errors.UserError(f"{field}={name!r} is unknown{_closest(name, known)}")


def fingerprint(config: Config, digests: Mapping[str, str]) -> str:
    """SHA-256 of what determines a run's result: `config_hash`.

    It covers model, train, data, decode and evaluation, with the digests of corpus and tokenizer
    in place of the corpus's paths; of the test set too, where it is scored; and, where checkpoints
    are averaged, their interval. The JSON is canonical: sorted keys, numbers that are equal written
    alike.
    """
    values = to_dict(config)
    content = {key: values[key] for key in ("model", "train", "data", "decode", "evaluation")}
    for path in ("train", "dev", "test", "tfds_dir"):
        del content["data"][path]
    scored = {"test": config.evaluation.score_test}
    content["digests"] = {name: d for name, d in digests.items() if scored.get(name, True)}
    if config.evaluation.average_checkpoints > 1:
        content["averaged_every"] = config.checkpoint.every
    text = json.dumps(_normalise(content), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _normalise(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _normalise(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normalise(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _build(kind: type[T], values: Any, path: str) -> T:
    if not isinstance(values, Mapping):
        whole = f"config.{path}".rstrip(".")
        raise errors.UserError(f"{whole} should hold fields, but is {_short(values)}")
    hints = typing.get_type_hints(kind)
    for name in values:
        if name not in hints:
            hint = _closest(name, hints)
            raise errors.UserError(f"there is no config field {_printable(path + name)}{hint}")
    fields = {}
    for name, expected in hints.items():
        if name not in values:
            raise errors.UserError(f"the config lacks the field {path}{name}")
        value = values[name]
        if isinstance(expected, type) and dataclasses.is_dataclass(expected):
            fields[name] = _build(expected, value, f"{path}{name}.")
        else:
            fields[name] = _convert(expected, value, path + name)
    return kind(**fields)


def _convert(expected: type, value: Any, path: str) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        raise errors.UserError(
            f"{path} is a number of {value.bit_length()} bits: at most 63 are possible"
        )
    accepted = (int, float) if expected is float else expected
    if not isinstance(value, accepted) or isinstance(value, bool) != (expected is bool):
        raise errors.UserError(f"{path} should be {_article(expected)}, but is {_short(value)}")
    if expected is float and not math.isfinite(value):
        raise errors.UserError(f"{path} should be a finite number, but is {value!r}")
    if isinstance(value, str):
        _require_utf8(path, value)
    return expected(value)


def _require_utf8(path: str, value: str) -> None:
    """Raises UserError for text that no file could hold, as bytes of a command line can make it."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise errors.UserError(f"{path} should be UTF-8, but is {value!r}") from error


def _printable(name: str) -> str:
    return name if name.isprintable() and len(name) < 80 else repr(name[:80])


def _short(value: Any) -> str:
    """A value as it is written, if that is short; else its kind."""
    if not isinstance(value, (str, int, float, type(None))):
        return f"a {type(value).__name__}"
    written = repr(value)
    return written if len(written) <= 200 else f"{written[:200]}…"


def _article(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "text", bool: "True or False"}[kind]


def _closest(name: str, known: Collection[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {matches[0]}?" if matches else ""
    return f"{hint} (known: {', '.join(sorted(known))})"


def _check_ranges(config: Config) -> None:
    at_least = {
        1: """
            model.num_layers model.d_model model.d_ff model.num_heads model.d_k model.d_v
            model.max_positions train.num_steps train.warmup_steps train.batch_tokens
            train.accumulation_steps data.source_length data.target_length data.packing_window
            data.vocab_size data.tokenizer_pairs decode.beam_size decode.batch_sentences
            evaluation.average_checkpoints log.bucket_tokens model.kernel_size model.global_every
            checkpoint.every checkpoint.keep log.every
        """,
        0: """
            model.num_kv_heads model.dropout_rate model.attention_dropout_rate
            model.feed_forward_dropout_rate model.window train.adam_beta2
            train.scheduled_sampling data.train_max_tokens train.learning_rate_scale
            train.label_smoothing train.seed data.toy_pairs data.toy_held_out_pairs data.toy_seed
            decode.alpha decode.extra_tokens log.dev_every
        """,
    }
    for minimum, names in at_least.items():
        for name in names.split():
            value = get(config, name)
            if value < minimum:
                raise errors.UserError(f"{name}={value} should be at least {minimum}")
    at_most = {10_000_000: "data.toy_pairs data.toy_held_out_pairs", 2**31 - 1: _counts()}
    for maximum, names in at_most.items():
        for name in names.split():
            if (value := get(config, name)) > maximum:
                raise errors.UserError(f"{name}={value} should be at most {maximum:,}")
    below_1 = """
        model.dropout_rate model.attention_dropout_rate model.feed_forward_dropout_rate
        train.label_smoothing train.adam_beta2
    """
    for name in below_1.split():
        if (value := get(config, name)) >= 1:
            raise errors.UserError(f"{name}={value} should be below 1")
    sizes = dataclasses.asdict(config.mesh)
    for name, size in sizes.items():
        if size < 1 and size != -1:
            raise errors.UserError(f"mesh.{name}={size} should be at least 1, or -1 for the rest")
    if (rest := [f"mesh.{name}" for name, size in sizes.items() if size == -1])[1:]:
        raise errors.UserError(
            f"only one of {' and '.join(rest)} can be -1, the rest of the devices"
        )
    if config.train.seed >= 2**32:
        raise errors.UserError(f"train.seed={config.train.seed} should be below 2^32")
    if config.model.num_heads % config.model.key_value_heads:
        raise errors.UserError(
            f"model.num_kv_heads={config.model.num_kv_heads} should divide "
            f"model.num_heads={config.model.num_heads}"
        )
    average = config.evaluation.average_checkpoints
    written = -(-config.train.num_steps // config.checkpoint.every)
    if average > min(config.checkpoint.keep, written):
        raise errors.UserError(
            f"evaluation.average_checkpoints={average} needs as many checkpoints, but "
            f"checkpoint.keep={config.checkpoint.keep} are kept of {written:,} "
            f"(train.num_steps={config.train.num_steps}, "
            f"checkpoint.every={config.checkpoint.every})"
        )
    if config.train.scheduled_sampling > 1:
        raise errors.UserError(
            f"train.scheduled_sampling={config.train.scheduled_sampling} should be at most 1"
        )
    require_known("model.compute_dtype", config.model.compute_dtype, ("float32", "bfloat16"))


def _counts() -> str:
    """The whole numbers that are no seeds: JAX counts in 32 bits."""
    return " ".join(
        f"{section}.{field}"
        for section, kind in typing.get_type_hints(Config).items()
        for field, expected in typing.get_type_hints(kind).items()
        if expected is int and field not in ("seed", "toy_seed")
    )
