"""One whole run: data, model, training and evaluation, in a folder (`run_folder`)."""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, final

import jax

from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files, models, paper
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import examples as examples_lib
from transformer_jax.data import objectives, vocabulary
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import hosts, preemption, sharding
from transformer_jax.evaluation import bleu, evaluators, whole_texts
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
    """Trains and evaluates one run, or goes on with one that was stopped.

    Args:
      config: the run.
      workdir: its folder; its files are listed in docs/reference/files.md.
      cache_dir: where tokenizers, encoded corpora and compiled programs are shared.
      table_row: its name in a table.
      overrides: what it changes against the config file, for the record.
      profile: whether to write a JAX trace of a few steps.
      project: where the run is shown.

    Returns:
      What stands in its result.json.

    Raises:
      UserError: the config cannot be run, or the folder holds a run of another config.
      RunError: the loss is no number any more, or the run was told to stop.
    """
    mesh = sharding.make_mesh(config.mesh)

    def load() -> dataset_lib.Dataset:
        files.make_folder(workdir, "the run's folder")
        files.make_folder(cache_dir, "the cache's folder")
        dataset = dataset_lib.load(config.data, cache_dir)
        check(config, mesh, dataset)
        return dataset

    dataset = hosts.first_alone(load)
    _require_same_data(dataset)
    result = workdir / "result.json"
    with contextlib.ExitStack() as lock:

        def claim() -> tuple[str, bool]:
            lock.enter_context(run_folder.only_run_in(workdir))
            digest = run_folder.claim(workdir, config, dataset)
            if not result.exists():
                metrics.read(workdir)  # a damaged one is refused before all else
                (workdir / "failure.json").unlink(missing_ok=True)
            return digest, result.exists()

        digest, done = hosts.from_first(claim)
        if done:
            _log.info("%s is there already: nothing is left to do", result)
        else:
            model = models.build(config.model, vocabulary.size(config))
            about = {"row": table_row, "overrides": dict(overrides or {}), "config_hash": digest}
            _Run(config, mesh, model, dataset, workdir).train_and_evaluate(about, project, profile)
        hosts.from_first(lambda: None)  # the first has written the result
    return run_folder.read_result(workdir)


def _require_same_data(dataset: dataset_lib.Dataset) -> None:
    """Raises UserError unless this process has read what the first has."""
    for name, digest in hosts.from_first(lambda: dict(dataset.digests)).items():
        if dataset.digests[name] != digest:
            raise errors.UserError(
                f"this process has not the first one's {name}: it has read "
                f"{dataset.digests[name][:16]}…, the first {digest[:16]}…; compare the files and "
                "the --cache_dir of both"
            )


@final
@dataclasses.dataclass(frozen=True)
class _Run:
    """A run that can be trained."""

    config: config_lib.Config
    mesh: jax.sharding.Mesh
    model: interface.Architecture
    dataset: dataset_lib.Dataset
    workdir: files.Path

    def train_and_evaluate(
        self, about: Mapping[str, Any], project: tracking.Project, profile: bool
    ) -> None:
        """Trains, evaluates and writes the result, with what is said about it besides.

        What fails leaves failure.json.
        """
        config, mesh, workdir = self.config, self.mesh, self.workdir
        for line in paper.deviations(config):
            _log.info("not the paper's: %s", line)
        if config.model.attention_kernel != kernels.PLAIN:
            _log.info("attention kernels: %s", kernels.describe(config, type(self.model)))
        dev_likelihoods = self._likelihoods(self.dataset.dev)
        other = functools.partial(starting_weights.read, config, mesh, self.dataset.tokenizer)
        tracker = None
        if project.name and hosts.is_first():
            name = f"{about['row'] or workdir.name}, seed {config.train.seed}"
            tracker = tracking.Tracker(project, name, workdir, config, about["config_hash"])
        try:
            if starting_weights.are_read(config, workdir):
                # What is missing is named now, not once the step is compiled.
                starting_weights.require(config, self.dataset.tokenizer)
            state, wall_seconds = loop.train(
                self.model,
                self.dataset,
                config,
                mesh,
                workdir,
                lambda params: dev_likelihoods(params).perplexity,
                tracker,
                profile,
                lambda state: starting_weights.start(state, config, other),
                starting_weights.teacher(config, mesh, other),
            )
            found = self._evaluate(state.params, wall_seconds, dev_likelihoods)
            if hosts.is_first():
                result = {**about, "seed": config.train.seed, **found}
                score = result.get("bleu", {}).get(bleu.MAIN, {}).get("score")
                tensorboard.write_result(workdir, config, result["ppl"], score)
                files.write_json(workdir / "result.json", result)
        except preemption.PreemptedError:
            raise
        except Exception as error:
            hosts.await_peer_failure(error)
            if hosts.is_first():
                try:
                    run_folder.record_failure(workdir, error)
                except Exception as another:  # the first is raised
                    _log.warning("%s could not be left: %s", workdir / "failure.json", another)
            raise
        finally:
            if tracker:
                is_done = (workdir / "result.json").exists()
                tracker.close(run_folder.read_result(workdir) if is_done else None)

    def _likelihoods(self, pairs: dataset_lib.HeldOut) -> Callable[[Any], evaluators.Likelihoods]:
        """Returns a function from parameters to the likelihoods of a set.

        They are those of translations or, for an encoder-only model, of hidden words.
        """
        if isinstance(self.model, interface.Decoder):
            return evaluators.likelihoods(self.model, pairs.examples, self.config.data, self.mesh)
        return whole_texts.likelihoods(self.model, pairs, self.config, self.mesh)

    def _evaluate(
        self,
        params: Any,
        wall_seconds: float,
        dev_likelihoods: Callable[[Any], evaluators.Likelihoods],
    ) -> dict[str, Any]:
        """What the result says of trained parameters, in the first process."""
        config, dataset, model = self.config, self.dataset, self.model
        if config.evaluation.average_checkpoints > 1:
            params = run_folder.restore_params(config, self.mesh, self.workdir, dataset.tokenizer)
        sets = evaluators.held_out(dataset, config)
        likelihoods = {
            name: dev_likelihoods if name == "dev" else self._likelihoods(pairs)
            for name, (pairs, _) in sets.items()
        }
        if isinstance(model, interface.Decoder):
            translate = translator.Translator(model, params, dataset.tokenizer, config, self.mesh)
            scored = self._translations(sets, likelihoods, translate)
        else:
            scored = {
                name: whole_texts.score(
                    name, model, params, pairs, likelihoods[name], config, self.mesh, self.workdir
                )
                for name, (pairs, _) in sets.items()
            }
        if not hosts.is_first():
            return {}
        seconds = sum(each["eval_seconds"] for each in scored.values())
        others = {
            direction: {
                **scored.pop(direction),
                **({"test": scored.pop(test)} if (test := f"{direction}_test") in scored else {}),
            }
            for direction in dataset.directions
        }
        speed = metrics.tokens_per_second(self.workdir)
        writes = isinstance(model, interface.Decoder)  # others count the labels that they are asked
        return {
            "params": sum(leaf.size for leaf in jax.tree.leaves(params)),
            "steps": config.train.num_steps,
            **scored.pop("dev"),
            **scored,
            **({"directions": others} if others else {}),
            "tokens_per_second": speed,
            **evaluators.lengths(dataset, speed if writes else None),
            "wall_seconds": wall_seconds + seconds,
            "git_commit": git_commit(),
            **measured_on(config, dataset),
            "devices": [device.device_kind for device in jax.devices()],
            "versions": {"jax": jax.__version__},
        }

    def _translations(
        self,
        sets: Mapping[str, tuple[dataset_lib.HeldOut, str]],
        likelihoods: Mapping[str, Callable[[Any], evaluators.Likelihoods]],
        translate: translator.Translator,
    ) -> dict[str, Any]:
        """Perplexity and BLEU of each set, of the development set by length too; first process."""
        measured = {
            name: evaluators.measure(pairs, translate, likelihoods[name])
            for name, (pairs, _) in sets.items()
        }
        if not hosts.is_first():
            return {}
        scored = {
            name: evaluators.score(name, pairs, measured[name], language, self.workdir)
            for name, (pairs, language) in sets.items()
        }
        width = self.config.log.bucket_tokens
        scored["dev"] |= evaluators.by_length(self.dataset, measured["dev"].hypotheses, width)
        return scored


def measured_on(config: config_lib.Config, dataset: dataset_lib.Dataset) -> dict[str, Any]:
    """What a result says of data and decoding, which is known before anything is trained."""
    return {
        "data_sha256": dataset.digests["corpus"],
        "tokenizer_sha256": dataset.digests["tokenizer"],
        "test_sha256": dataset.digests["test"] if config.evaluation.score_test else "",
        "data": dict(dataset.provenance),
        "decode": dataclasses.asdict(config.decode),
    }


def check(config: config_lib.Config, mesh: jax.sharding.Mesh, dataset: dataset_lib.Dataset) -> None:
    """Finds what makes a configuration impossible, before anything is written or compiled.

    Raises:
      UserError: a kind is unknown, sizes do not suit kinds, mesh or corpus, or learned positions
        do not reach the longest sentence that will be read or written.
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
        data, kind = config.data, objectives.KINDS.get(config.train.objective)
        if isinstance(model, interface.Decoder):  # others write nothing, and read target rows alone
            target = max(source + config.decode.extra_tokens, target, data.target_length)
            source = max(source, data.source_length)
        joined = model.one_sequence or (kind is not None and kind.reads != "sentence")
        needed = max(source + target if joined else max(source, target), data.target_length)
        if config.model.max_positions < needed:
            raise errors.UserError(
                f"model.position={config.model.position} needs model.max_positions of at least "
                f"{needed} for this corpus, but it is {config.model.max_positions}"
            )


def _check_objective(
    config: config_lib.Config, model: interface.Architecture, dataset: dataset_lib.Dataset
) -> None:
    """Raises UserError unless a model can be trained on the config's objective, and scored."""
    train, writes = config.train, isinstance(model, interface.Decoder)
    fields.require_known("train.objective", train.objective, (objectives.NONE, *objectives.KINDS))
    in_place = [name for name, kind in objectives.KINDS.items() if kind.in_place]
    if writes and train.objective in in_place:
        raise errors.UserError(
            f"train.objective={train.objective} is for a model of whole texts, as "
            f"model.architecture=encoder, not for {config.model.architecture}"
        )
    if not writes and (train.objective not in in_place or train.objective_steps < train.num_steps):
        raise errors.UserError(
            f"model.architecture={config.model.architecture} writes no sentences: it needs a "
            f"train.objective of {', '.join(in_place)}, for all its train.num_steps (set "
            f"train.objective_steps={train.num_steps})"
        )
    kind = objectives.KINDS.get(train.objective)
    if kind and kind.in_sight and model.needs_masks:
        hiding = [name for name in in_place if not objectives.KINDS[name].in_sight]
        raise errors.UserError(
            f"train.objective={train.objective} asks for words that model.architecture="
            f"{config.model.architecture} sees: set it to one of {', '.join(hiding)}"
        )
    for name, (pairs, _) in evaluators.held_out(dataset, config).items():
        if writes and all(dataset.provenance["languages"]) and not any(pairs.source):
            raise errors.UserError(
                f"the {name} set has no sources: all {len(pairs)} lines are blank; give another "
                'file, or set data.source_language="" to train on text alone'
            )
        if writes and not any(pairs.target):
            raise errors.UserError(
                f"the {name} set has no targets: all {len(pairs)} lines are blank; give another"
            )
        if not writes and not all(examples_lib.held_out(pairs, config).values()):
            raise errors.UserError(
                f"train.objective={train.objective} finds nothing to ask of the {len(pairs)} pairs "
                f"of the {name} set: give it more of them, not all with the same target"
            )


def git_commit() -> str:
    """The checkout's commit, with "+changes" if Python files differ from it; "" outside one."""
    here = pathlib.Path(__file__)

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here.parent), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    try:
        # Installed into another checkout, this file is none of its own.
        commit = git("ls-files", "--", here.name) and git("rev-parse", "HEAD")
        changes = commit and git("status", "--porcelain", "--", ":(top)*.py")
        return commit + "+changes" * bool(changes)
    except FileNotFoundError:  # no git on this machine
        return ""
