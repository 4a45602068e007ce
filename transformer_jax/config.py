"""Typed, frozen configurations, checked as a whole before anything is built.

Each field stands here once, with its type and what it allows, and in `configs/base.py` once, with
its default and what it means. There are no other defaults: a field that a config lacks is an error,
as is one it should not have.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

import jax.numpy as jnp

from transformer_jax import errors, fields

# The vocabularies that no corpus makes, and their ids: data.vocab_size is theirs, whatever it was.
FIXED_VOCABULARIES = {"bytes": 4 + 256}
DTYPES = ("float32", "bfloat16")
# Of data: where files lie. What they hold counts, not where.
PATHS = ("train", "dev", "test", "tfds_dir", "parsed")
# Fields that records of earlier versions may hold.
REMOVED = {
    "train.scheduled_sampling": fields.Removed(0.0, hashed=True),
    "train.source_loss": fields.Removed(0.0, hashed=False),
}


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Sizes and kinds of the model, named as in the paper."""

    architecture: str
    num_layers: fields.Positive
    d_model: fields.Positive
    d_ff: fields.Positive
    num_heads: fields.Positive
    num_kv_heads: fields.Natural
    d_k: fields.Positive
    d_v: fields.Positive
    dropout_rate: fields.ShareBelow1
    attention_dropout_rate: fields.ShareBelow1
    feed_forward_dropout_rate: fields.ShareBelow1
    position: str
    max_positions: fields.Positive
    norm: str
    norm_placement: str
    embedding_norm: Annotated[bool, fields.Added(before=False)]
    feed_forward: str
    attention_pattern: str
    window: fields.Natural
    global_every: fields.Positive
    recurrent_attention: str
    kernel_size: fields.Positive
    compute_dtype: str
    attention_kernel: str
    rematerialise: bool
    share_stacks: Annotated[bool, fields.Added(before=False)]
    source_attention: Annotated[str, fields.Added(before="causal")]

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
    """The optimiser's schedule, the batch and the seed."""

    num_steps: fields.Positive
    warmup_steps: fields.Positive
    learning_rate_scale: fields.NotNegative
    label_smoothing: fields.ShareBelow1
    adam_beta2: fields.ShareBelow1
    batch_tokens: fields.Positive
    accumulation_steps: fields.Positive
    seed: Annotated[int, fields.Range(0, below=2**32)]
    objective: Annotated[str, fields.Added(before="none")]
    start_from: Annotated[str, fields.Added(before="")]
    teacher_layers: Annotated[int, fields.Range(0, fields.MOST), fields.Added(before=0)]
    objective_steps: Annotated[int, fields.Range(0, fields.MOST), fields.Added(before=0)]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Corpus, tokenizer and row lengths."""

    corpus: str
    train: str
    dev: str
    test: str
    source_language: str
    target_language: str
    directions: Annotated[str, fields.Added(before="")]
    tfds_name: str
    tfds_dir: str
    toy_pairs: Annotated[int, fields.Range(0, 10_000_000)]
    toy_held_out_pairs: Annotated[int, fields.Range(0, 10_000_000)]
    toy_seed: Annotated[int, fields.Range(0)]
    vocabulary: Annotated[str, fields.Added(before="bpe")]
    vocab_size: fields.Positive
    tokenizer_pairs: fields.Positive
    source_length: fields.Positive
    target_length: fields.Positive
    packing_window: fields.Positive
    train_max_tokens: fields.Natural
    parsed: Annotated[str, fields.Added(before="")]
    tree_terminals: Annotated[str, fields.Added(before="xx")]


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Beam search."""

    beam_size: fields.Positive
    alpha: fields.NotNegative
    penalty: str
    extra_tokens: fields.Natural
    batch_sentences: fields.Positive


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Which parameters are evaluated, and on what."""

    average_checkpoints: fields.Positive
    score_test: bool


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Devices along each axis of the mesh."""

    data: fields.Devices
    fsdp: fields.Devices
    tensor: fields.Devices


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """How often to checkpoint and how many to keep."""

    every: fields.Positive
    keep: fields.Positive


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """How often to measure, and in what."""

    every: fields.Positive
    dev_every: fields.Natural
    bucket_tokens: fields.Positive


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

    Where the vocabulary is of a size of its own, data.vocab_size becomes that.

    Raises:
      UserError: a field is unknown, missing, of the wrong type or out of range.
    """
    config = fields.build(Config, values)
    size = FIXED_VOCABULARIES.get(config.data.vocabulary, config.data.vocab_size)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, vocab_size=size))
    _check_together(config)
    return config


def from_record(values: Mapping[str, Any]) -> Config:
    """As `from_mapping`, of a configuration that an earlier version may have written.

    Fields that have been added since (`fields.Added`) have the values that they had before.

    Raises:
      UserError: as `from_mapping`, or a removed field has another value than its default.
    """
    whole = dict(values)
    for section, kind in fields.declared(Config).items():
        if isinstance(values.get(section), Mapping):
            recorded = {f"{section}.{name}": value for name, value in values[section].items()}
            known = {name.partition(".")[2]: x for name, x in without_removed(recorded).items()}
            whole[section] = {**fields.added(kind), **known}
    return from_mapping(whole)


def without_removed(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded values by dotted field name, without those of fields that no longer exist.

    Raises:
      UserError: a removed field has another value than its default.
    """
    for name, removed in REMOVED.items():
        if name in changes and changes[name] != removed.default:
            raise errors.UserError(
                f"the config field {name} no longer exists: a record may hold {removed.default}, "
                f"not {changes[name]!r}"
            )
    return {name: value for name, value in changes.items() if name not in REMOVED}


def to_dict(config: Config) -> dict[str, Any]:
    """The nested dictionary that `from_mapping` reads."""
    return dataclasses.asdict(config)


def get(config: Config, name: str) -> Any:
    """A field by its dotted name; raises UserError if there is no such field."""
    section, field = _section_and_field(name)
    return getattr(getattr(config, section), field)


def replace(config: Config, changes: Mapping[str, Any]) -> Config:
    """A configuration with fields changed, by dotted name; raises UserError if that cannot be."""
    values = to_dict(config)
    for name, value in changes.items():
        section, field = _section_and_field(name)
        values[section][field] = value
    return from_mapping(values)


def _section_and_field(name: str) -> tuple[str, str]:
    section, _, field = name.partition(".")
    sections = fields.declared(Config)
    if section not in sections:
        whole = [f"{of}.{name}" for of, kind in sections.items() if name in fields.declared(kind)]
        raise fields.unknown(name, section, whole or sections)
    known = fields.declared(sections[section])
    if field not in known:
        raise fields.unknown(name, field, known)
    return section, field


def fingerprint(config: Config, digests: Mapping[str, str]) -> str:
    """SHA-256 of what determines a run's result: `config_hash`.

    It covers model, train, data, decode and evaluation, with the digests of corpus and tokenizer
    in place of the corpus's paths; of the test set too, where it is scored, and of all sets of
    further directions; and, where checkpoints are averaged, their interval. The JSON is canonical:
    sorted keys, numbers that are equal written alike. A field that was added later is left out at
    the value that it had before; a removed field that was hashed has its default.
    """
    values = to_dict(config)
    for section, kind in fields.declared(Config).items():
        for name, before in fields.added(kind).items():
            if values[section][name] == before:
                del values[section][name]
    for name, removed in REMOVED.items():
        if removed.hashed:
            section, _, field = name.partition(".")
            values[section][field] = removed.default
    content = {key: values[key] for key in ("model", "train", "data", "decode", "evaluation")}
    for path in PATHS:
        content["data"].pop(path, None)
    scored = {"test": config.evaluation.score_test}
    content["digests"] = {name: d for name, d in digests.items() if scored.get(name, True)}
    if config.evaluation.average_checkpoints > 1:
        content["averaged_every"] = config.checkpoint.every
    content = json.loads(json.dumps(content), parse_float=_shortest)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _shortest(number: str) -> int | float:
    """A number of JSON, whole if it can be."""
    return int(value) if (value := float(number)).is_integer() else value


def _check_together(config: Config) -> None:
    """Raises UserError where fields, each in its range, do not suit one another."""
    fields.require_known("model.compute_dtype", config.model.compute_dtype, DTYPES)
    rest = [f"mesh.{name}" for name, size in dataclasses.asdict(config.mesh).items() if size == -1]
    if rest[1:]:
        raise errors.UserError(
            f"only one of {' and '.join(rest)} can be -1, the rest of the devices"
        )
    if config.model.num_heads % config.model.key_value_heads:
        raise errors.UserError(
            f"model.num_kv_heads={config.model.num_kv_heads} should divide "
            f"model.num_heads={config.model.num_heads}"
        )
    train = config.train
    if train.objective_steps > train.num_steps:
        raise errors.UserError(
            f"train.objective_steps={train.objective_steps} are more than "
            f"train.num_steps={train.num_steps}, of which they are the first"
        )
    if train.teacher_layers and not train.start_from:
        raise errors.UserError(
            f"train.teacher_layers={train.teacher_layers} needs a train.start_from, the teacher's "
            "folder"
        )
    if (train.objective == "none") != (train.objective_steps == 0):
        raise errors.UserError(
            f"train.objective={train.objective} with train.objective_steps="
            f"{train.objective_steps}: a run has both, or neither"
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
