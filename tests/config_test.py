"""Configurations: declared in one place, validated, and hashed by what changes a result."""

import contextlib
import dataclasses
import importlib
import json
import pathlib
import re
import typing

import pytest

from configs import toy
from experiments.sweep import store
from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files, models, paper

ROOT = pathlib.Path(__file__).parents[1]
DIGESTS = {"corpus": "c", "tokenizer": "t"}


def values(module=toy):
    return module.get_config().to_dict()


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "configs").glob("[!_]*.py")))
def test_every_config_is_whole(name):
    config = config_lib.from_mapping(values(importlib.import_module(f"configs.{name}")))
    assert config_lib.from_mapping(config_lib.to_dict(config)) == config
    models.build(config.model, config.data.vocab_size)


@pytest.mark.parametrize("section", dataclasses.fields(config_lib.Config), ids=lambda s: s.name)
def test_every_field_has_a_meaning_and_a_default_in_its_range(section):
    kind = type(section.default)
    assert fields.build(kind, dataclasses.asdict(section.default)) == section.default
    for field in dataclasses.fields(kind):
        name = f"{section.name}.{field.name}"
        assert re.fullmatch(r"\S.*\S", field.metadata["meaning"]), name
        base, *rules = typing.get_args(fields.declared(kind)[field.name]) or (field.type,)
        assert type(field.default) is base, name
        assert base in (str, bool) or [type(rule) for rule in rules] == [fields.Range], name


def test_defaults_never_change():
    """A hash covers only what differs from the defaults: another default is another meaning.

    Fields may be added or removed (`config.REMOVED`); record those that are added.
    """
    recorded = json.loads((ROOT / "tests" / "defaults.json").read_text(encoding="utf-8"))
    current = {**config_lib.flatten(config_lib.DEFAULTS), **config_lib.REMOVED}
    assert {name: current.get(name) for name in recorded} == recorded


def test_a_new_field_needs_its_declaration_alone_and_changes_no_hash(monkeypatch):
    old, record = fingerprint_of(values()), values()

    @dataclasses.dataclass(frozen=True)
    class Model(config_lib.ModelConfig):
        num_experts: config_lib.Positive = config_lib.field(1, "experts")  # noqa: RUF009

    @dataclasses.dataclass(frozen=True)
    class Config(config_lib.Config):
        model: Model = Model()

    monkeypatch.setattr(config_lib, "Config", Config)
    monkeypatch.setattr(config_lib, "DEFAULTS", Config())
    config = values()
    assert config["model"]["num_experts"] == 1
    assert fingerprint_of(config) == fingerprint_of(record) == old
    config["model"]["num_experts"] = 2
    assert fingerprint_of(config) != old
    changed = config_lib.from_mapping(config)
    assert "model.num_experts=2, where the paper has 1" in paper.deviations(changed)
    config["model"]["num_experts"] = 0
    with pytest.raises(errors.UserError, match=r"model\.num_experts=0 should be at least 1"):
        config_lib.from_mapping(config)


def test_bytes_have_a_fixed_vocabulary_size(make_config):
    plain = make_config({"data.vocab_size": 300})
    bytewise = [make_config({"data.vocabulary": "bytes", "data.vocab_size": n}) for n in (7, 300)]
    assert bytewise[0] == bytewise[1] == config_lib.replace(plain, {"data.vocabulary": "bytes"})
    assert (plain.data.vocab_size, bytewise[0].data.vocab_size) == (300, 260)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.d_kk", 3, r"no config field model\.d_kk; did you mean d_k\? \(known: "),
        ("modle.d_k", 3, r"no config field modle; did you mean model\?"),
        ("model.d_k", "64", r"model\.d_k should be a whole number, but is '64'"),
        ("model.d_k", 6.5, r"model\.d_k should be a whole number, but is 6\.5"),
        ("model.d_k", True, r"model\.d_k should be a whole number, but is True"),
        ("model.num_heads", 0, r"model\.num_heads=0 should be at least 1"),
        ("model.num_kv_heads", 3, r"model\.num_kv_heads=3 should divide model\.num_heads=8"),
        ("model.dropout_rate", 1.0, r"model\.dropout_rate=1\.0 should be below 1"),
        ("model.dropout_rate", 1 - 2**-25, r"dropout_rate=0\.9+70\d+ should be below 1 as float32"),
        ("model.dropout_rate", float("nan"), r"model\.dropout_rate should be a finite number"),
        ("train.label_smoothing", -0.1, r"train\.label_smoothing=-0\.1 should be at least 0"),
        ("model.compute_dtype", "float16", r"compute_dtype='float16' is unknown; did you mean bfl"),
        ("mesh.data", 0, r"mesh\.data=0 should be at least 1, or -1"),
        ("train.seed", 2**32, r"train\.seed=4294967296 should be below 2\^32"),
        ("data.toy_pairs", 2 * 10**7, r"toy_pairs=20000000 should be at most 10,000,000"),
        ("train.num_steps", 2**31, r"num_steps=2147483648 should be at most 2,147,483,647"),
        ("train.objective_steps", 9**6, r"objective_steps=531441 should be at most train\.num"),
        ("train.objective_steps", 9, r"objective=none with train\.objective_steps=9: a run has bo"),
        (
            "train.objective",
            "prefix",
            r"objective=prefix with train\.objective_steps=0: a run has bo",
        ),
        ("train", 3, r"config\.train should hold fields, but is 3"),
    ],
)
def test_mistakes_are_named(path, value, message):
    config = values()
    *sections, field = path.split(".")
    place = config
    for section in sections:
        place = place.setdefault(section, {})
    place[field] = value
    with pytest.raises(errors.UserError, match=message):
        config_lib.from_mapping(config)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("position", "sinusiodal", r"model\.position='sinusiodal' is unknown; did you mean sinus"),
        ("norm", "batch_norm", r"model\.norm='batch_norm' is unknown.*layer_norm, rms_norm"),
        ("norm_placement", "both", r"norm_placement='both' is unknown.*post, pre"),
        ("feed_forward", "tanh", r"feed_forward='tanh' is unknown.*relu"),
        ("architecture", "mlp", r"architecture='mlp' is unknown.*transformer"),
    ],
)
def test_an_unknown_kind_lists_the_known_ones(field, value, message):
    config = values()
    config["model"][field] = value
    with pytest.raises(errors.UserError, match=message):
        models.build(config_lib.from_mapping(config).model, 100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position": "rotary", "d_k": 7}, r"position=rotary needs an even d_k, but model\.d_k=7"),
        ({"d_model": 65}, r"position=sinusoidal needs an even d_model, but model\.d_model=65"),
        (
            {"position": "relative", "attention_kernel": "fused"},
            r"position=relative needs attention weights.*kernel=fused does not.*: set it to plain",
        ),
    ],
)
def test_sizes_that_do_not_suit_a_position_kind_are_named(changes, message):
    config = values()
    config["model"] |= changes
    with pytest.raises(errors.UserError, match=message):
        models.build(config_lib.from_mapping(config).model, 100)


def test_the_hash_follows_the_digests_of_what_is_used():
    config = config_lib.from_mapping(values())
    own, unscored, other = (
        config_lib.fingerprint(config, DIGESTS | more)
        for more in ({}, {"test": "v"}, {"tokenizer": "u"})
    )
    assert own == unscored != other


def test_records_of_earlier_versions_are_read():
    """They lack later fields, and hold removed ones, at their defaults."""
    record = values()
    del record["model"]["share_stacks"], record["evaluation"]
    record["train"]["scheduled_sampling"] = 0
    assert config_lib.from_record(record) == config_lib.from_mapping(values())
    record["train"]["scheduled_sampling"] = 0.5
    message = r"train\.scheduled_sampling no longer exists.* hold 0\.0, not 0\.5$"
    with pytest.raises(errors.UserError, match=message):
        config_lib.from_record(record)
    with pytest.raises(errors.UserError, match=r"no config field train\.scheduled_sampling"):
        config_lib.from_mapping(record)


def test_a_row_that_a_sweep_recorded_with_a_removed_field_is_named(tmp_path):
    source = ROOT / "experiments" / "published" / "families_toy" / "sweep.json"
    record = json.loads(source.read_text(encoding="utf-8"))
    for value, message in ((0.25, r"row 'old': .*scheduled_sampling no longer exists"), (0.0, "")):
        record |= {"rows": {"base": {}, "old": {"train.scheduled_sampling": value}}, "runs": []}
        files.write_json(tmp_path / "sweep.json", record)
        if message:
            with pytest.raises(errors.UserError, match=message):
                store.read(tmp_path)
        else:
            assert store.read(tmp_path).rows["old"] == {}


def test_the_test_set_counts_where_it_is_scored():
    config = config_lib.replace(config_lib.from_mapping(values()), {"evaluation.score_test": True})
    one, other = (config_lib.fingerprint(config, {**DIGESTS, "test": d}) for d in "ab")
    assert one != other


def test_the_hash_follows_the_run_that_weights_come_from():
    config = config_lib.replace(config_lib.from_mapping(values()), {"train.start_from": "there"})
    moved = config_lib.replace(config, {"train.start_from": "here"})
    one, other = ({**DIGESTS, "start_from": digest} for digest in "ab")
    assert config_lib.fingerprint(config, one) == config_lib.fingerprint(moved, one)
    hashes = {config_lib.fingerprint(config, digests) for digests in (one, other, DIGESTS)}
    assert len({*hashes, fingerprint_of(values())}) == 4


def fingerprint_of(values):
    return config_lib.fingerprint(config_lib.from_mapping(values), DIGESTS)


def test_the_hash_ignores_the_order_of_fields_and_the_spelling_of_numbers():
    def respell(value):
        if isinstance(value, dict):
            return {key: respell(value[key]) for key in reversed(value)}
        is_whole = isinstance(value, float) and value.is_integer()
        return int(value) if is_whole else value

    assert fingerprint_of(respell(values())) == fingerprint_of(values())


BASE = config_lib.from_mapping(values())
FIELDS = [
    f"{section}.{field}" for section, fields in config_lib.to_dict(BASE).items() for field in fields
]
# The base of fields that are allowed only beside others.
PRETRAINED = config_lib.replace(
    BASE,
    {
        "train.objective": "roberta",
        "train.objective_steps": BASE.train.num_steps,
        "train.start_from": "x",
        "train.teacher_layers": 6,
    },
)
ALLOWED_BESIDE_OTHERS = [
    f"train.{name}" for name in ("objective", "objective_steps", "start_from", "teacher_layers")
]
UNCOUNTED = ("mesh", "checkpoint", "log")  # sections that change no result
# Digests of the content are hashed in place of these.
PATHS = (
    *("data.train", "data.dev", "data.test", "data.tfds_dir", "data.parsed"),
    "train.start_from",
)


def other_values(value):
    """Returns values of the same type, at least one of which the field allows."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [f"{value}x", "bfloat16"]
    return [type(value)(other) for other in (2 * value + 1, value / 2, 0.5, 1, 2)]


@pytest.mark.parametrize("name", FIELDS)
def test_the_hash_follows_each_field_that_changes_the_result_and_no_other(name):
    section = name.partition(".")[0]
    base = PRETRAINED if name in ALLOWED_BESIDE_OTHERS else BASE
    changed = []
    for value in other_values(config_lib.get(base, name)):
        with contextlib.suppress(errors.UserError):
            changed.append(config_lib.replace(base, {name: value}))
    changed = [config for config in changed if config != base]
    assert changed, "no other value was allowed"
    is_hashed = section not in UNCOUNTED and name not in PATHS
    own = config_lib.fingerprint(base, DIGESTS)
    for config in changed:
        assert (config_lib.fingerprint(config, DIGESTS) != own) == is_hashed
