"""A whole run: loading data, training a model and evaluating it, in a run's folder."""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files, models, paper
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import examples as examples_lib
from transformer_jax.data import objectives, vocabulary
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import hosts, preemption, sharding
from transformer_jax.evaluation import bleu, encoder_only, evaluators
from transformer_jax.models import interface, kernels, positions
from transformer_jax.runs import run_folder, starting_weights
from transformer_jax.training import loop, metrics, tensorboard, tracking
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)


def run(
    config: config_lib.Config,
    workdir: files.Path,
    cache_dir: pathlib.Path,
    *,
    table_row: str = "",
    overrides: Mapping[str, Any] | None = None,
    profile: bool = False,
    project: tracking.Project = tracking.NONE,
) -> dict[str, Any]:
    """Trains a model and evaluates it; if the run was stopped before, resumes it.

    Args:
      config: the run's configuration.
      workdir: the run's folder; docs/reference/files.md lists its files.
      cache_dir: folder of tokenizers, encoded corpora and compiled programs, shared by runs.
      table_row: name of the run's row in a table, for the record.
      overrides: fields that differ from the config file, for the record.
      profile: whether to write a JAX trace of a few steps.
      project: Weights & Biases project that shows the run.

    Returns:
      The content of result.json.

    Raises:
      UserError: the config cannot be run, or the folder holds a run of another config.
      RunError: the loss is not finite, or the process was told to stop.
    """
    objectives.of(config)  # raises if the objective is unknown, before data is read
    mesh = sharding.make_mesh(config.mesh)

    def load() -> dataset_lib.Dataset:
        files.make_folder(workdir, "the run's folder")
        files.make_folder(cache_dir, "the cache's folder")
        dataset = dataset_lib.load(config.data, cache_dir)
        check(config, mesh, dataset)
        return dataset

    dataset = hosts.first_alone(load)
    _require_same_data(dataset)
    result_path = workdir / "result.json"
    with contextlib.ExitStack() as lock:

        def claim() -> tuple[str, bool]:
            """Returns the run's config_hash, and whether it is finished; locks the folder."""
            lock.enter_context(run_folder.only_run_in(workdir))
            config_hash = run_folder.claim(workdir, config, dataset)
            is_finished = result_path.exists()
            if not is_finished:
                metrics.read(workdir)  # raises if metrics.jsonl is damaged, before training
                failure_of_earlier_start = workdir / "failure.json"
                failure_of_earlier_start.unlink(missing_ok=True)
            return config_hash, is_finished

        config_hash, is_finished = hosts.from_first(claim)
        if is_finished:
            _log.info("%s exists: nothing is left to do", result_path)
        else:
            record = {
                "row": table_row,
                "overrides": dict(overrides or {}),
                "config_hash": config_hash,
                "seed": config.train.seed,
            }
            name = f"{table_row or workdir.name}, seed {config.train.seed}"
            with (
                _opened_tracker(project, name, workdir, config, config_hash) as tracker,
                _failure_recorded(workdir),
            ):
                _train_and_evaluate(config, mesh, dataset, workdir, record, tracker, profile)
        hosts.wait_for_first()  # which writes result.json
    return run_folder.read_result(workdir)


def _require_same_data(dataset: dataset_lib.Dataset) -> None:
    """Raises UserError if this process has read other data than the first process."""
    for name, digest in hosts.from_first(lambda: dict(dataset.digests)).items():
        if dataset.digests[name] != digest:
            raise errors.UserError(
                f"the {name} of this process differs from the first process's: SHA-256 "
                f"{dataset.digests[name][:16]}… here, {digest[:16]}… there; compare the files and "
                "the --cache_dir of both"
            )


@contextlib.contextmanager
def _opened_tracker(
    project: tracking.Project,
    name: str,
    workdir: files.Path,
    config: config_lib.Config,
    config_hash: str,
) -> Iterator[tracking.Tracker | None]:
    """Opens a Weights & Biases run in the first process, and closes it after the body.

    Yields:
      The tracker; None without a project and in all processes but the first.
    """
    if not project.name or not hosts.is_first():
        yield None
        return
    tracker = tracking.Tracker(project, name, workdir, config, config_hash)
    try:
        yield tracker
    finally:
        is_finished = (workdir / "result.json").exists()
        tracker.close(run_folder.read_result(workdir) if is_finished else None)


@contextlib.contextmanager
def _failure_recorded(workdir: files.Path) -> Iterator[None]:
    """Writes failure.json if the body raises an exception other than a `PreemptedError`."""
    try:
        yield
    except preemption.PreemptedError:
        raise
    except Exception as error:
        hosts.await_peer_failure(error)
        if hosts.is_first():
            try:
                run_folder.record_failure(workdir, error)
            except Exception as another:  # the first error matters more
                _log.warning("cannot write %s: %s", workdir / "failure.json", another)
        raise


def _train_and_evaluate(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    dataset: dataset_lib.Dataset,
    workdir: files.Path,
    record: Mapping[str, Any],
    tracker: tracking.Tracker | None,
    profile: bool,
) -> None:
    """Trains and evaluates a model, and writes result.json.

    Args:
      config: the run's configuration.
      mesh: devices that compute.
      dataset: the run's dataset.
      workdir: the run's folder.
      record: the first fields of result.json, such as the run's row and seed.
      tracker: receives the metrics; None without a Weights & Biases project.
      profile: whether to write a JAX trace of a few steps.
    """
    model = models.build(config.model, vocabulary.size(config))
    for line in paper.deviations(config):
        _log.info("not the paper's: %s", line)
    if config.model.attention_kernel != kernels.PLAIN:
        _log.info("attention kernels: %s", kernels.describe(config, type(model)))
    if starting_weights.are_read(config, workdir):
        starting_weights.require(config, dataset.tokenizer)
    read_source = functools.partial(starting_weights.read, config, mesh, dataset.tokenizer)
    dev_likelihoods = _likelihoods(model, dataset.dev, config, mesh)
    state, train_seconds = loop.train(
        model,
        dataset,
        config,
        mesh,
        workdir,
        dev_perplexity=lambda params: dev_likelihoods(params).perplexity,
        tracker=tracker,
        profile=profile,
        start=lambda state: starting_weights.start(state, config, read_source),
        teacher=starting_weights.teacher(config, mesh, read_source),
    )
    params = state.params
    if config.evaluation.average_checkpoints > 1:
        params = run_folder.restore_params(config, mesh, workdir, dataset.tokenizer)
    scores = _scores(model, params, dataset, config, mesh, workdir, dev_likelihoods)
    if not hosts.is_first():
        return
    eval_seconds = sum(each["eval_seconds"] for each in scores.values())
    speed = metrics.tokens_per_second(workdir)
    is_decoder = isinstance(model, interface.Decoder)
    result = {
        **record,
        "params": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "steps": config.train.num_steps,
        **_by_direction(scores, dataset),
        "tokens_per_second": speed,
        # The speed of encoder-only models counts masked tokens, not all target tokens.
        **evaluators.lengths(dataset, speed if is_decoder else None),
        "wall_seconds": train_seconds + eval_seconds,
        "git_commit": git_commit(),
        **measured_on(config, dataset),
        "devices": [device.device_kind for device in jax.devices()],
        "versions": {"jax": jax.__version__},
    }
    main_variant = bleu.main_variant(config.data.target_language)
    scores_by_variant = result.get("bleu", {})  # empty for language models and encoder-only models
    main_score = scores_by_variant[main_variant]["score"] if scores_by_variant else None
    tensorboard.write_result(workdir, config, result["ppl"], main_score)
    files.write_json(workdir / "result.json", result)


def _likelihoods(
    model: interface.Architecture,
    pairs: dataset_lib.HeldOut,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], evaluators.Likelihoods]:
    """Returns a function that computes the likelihoods of a held-out set's labels.

    The function takes the model's parameters. The labels are the tokens of the targets; for an
    encoder-only model, they are the labels of the run's objective.
    """
    if isinstance(model, interface.Decoder):
        return evaluators.likelihoods(model, pairs.examples, config.data, mesh)
    return encoder_only.likelihoods(model, pairs, config, mesh)


def _scores(
    model: interface.Architecture,
    params: Any,
    dataset: dataset_lib.Dataset,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    workdir: files.Path,
    dev_likelihoods: Callable[[Any], evaluators.Likelihoods],
) -> dict[str, dict[str, Any]]:
    """Returns the scores of each held-out set, by the set's name, in the first process.

    Other processes compute their share, but may return an empty dictionary.
    """
    sets = evaluators.held_out(dataset, config)
    likelihoods = {
        name: _likelihoods(model, pairs, config, mesh)
        for name, (pairs, _) in sets.items()
        if name != "dev"
    }
    likelihoods["dev"] = dev_likelihoods  # already compiled
    if not isinstance(model, interface.Decoder):
        return {
            name: encoder_only.score(
                name, model, params, pairs, likelihoods[name], config, mesh, workdir
            )
            for name, (pairs, _) in sets.items()
        }
    translate = translator.Translator(model, params, dataset.tokenizer, config, mesh)
    measured = {
        name: evaluators.measure(pairs, translate, likelihoods[name])
        for name, (pairs, _) in sets.items()
    }
    if not hosts.is_first():
        return {}
    scores = {
        name: evaluators.score(name, pairs, measured[name], language, workdir)
        for name, (pairs, language) in sets.items()
    }
    width = config.log.bucket_tokens
    scores["dev"] |= evaluators.by_length(
        dataset, measured["dev"].hypotheses, config.data.target_language, width
    )
    return scores


def _by_direction(
    scores: Mapping[str, dict[str, Any]], dataset: dataset_lib.Dataset
) -> dict[str, Any]:
    """Returns the fields of result.json that contain scores.

    Args:
      scores: the scores of each held-out set, by the set's name.
      dataset: the run's dataset.

    Returns:
      The scores on the main direction's development set; "test", with the scores on its test set;
      and "directions", with the scores of each further direction, by name. "test" and "directions"
      are absent if there are no such scores.
    """
    result = dict(scores["dev"])
    if "test" in scores:
        result["test"] = scores["test"]
    directions = {}
    for direction in dataset.directions:
        directions[direction] = dict(scores[direction])
        if f"{direction}_test" in scores:
            directions[direction]["test"] = scores[f"{direction}_test"]
    if directions:
        result["directions"] = directions
    return result


def measured_on(config: config_lib.Config, dataset: dataset_lib.Dataset) -> dict[str, Any]:
    """Returns the fields of result.json that describe the run's data and decoding.

    They are known before training.
    """
    return {
        "data_sha256": dataset.digests["corpus"],
        "tokenizer_sha256": dataset.digests["tokenizer"],
        "test_sha256": dataset.digests["test"] if config.evaluation.score_test else "",
        "data": dict(dataset.provenance),
        "decode": dataclasses.asdict(config.decode),
    }


def check(config: config_lib.Config, mesh: jax.sharding.Mesh, dataset: dataset_lib.Dataset) -> None:
    """Raises UserError if a configuration cannot run; call it before writing or compiling anything.

    Names, such as that of the architecture, must be known. Sizes must suit the architecture, the
    mesh and the corpus. Learned positions must cover the longest source, target and translation.
    """
    model = models.build(config.model, vocabulary.size(config))
    _check_objective(config, model, dataset)
    fields.require_known("decode.penalty", config.decode.penalty, beam_search.PENALTIES)
    if config.evaluation.score_test and not len(dataset.test):
        raise errors.UserError(
            "evaluation.score_test=True, but the corpus has no test set: data.test is empty"
        )
    sharding.rows_of(config, mesh)
    step_lib.state_shapes(model, config, mesh)
    if positions.KINDS[config.model.position].bounded:
        source, target = dataset_lib.longest(dataset)
        data = config.data
        objective = objectives.of(config)
        if isinstance(model, interface.Decoder):  # encoder-only models read target rows alone
            target = max(source + config.decode.extra_tokens, target, data.target_length)
            source = max(source, data.source_length)
        reads_pairs = objective is not None and objective.texts != "sentence"
        is_joined = model.one_sequence or reads_pairs
        longest = source + target if is_joined else max(source, target)
        needed = max(longest, data.target_length)
        if config.model.max_positions < needed:
            raise errors.UserError(
                f"model.position={config.model.position} needs model.max_positions of at least "
                f"{needed} for this corpus, but it is {config.model.max_positions}"
            )


def _check_objective(
    config: config_lib.Config, model: interface.Architecture, dataset: dataset_lib.Dataset
) -> None:
    """Raises UserError if the model cannot be trained on the config's objective or be evaluated."""
    train = config.train
    is_decoder = isinstance(model, interface.Decoder)
    objective = objectives.of(config)
    architecture = config.model.architecture
    encoder_objectives = {
        name: kind for name, kind in objectives.KINDS.items() if kind.encoder_only
    }
    if is_decoder and train.objective in encoder_objectives:
        raise errors.UserError(
            f"train.objective={train.objective} is for an encoder-only model, such as "
            f"model.architecture=encoder, not for {architecture}"
        )
    all_steps = train.objective_steps >= train.num_steps
    if not is_decoder and (train.objective not in encoder_objectives or not all_steps):
        raise errors.UserError(
            f"model.architecture={architecture} is encoder-only and cannot translate: set "
            f"train.objective to one of {', '.join(encoder_objectives)}, and "
            f"train.objective_steps={train.num_steps}"
        )
    if objective and objective.encoder_only and not objective.masked and model.needs_masks:
        masked = [name for name, other in encoder_objectives.items() if other.masked]
        raise errors.UserError(
            f"train.objective={train.objective} masks no tokens, so that "
            f"model.architecture={architecture} would see what it predicts: set it to one of "
            f"{', '.join(masked)}"
        )
    for name, (pairs, _) in evaluators.held_out(dataset, config).items():
        if is_decoder and all(dataset.provenance["languages"]) and not any(pairs.source):
            raise errors.UserError(
                f"the {name} set has no sources: all {len(pairs)} lines are blank; give another "
                'file, or set data.source_language="" to train on text alone'
            )
        if is_decoder and not any(pairs.target):
            raise errors.UserError(
                f"the {name} set has no targets: all {len(pairs)} lines are blank; give another"
            )
        if not is_decoder and not all(examples_lib.held_out(pairs, config).values()):
            raise errors.UserError(
                f"train.objective={train.objective} makes no examples of the {len(pairs)} pairs of "
                f"the {name} set: give it more pairs, not all with the same target"
            )


def git_commit() -> str:
    """Returns the commit of the Git checkout that contains this file, or "" if there is none.

    "+changes" is appended if Python files differ from the commit.
    """
    here = pathlib.Path(__file__)

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here.parent), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    try:
        if not git("ls-files", "--", here.name):  # installed inside another checkout, or in none
            return ""
        commit = git("rev-parse", "HEAD")
        changes = git("status", "--porcelain", "--", ":(top)*.py")
    except FileNotFoundError:  # git is not installed
        return ""
    return f"{commit}+changes" if commit and changes else commit
