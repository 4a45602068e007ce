"""One whole run: data, model, training and evaluation, in a folder (`run_folder`)."""

import contextlib
import dataclasses
import logging
import pathlib
import subprocess
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from transformer_jax import config as config_lib
from transformer_jax import errors, files, models, paper
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import hosts, preemption, sharding
from transformer_jax.evaluation import bleu, evaluators, perplexity
from transformer_jax.models import kernels, positions, recurrent_cells
from transformer_jax.runs import run_folder, trained
from transformer_jax.training import loop, metrics, tensorboard, tracking
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)


def run(
    config: config_lib.Config,
    workdir: files.Path,
    cache_dir: pathlib.Path,
    *,
    row: str = "",
    overrides: Mapping[str, Any] | None = None,
    profile: bool = False,
) -> dict[str, Any]:
    """Trains and evaluates one run, or goes on with one that was stopped.

    Args:
      config: the run.
      workdir: its folder; its files are listed in docs/operations.md.
      cache_dir: where tokenizers, encoded corpora and compiled programs are shared.
      row: its name in a table.
      overrides: what it changes against the config file, for the record.
      profile: whether to write a JAX trace of a few steps.

    Returns:
      What stands in its result.json.

    Raises:
      UserError: the config cannot be run, or the folder holds a run of another config.
    """
    workdirs = {config.train.seed: workdir}
    return run_seeds(config, workdirs, cache_dir, row=row, overrides=overrides, profile=profile)[
        config.train.seed
    ]


def run_seeds(
    config: config_lib.Config,
    workdirs: Mapping[int, files.Path],
    cache_dir: pathlib.Path,
    *,
    row: str = "",
    overrides: Mapping[str, Any] | None = None,
    profile: bool = False,
    project: tracking.Project = tracking.NONE,
) -> dict[int, dict[str, Any]]:
    """As `run`, for several seeds of one config, which are trained in one program.

    A seed that fails leaves its failure.json; the others go on without it.

    Args:
      config: the runs; its own seed does not count.
      workdirs: each seed's folder.
      cache_dir: as in `run`.
      row: as in `run`.
      overrides: as in `run`.
      profile: as in `run`.
      project: where the runs are shown.

    Returns:
      What stands in each seed's result.json.

    Raises:
      UserError: as in `run`.
      RunError: a seed's loss is no number any more, and the others are done; or the run was told
        to stop.
    """
    mesh = sharding.make_mesh(config.mesh)
    with hosts.first_alone():
        try:
            for folder in (cache_dir, *workdirs.values()):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.UserError(f"cannot make the run's folder: {error}") from error
        dataset = dataset_lib.load(config.data, cache_dir)
        check(config, mesh, dataset)
    _require_same_data(dataset)
    with contextlib.ExitStack() as locks:

        def claim() -> list[str]:
            for workdir in workdirs.values():
                locks.enter_context(run_folder.only_run_in(workdir))
            hashes = [
                run_folder.claim(workdir, config_lib.replace(config, {"train.seed": seed}), dataset)
                for seed, workdir in workdirs.items()
            ]
            for workdir in _without_result(workdirs).values():
                metrics.read(workdir)  # a damaged one is refused before anything is computed
                (workdir / "failure.json").unlink(missing_ok=True)
            return hashes

        hashes = dict(zip(workdirs, hosts.from_first(claim), strict=True))
        waiting = _without_result(workdirs)
        for seed in workdirs.keys() - waiting.keys():
            done = workdirs[seed] / "result.json"
            _log.info("%s is there already: nothing is left to do", done)
        if waiting:
            about = {"row": row, "overrides": dict(overrides or {})}
            with _tracked(project, row, config, waiting, hashes) as trackers:
                _run_waiting(config, mesh, dataset, waiting, hashes, about, trackers, profile)
        hosts.from_first(lambda: None)  # the first has written the results
    return {seed: run_folder.read_result(workdir) for seed, workdir in workdirs.items()}


@contextlib.contextmanager
def _tracked(
    project: tracking.Project,
    row: str,
    config: config_lib.Config,
    workdirs: Mapping[int, files.Path],
    hashes: Mapping[int, str],
) -> Iterator[dict[int, tracking.Tracker]]:
    """What shows each seed's run in a project, in the first process; in the end, its result too."""
    trackers: dict[int, tracking.Tracker] = {}
    try:
        for seed, workdir in workdirs.items() if project.name and hosts.is_first() else ():
            seeded = config_lib.replace(config, {"train.seed": seed})
            name = f"{row or workdir.name}, seed {seed}"
            trackers[seed] = tracking.Tracker(project, name, workdir, seeded, hashes[seed])
        yield trackers
    finally:
        for seed, tracker in trackers.items():
            is_done = (workdirs[seed] / "result.json").exists()
            tracker.close(run_folder.read_result(workdirs[seed]) if is_done else None)


def _require_same_data(dataset: dataset_lib.Dataset) -> None:
    """Raises UserError unless this process has read what the first has."""
    for name, digest in hosts.from_first(lambda: dict(dataset.digests)).items():
        if dataset.digests[name] != digest:
            raise errors.UserError(
                f"this process has not the first one's {name}: it has read "
                f"{dataset.digests[name][:16]}…, the first {digest[:16]}…; compare the files and "
                "the --cache_dir of both"
            )


def _run_waiting(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    dataset: dataset_lib.Dataset,
    workdirs: Mapping[int, files.Path],
    hashes: Mapping[int, str],
    about: Mapping[str, Any],
    trackers: Mapping[int, tracking.Tracker],
    profile: bool,
) -> None:
    """Trains seeds together, evaluates one after another, and writes their results.

    Args:
      config: the runs.
      mesh: the devices.
      dataset: what to train and evaluate on.
      workdirs: each seed's folder.
      hashes: each seed's config hash.
      about: what every result says besides.
      trackers: each is told the metrics of a seed.
      profile: whether to write a JAX trace.

    Raises:
      Exception: what the first seed to fail met.
    """
    for line in paper.deviations(config):
        _log.info("not the paper's: %s", line)
    if config.model.attention_kernel != kernels.PLAIN:
        if len(workdirs) > 1:
            raise errors.UserError(
                f"model.attention_kernel={config.model.attention_kernel} trains one seed at a time"
            )
        _log.info("attention kernels: %s", kernels.describe(config))
    model = models.build(config.model, config.data.vocab_size)
    encode = dataset.tokenizer.encode
    dev_perplexity = perplexity.build(
        model, encode(dataset.dev.source), encode(dataset.dev.target), config.data, mesh
    )
    waiting = dict(workdirs)
    failed: list[Exception] = []

    def fail(seed: int, error: Exception) -> None:
        workdir = waiting.pop(seed)
        if hosts.is_first():
            try:
                run_folder.record_failure(workdir, error)
            except Exception as another:  # the first is raised below
                _log.warning("%s could not be left: %s", workdir / "failure.json", another)
        traceback.clear_frames(error.__traceback__)  # they hold the state of all seeds
        failed.append(error)

    trained: dict[int, tuple[step_lib.TrainState, float]] = {}
    while waiting and not trained:
        try:
            trained = loop.train(
                model, dataset, config, mesh, waiting, dev_perplexity, trackers, profile
            )
        except loop.DivergedError as error:
            fail(error.seed, error)
        except preemption.PreemptedError:
            raise
        except Exception as error:
            hosts.blame(error)
            for seed in list(waiting):
                fail(seed, error)
    together = list(waiting)
    for seed in together:
        try:
            result = {
                **about,
                "seed": seed,
                "seeds_together": together,
                **_evaluate(config, mesh, dataset, waiting[seed], *trained[seed], dev_perplexity),
                "config_hash": hashes[seed],
            }
            if hosts.is_first():
                seeded = config_lib.replace(config, {"train.seed": seed})
                score = result["bleu"][bleu.MAIN]["score"]
                tensorboard.write_result(waiting[seed], seeded, result["ppl"], score)
                files.write_json(waiting[seed] / "result.json", result)
        except Exception as error:
            hosts.blame(error)
            fail(seed, error)
            if hosts.are_several() and not isinstance(error, errors.RunError):
                raise  # the others are still at this seed
    if failed:
        raise failed[0]


def _without_result(workdirs: Mapping[int, files.Path]) -> dict[int, files.Path]:
    """The seeds that are still to be run."""
    waiting: dict[int, files.Path] = {}
    for seed, workdir in workdirs.items():
        if not (workdir / "result.json").exists():
            waiting[seed] = workdir
    return waiting


def check(config: config_lib.Config, mesh: jax.sharding.Mesh, dataset: dataset_lib.Dataset) -> None:
    """Finds what makes a configuration impossible, before anything is written or compiled.

    Raises:
      UserError: a kind is unknown, sizes do not suit kinds, mesh or corpus, or learned positions
        do not reach the longest sentence that will be read or written.
    """
    model = models.build(config.model, config.data.vocab_size)
    config_lib.require_known("decode.penalty", config.decode.penalty, beam_search.PENALTIES)
    if config.train.scheduled_sampling and config.model.architecture not in recurrent_cells.CELLS:
        raise errors.UserError(
            f"train.scheduled_sampling={config.train.scheduled_sampling} needs a recurrent "
            f"model.architecture ({', '.join(recurrent_cells.CELLS)}), not "
            f"{config.model.architecture}"
        )
    if config.evaluation.score_test and not len(dataset.test):
        raise errors.UserError(
            "evaluation.score_test=True, but the corpus has no test set: data.test is empty"
        )
    loop.make_batches(dataset, config, mesh)
    step_lib.state_shapes_and_shardings(model, config, mesh)
    if positions.KINDS[config.model.position].bounded:
        source, target = dataset_lib.longest(dataset)
        data = config.data
        needed = max(
            source + config.decode.extra_tokens, target, data.source_length, data.target_length
        )
        if config.model.max_positions < needed:
            raise errors.UserError(
                f"model.position={config.model.position} needs model.max_positions of at least "
                f"{needed} for this corpus, but it is {config.model.max_positions}"
            )


def _evaluate(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    dataset: dataset_lib.Dataset,
    workdir: files.Path,
    state: step_lib.TrainState,
    wall_seconds: float,
    dev_perplexity: Callable[[Any], float],
) -> dict[str, Any]:
    """Perplexity and BLEU of a trained run, and what else its result says, in the first process."""
    model = models.build(config.model, config.data.vocab_size)
    params, encode = state.params, dataset.tokenizer.encode
    if config.evaluation.average_checkpoints > 1:
        params = trained.restore_params(model, config, mesh, workdir, dataset.tokenizer)
    translate = translator.Translator(model, params, dataset.tokenizer, config, mesh)
    measured = {"dev": evaluators.measure(dataset.dev, translate, dev_perplexity)}
    if config.evaluation.score_test:
        test = dataset.test
        of_test = perplexity.build(
            model, encode(test.source), encode(test.target), config.data, mesh
        )
        measured["test"] = evaluators.measure(test, translate, of_test)
    if not hosts.is_first():
        return {}
    language = config.data.target_language
    scored = {
        name: evaluators.score(name, getattr(dataset, name), each, language, workdir)
        for name, each in measured.items()
    }
    return {
        "params": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "steps": config.train.num_steps,
        **scored.pop("dev"),
        **scored,
        **evaluators.by_length(dataset, measured["dev"].hypotheses, config.log.bucket_tokens),
        "tokens_per_second": metrics.tokens_per_second(workdir),
        "wall_seconds": wall_seconds + sum(each.seconds for each in measured.values()),
        "git_commit": git_commit(),
        "data_sha256": dataset.digests["corpus"],
        "tokenizer_sha256": dataset.digests["tokenizer"],
        "test_sha256": dataset.digests["test"] if config.evaluation.score_test else "",
        "data": dict(dataset.provenance),
        "decode": dataclasses.asdict(config.decode),
        "devices": [device.device_kind for device in jax.devices()],
        "versions": {"jax": jax.__version__},
    }


def git_commit() -> str:
    """The checkout's commit, with "+changes" if files differ from it; "" outside a checkout."""
    folder = pathlib.Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return commit + ("+changes" if commit and git("status", "--porcelain") else "")
    except FileNotFoundError:  # no git on this machine
        return ""
