"""All config fields, with their types, defaults, ranges and meanings, and checks of whole configs.

The defaults are the paper's base model and recipe (Vaswani et al. 2017, Table 3, first row). Any
field can be set on the command line: --config.model.d_k=16. To add a field, add its line here.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

import jax.numpy as jnp

from transformer_jax import errors, fields

# ruff: noqa: RUF009 (`field` returns a dataclasses.field)

# Sizes of the vocabularies that are not learned from a corpus; they override data.vocab_size.
FIXED_VOCABULARIES = {"bytes": 4 + 256}
DTYPES = ("float32", "bfloat16")
# Fields of earlier versions, with their defaults.
REMOVED = {"train.scheduled_sampling": 0.0, "train.source_loss": 0.0}
# Sections whose fields change a run's result.
_HASHED = ("model", "train", "data", "decode", "evaluation")

Positive = Annotated[int, fields.Range(1, fields.MOST)]
Natural = Annotated[int, fields.Range(0, fields.MOST)]  # including 0
NotNegative = Annotated[float, fields.Range(0)]
Rate = Annotated[float, fields.Range(0, below=1)]
Seed = Annotated[int, fields.Range(0, below=2**32)]
Pairs = Annotated[int, fields.Range(0, 10_000_000)]
Devices = Annotated[int, fields.Range(1, fields.MOST, besides=(-1, "for the rest"))]


def field(default: Any, meaning: str, *, is_path: bool = False) -> Any:
    """Returns a dataclass field with a default and a one-line meaning.

    The default of an existing field must never change, because `fingerprint` does not cover fields
    that have their default values.

    Args:
      default: the field's value if a config does not set it.
      meaning: a description of the field in one line.
      is_path: whether the field names files. `fingerprint` then covers digests of the files'
        contents instead of the field.
    """
    return dataclasses.field(default=default, metadata={"meaning": meaning, "is_path": is_path})


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Architecture and sizes of the model, named as in the paper."""

    architecture: str = field("transformer", "or decoder, encoder, elmo, rnn, lstm, gru, conv")
    num_layers: Positive = field(6, "N: layers of the encoder, and of the decoder")
    d_model: Positive = field(512, "width of embeddings and of every sub-layer's output")
    d_ff: Positive = field(2048, "inner width of the feed-forward sub-layer")
    num_heads: Positive = field(8, "h: attention heads")
    num_kv_heads: Natural = field(0, "key-value heads, a divisor of num_heads; 0: num_heads")
    d_k: Positive = field(64, "width of one head's queries and keys")
    d_v: Positive = field(64, "width of one head's values")
    dropout_rate: Rate = field(0.1, "P_drop: of sub-layer outputs and of embeddings + positions")
    attention_dropout_rate: Rate = field(0.0, "dropout rate of attention weights")
    feed_forward_dropout_rate: Rate = field(0.0, "dropout rate after the feed-forward activation")
    position: str = field("sinusoidal", "kind of positions, one of models/positions.py")
    max_positions: Positive = field(1024, "learned: rows of the position table")
    norm: str = field("layer_norm", "layer_norm or rms_norm")
    norm_placement: str = field("post", "post: norm(x + f(x)); pre: x + f(norm(x))")
    embedding_norm: bool = field(False, "normalise embeddings + positions, as BERT does")
    feed_forward: str = field("relu", "relu, gelu or swiglu, which has three matrices, not two")
    attention_pattern: str = field("window", "window, or interleaved with layers without one")
    window: Natural = field(0, "positions that self-attention reaches to each side; 0: all")
    global_every: Positive = field(3, "interleaved: one layer in this many has no window")
    recurrent_attention: str = field("none", "rnn, lstm, gru: none, dot or additive")
    kernel_size: Positive = field(3, "conv: positions that one convolution reads")
    compute_dtype: str = field("float32", "float32 or bfloat16; parameters stay float32")
    attention_kernel: str = field("plain", "plain, or fused: cuDNN's on GPUs")
    rematerialise: bool = field(False, "on accelerators: recompute layers in the backward pass")
    share_stacks: bool = field(False, "transformer: both stacks share the encoder's layers")
    source_attention: str = field("causal", "decoder: attention within the source: causal or full")

    @property
    def key_value_heads(self) -> int:
        """The number of key–value heads: num_kv_heads, or num_heads if num_kv_heads is 0."""
        return self.num_kv_heads or self.num_heads

    @property
    def dtype(self) -> jnp.dtype:
        """The data type of activations."""
        return jnp.dtype(self.compute_dtype)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Learning-rate schedule, batch, seed, objective and initial weights of a run."""

    num_steps: Positive = field(100_000, "optimiser steps")
    warmup_steps: Positive = field(4000, "steps of linear warm-up before inverse square root decay")
    learning_rate_scale: NotNegative = field(1.0, "factor on the paper's schedule")
    label_smoothing: Rate = field(0.1, "eps_ls, spread evenly over the whole vocabulary")
    adam_beta2: Rate = field(0.98, "decay rate of Adam's second moment")
    batch_tokens: Positive = field(24_576, "target positions in the global batch")
    accumulation_steps: Positive = field(1, "parts of a batch, computed one after another")
    seed: Seed = field(0, "seed of the initial weights, of shuffling and of dropout")
    objective: str = field("none", "objective of the first steps, from data/objectives.py")
    objective_steps: Natural = field(0, "steps on the objective; the remaining steps translate")
    start_from: str = field(
        "", "folder of the run whose weights it starts from; in a sweep, a row", is_path=True
    )
    teacher_layers: Natural = field(0, "layers of that run if it is the teacher; 0: no teacher")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Corpus, directions, tokenizer and row lengths of a run."""

    corpus: str = field("tfds", "tfds: WMT; text, trees: your files; toy, toy_parsing: a grammar")
    train: str = field("", "training set: path prefixes (text) or paths (trees)", is_path=True)
    dev: str = field("", "development set, likewise", is_path=True)
    test: str = field("", "test set, likewise; may be empty", is_path=True)
    source_language: str = field("en", "source language; text: the files' ending; empty: no source")
    target_language: str = field("de", "target language; text: the files' ending")
    directions: str = field("", "directions of one model, as en-de,de-en; empty: source to target")
    tfds_name: str = field("wmt_t2t_translate/de-en", "tfds: dataset, read in either direction")
    tfds_dir: str = field("", "tfds: folder of the datasets; empty: TFDS's own", is_path=True)
    toy_pairs: Pairs = field(0, "toy, toy_parsing: training pairs")
    toy_held_out_pairs: Pairs = field(0, "toy, toy_parsing: development pairs, and test pairs")
    toy_seed: Annotated[int, fields.Range(0)] = field(0, "toy, toy_parsing: seed of the sentences")
    vocabulary: str = field("bpe", "bpe, or bytes: UTF-8 bytes, without a tokenizer to train")
    vocab_size: Positive = field(37_000, "bpe: tokens, shared by all languages; bytes: always 260")
    tokenizer_pairs: Positive = field(2_000_000, "most training pairs that the tokenizer reads")
    source_length: Positive = field(256, "source positions in a packed row")
    target_length: Positive = field(256, "target positions in a packed row")
    packing_window: Positive = field(16_384, "shuffled pairs that are packed together")
    train_max_tokens: Natural = field(0, "most tokens per side of a training pair; 0: no limit")
    parsed: str = field("", "trees, toy_parsing: paths of trees written by a model", is_path=True)
    tree_terminals: str = field("xx", "trees, toy_parsing: xx for every word, or pos: its tag")


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Settings of beam search."""

    beam_size: Positive = field(4, "hypotheses kept for each sentence")
    alpha: NotNegative = field(0.6, "exponent of the length penalty")
    penalty: str = field("gnmt", "gnmt: ((5 + length) / 6)^alpha; length: length^alpha")
    extra_tokens: Natural = field(50, "most tokens of a translation beyond its source's length")
    batch_sentences: Positive = field(64, "sentences decoded together")


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Checkpoints that are averaged, and sets that are scored."""

    average_checkpoints: Positive = field(1, "newest checkpoints averaged; Table 2: 5 and 20")
    score_test: bool = field(False, "translate and score the test set too")


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Number of devices along each axis of the mesh.

    One axis may be -1, which stands for all remaining devices.
    """

    data: Devices = field(-1, "devices that shard the batch")
    fsdp: Devices = field(1, "devices that shard the batch, parameters and optimiser state")
    tensor: Devices = field(1, "devices that shard heads, d_ff and the vocabulary")


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """Interval and number of checkpoints."""

    every: Positive = field(1000, "steps between checkpoints")
    keep: Positive = field(2, "newest checkpoints kept")


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """Intervals of measurements, and the width of the length buckets for BLEU."""

    every: Positive = field(100, "steps between lines of metrics.jsonl")
    dev_every: Natural = field(5000, "steps between development perplexities; 0: never")
    bucket_tokens: Positive = field(20, "source tokens that a bucket of BLEU by length spans")


@dataclasses.dataclass(frozen=True)
class Config:
    """The whole configuration of one run."""

    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    data: DataConfig = DataConfig()
    decode: DecodeConfig = DecodeConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    mesh: MeshConfig = MeshConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()


DEFAULTS = Config()
# Fields that name files, by dotted name.
PATHS = frozenset(
    f"{section}.{each.name}"
    for section, kind in fields.declared(Config).items()
    for each in dataclasses.fields(kind)
    if each.metadata["is_path"]
)


def from_mapping(values: Mapping[str, Any]) -> Config:
    """Returns a validated configuration from nested mappings (a ConfigDict or parsed JSON).

    Missing fields take their defaults. If data.vocabulary has a fixed size, data.vocab_size is set
    to that size.

    Raises:
      UserError: a field is unknown, of the wrong type or out of range, or fields conflict.
    """
    config = fields.build(Config, values)
    size = FIXED_VOCABULARIES.get(config.data.vocabulary, config.data.vocab_size)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, vocab_size=size))
    _require_consistent(config)
    return config


def from_record(values: Mapping[str, Any]) -> Config:
    """Returns a configuration from a record, such as the content of a run's config.json.

    An earlier version of this package may have written the record. Fields that no longer exist
    (`REMOVED`) are dropped if they have their default values.

    Raises:
      UserError: as `from_mapping`, or a removed field does not have its default value.
    """
    current = dict(values)
    for name in REMOVED:
        section, _, removed = name.partition(".")
        if isinstance(recorded := current.get(section), Mapping) and removed in recorded:
            without_removed({name: recorded[removed]})
            current[section] = {key: recorded[key] for key in recorded if key != removed}
    return from_mapping(current)


def without_removed(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `changes` without the fields that no longer exist (`REMOVED`).

    Args:
      changes: recorded values by dotted field name.

    Raises:
      UserError: a removed field does not have its default value.
    """
    for name, default in REMOVED.items():
        if name in changes and changes[name] != default:
            raise errors.UserError(
                f"the config field {name} no longer exists: a record may hold {default}, "
                f"not {changes[name]!r}"
            )
    return {name: value for name, value in changes.items() if name not in REMOVED}


def to_dict(config: Config) -> dict[str, Any]:
    """Returns a configuration as the nested dictionary that `from_mapping` reads."""
    return dataclasses.asdict(config)


def flatten(config: Config) -> dict[str, Any]:
    """Returns all values of a configuration by dotted field name."""
    return {
        f"{section}.{name}": value
        for section, values in to_dict(config).items()
        for name, value in values.items()
    }


def get(config: Config, name: str) -> Any:
    """Returns the value of a field by its dotted name; raises UserError if it does not exist."""
    section, field_name = _section_and_field(name)
    return getattr(getattr(config, section), field_name)


def replace(config: Config, changes: Mapping[str, Any]) -> Config:
    """Returns a validated copy of a configuration with some values replaced.

    Args:
      config: the configuration.
      changes: the new values by dotted field name.

    Raises:
      UserError: as `from_mapping`.
    """
    values = to_dict(config)
    for name, value in changes.items():
        section, field_name = _section_and_field(name)
        values[section][field_name] = value
    return from_mapping(values)


def _section_and_field(name: str) -> tuple[str, str]:
    section, _, field_name = name.partition(".")
    sections = fields.declared(Config)
    if section not in sections:
        whole = [f"{of}.{name}" for of, kind in sections.items() if name in fields.declared(kind)]
        raise fields.unknown(name, section, whole or sections)
    known = fields.declared(sections[section])
    if field_name not in known:
        raise fields.unknown(name, field_name, known)
    return section, field_name


def is_hashed(name: str) -> bool:
    """Returns whether `fingerprint` covers the value of the field with this dotted name."""
    return name.partition(".")[0] in _HASHED and name not in PATHS


def hashed_fields(config: Config) -> dict[str, Any]:
    """Returns the values of the fields that can change a run's result, by dotted name."""
    return {name: value for name, value in flatten(config).items() if is_hashed(name)}


def fingerprint(config: Config, digests: Mapping[str, str]) -> str:
    """Returns a run's `config_hash`: the SHA-256 of everything that determines its result.

    The hash covers three parts:
      * The fields of model, train, data, decode and evaluation that differ from their defaults.
        If a field is added to this package later, hashes therefore stay the same.
      * `digests`, which replace the fields that name files. The digest of the test set is covered
        only if evaluation.score_test is set.
      * checkpoint.every, if checkpoints are averaged.

    The parts are hashed as canonical JSON: keys are sorted, and whole numbers such as 1.0 are
    written as integers.

    Args:
      config: the run's configuration.
      digests: SHA-256 of the "corpus", the "tokenizer", the "test" set and further "directions". If
        train.start_from is set, "start_from" is the config_hash of the run that it names.
    """
    defaults = flatten(DEFAULTS)
    content: dict[str, Any] = {}
    for name, value in flatten(config).items():
        if is_hashed(name) and value != defaults[name]:
            is_whole = isinstance(value, float) and value.is_integer()
            content[name] = int(value) if is_whole else value
    content["digests"] = dict(digests)
    if not config.evaluation.score_test:
        content["digests"].pop("test", None)
    if config.train.start_from:
        # Even without a digest, the hash differs from that of a run with random initial weights.
        content["digests"].setdefault("start_from", "")
    if config.evaluation.average_checkpoints > 1:
        content["averaged_every"] = config.checkpoint.every
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _require_consistent(config: Config) -> None:
    """Raises UserError if the values of several fields contradict one another."""
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
            f"train.objective_steps={train.objective_steps} should be at most "
            f"train.num_steps={train.num_steps}"
        )
    if train.teacher_layers and not train.start_from:
        raise errors.UserError(
            f"train.teacher_layers={train.teacher_layers} needs the teacher's folder in "
            "train.start_from"
        )
    if (train.objective == "none") != (train.objective_steps == 0):
        raise errors.UserError(
            f"train.objective={train.objective} with train.objective_steps="
            f"{train.objective_steps}: a run has both, or neither"
        )
    average = config.evaluation.average_checkpoints
    written = math.ceil(config.train.num_steps / config.checkpoint.every)
    if average > min(config.checkpoint.keep, written):
        raise errors.UserError(
            f"evaluation.average_checkpoints={average} is more than the checkpoints that are kept: "
            f"checkpoint.keep={config.checkpoint.keep} of {written:,} "
            f"(train.num_steps={config.train.num_steps}, "
            f"checkpoint.every={config.checkpoint.every})"
        )
