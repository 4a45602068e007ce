"""Our own training, input, evaluation and decoding, as the benchmarks' rows run them."""

import itertools
import os
import pathlib
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.benchmarks import measuring, worker, workloads
from transformer_jax import config as config_lib
from transformer_jax import errors, models, sequences
from transformer_jax.data import batching, tokenizer, vocabulary
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import memory, sharding
from transformer_jax.evaluation import evaluators
from transformer_jax.models import interface
from transformer_jax.runs import run_folder
from transformer_jax.training import step as step_lib

SIZES = {False: 2048, True: 8192}  # of the ceiling's matrices, on a CPU and on an accelerator
PARTS = (1, 2, 4, 8, 16)  # in which a batch may be computed
EXTRA = 10  # tokens of a translation more than of its source, where none ends of itself
BATCH = 32  # sentences translated together
FORCED_SOURCE, FORCED_LENGTH = 16, 48  # tokens, each with its end token, where ends are forced
FORCED_SENTENCES = 2 * BATCH  # of them, so that two workers have a batch each


def training(workload: str, batches: str, kind: str, dtype: str) -> worker.Contender:
    """Steps of a workload, over the batches of a kind in a file."""
    config = workloads.config(workload, kind, dtype)
    mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
    return steps(config, mesh, workloads.read(batches, kind))[0]


def steps(
    config: config_lib.Config, mesh: jax.sharding.Mesh, batches: Sequence[sequences.Batch]
) -> tuple[worker.Contender, int]:
    """Training steps over NumPy's batches in turn, and in how many parts: as few as memory allows.

    Raises UserError if a step does not fit in `PARTS[-1]` parts either.
    """
    start, there = time.perf_counter(), memory.of_device(mesh)
    model = models.build(config.model, config.data.vocab_size)
    for parts in PARTS:
        config = config_lib.replace(config, {"train.accumulation_steps": parts})
        program = step_lib.compile_step(model, config, mesh)
        needed = memory.of_program(program) or 0
        if there is None or needed <= there:
            break
    else:
        raise errors.UserError(f"a step does not fit into {there:,} bytes in {PARTS[-1]} parts")
    seconds = time.perf_counter() - start
    # A device's peak is of arrays, of which there are none yet; a process's is of all it has.
    before = measuring.peak_resident_bytes() if measuring.peak_device_bytes() is None else 0
    step = stepping(config, mesh, program, batches)
    said = {"compile_seconds": seconds, "program_bytes": needed, "predicted_bytes": before + needed}
    return worker.Contender(step, said), parts


def stepping(
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    program: jax.stages.Compiled,
    made: Sequence[sequences.Batch],
) -> Callable[[], Any]:
    """What takes one step of a new training after another, over NumPy's batches in turn."""
    batches = itertools.cycle([sharding.put(batch, mesh) for batch in made])
    taught_by, key = None, jax.random.key(0)
    if teacher := step_lib.teacher(config):
        params = nn.unbox(models.init(teacher, key))
        taught_by = jax.device_put(params, sharding.replicated(mesh))
    rest = (step_lib.hyperparameters(config, taught_by), key)
    model = models.build(config.model, vocabulary.size(config))
    state = step_lib.init_state(model, config, mesh)

    def step() -> Any:
        nonlocal state
        state, _ = program(state, next(batches), *rest)
        return state

    return step


def reading(workload: str, **corpus: str) -> worker.Contender:
    """Packed batches as training reads them, with nobody who trains on them."""
    config = config_lib.replace(workloads.config(workload), {"train.num_steps": 10**9})
    batches = workloads.packed(workloads.load(**corpus), config).from_step(0)
    return worker.Contender(lambda: next(batches), {})


def evaluation(workload: str, sentences: int, **corpus: str) -> worker.Contender:
    """Perplexity and beam search over some sentences, as at the end of a run."""
    config = config_lib.replace(workloads.config(workload), {"decode.extra_tokens": EXTRA})
    mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
    model = models.build(config.model, config.data.vocab_size)
    params = step_lib.init_state(model, config, mesh).params
    pairs = workloads.load(**corpus).dev.first(sentences)
    measure = evaluators.likelihoods(model, pairs.examples, config.data, mesh)
    assert isinstance(model, interface.Decoder), "a workload translates"
    search = beam_search.BeamSearch(endless(model), config.decode)

    def step() -> None:
        measure(params)
        for group in batching.padded_batches(pairs.source_ids, len(pairs.source_ids), 16):
            jax.block_until_ready(search(params, group.batch.source))

    return worker.Contender(step, {"sentences": sentences})


def ceiling(dtype: str) -> worker.Contender:
    """Products of two square matrices: what this machine's compiler makes of the best case."""
    size = SIZES[jax.default_backend() != "cpu"]
    matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
    product = jax.jit(lambda a: a @ a)
    return worker.Contender(lambda: product(matrix), {"flops": 2 * size**3})


def endless(model: interface.Decoder) -> Any:
    """A model that never ends a sentence: one that is not trained would never, or at once."""

    def apply(*arguments: Any, method: str) -> Any:
        found = model.apply(*arguments, method=method)
        if method != "decode_step":
            return found
        logits, state = found
        return logits.at[..., tokenizer.EOS].set(-jnp.inf), state

    return types.SimpleNamespace(apply=apply)


def load(run: str, sentences: str, forced: bool) -> tuple[translator.Translator, list[list[int]]]:
    """A trained run, and tokens, without end tokens, of sentences in a file, one a line.

    Where each translation is forced to have `FORCED_LENGTH` tokens, whatever the model says, all
    sources are cut to the same length.
    """
    loaded = run_folder.load(pathlib.Path(run))
    lines = pathlib.Path(sentences).read_text(encoding="utf-8").splitlines()
    sources = [tokens for tokens in loaded.tokenizer.encode(lines) if tokens]
    if not forced:
        return loaded, sources
    length = FORCED_SOURCE - 1
    long = [tokens[:length] for tokens in sources if len(tokens) >= length]
    return loaded, long[:FORCED_SENTENCES]


def translates(translate: Callable[[], Sequence[Sequence[int]]]) -> worker.Contender:
    """Translates all sentences at every step, into tokens without end tokens."""
    translations = translate()
    says = {"translations": translations, "sentences": len(translations)}
    return worker.Contender(translate, says)


def translating(run: str, sentences: str, forced: bool) -> worker.Contender:
    """Beam search of ours, as CTranslate2 searches; sentences side by side on all cores.

    Both have beam 4 and alpha 0.6, the length penalty being length^alpha.
    """
    trained, sources = load(run, sentences, forced)
    extra = FORCED_LENGTH - FORCED_SOURCE if forced else 50
    how = {"beam_size": 4, "alpha": 0.6, "penalty": "length", "extra_tokens": extra}
    changes = {f"decode.{name}": value for name, value in how.items()}
    changes["decode.batch_sentences"] = BATCH * (os.cpu_count() or 1)
    searching = translator.Translator(
        endless(trained.model) if forced else trained.model,
        trained.params,
        trained.tokenizer,
        config_lib.replace(trained.config, changes),
        sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1)),
    )

    def translate() -> list[list[int]]:
        found = {}
        for group in searching.search(sources):
            found |= group
        return [found[place] for place in range(len(found))]

    return translates(translate)
