"""Sweeps with made-up results, for tests of what is read, computed and shown of them."""

import dataclasses
import hashlib
import json
import pathlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from configs import toy
from experiments import table3
from experiments.results import comparison, frames
from experiments.sweep import store
from experiments.sweep import table as table_lib
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax.evaluation import bleu

_WORDS = "der die das Hund Katze sieht findet trägt heute nicht rote kleine Mann Frau Haus".split()
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
DIGESTS = {"corpus": "d" * 64, "tokenizer": "e" * 64}


@dataclasses.dataclass(frozen=True)
class Made:
    """A sweep to make up.

    Attributes:
      rows: the overrides of each row, base first.
      seeds: the number of runs of each row and variant.
      sentences: the number of sentences of each set.
      words: words that every sentence ends with.
      table: the name of the table.
      steps: the number of logged steps.
      base: the configuration of base; None for `base()`.
      tune: the field of --tune and its values.
      noise_floor: the value of --noise_floor.
      slope: the share of right words in the last row above that in the first.
      tested: whether runs are scored on a test set too.
    """

    rows: Mapping[str, Mapping[str, Any]]
    seeds: int = 2
    sentences: int = 12
    words: Sequence[str] = ()
    table: str = "table3"
    steps: int = 40
    base: config_lib.Config | None = None
    tune: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    noise_floor: int = 0
    slope: float = 0.3
    tested: bool = False


def base() -> config_lib.Config:
    """Returns a tiny base that Table 3 can be scaled from."""
    config = toy.get_config()
    config.update_from_flattened_dict(
        {**tiny.OVERRIDES, "model.num_layers": 3, "model.num_heads": 8, "model.d_model": 32,
         "model.d_ff": 32, "model.d_k": 8, "model.d_v": 8}
    )  # fmt: skip
    return config_lib.from_mapping(config.to_dict())


def some_rows() -> dict[str, Mapping[str, Any]]:
    """Returns four rows of Table 3."""
    rows = table3.rows_for(base())
    return {name: rows[name] for name in ("base", "A h=1", "D P_drop=0.0", "E")}


def make(workdir: pathlib.Path, made: Made, missing: Sequence[str] = ()) -> None:
    """Writes a sweep in which all rows but some have run.

    About half of the words of each translation are those of its reference, more in later rows.
    """
    description = store.Description(
        made.table,
        made.base or base(),
        made.rows,
        tune=made.tune,
        noise_floor=made.noise_floor,
    )
    names = {name: 0 for row in made.rows for name in {row: 0, **_variants(description, row)}}
    runs = [run_of(description, name, seed) for name in names for seed in range(made.seeds)]
    store.write(workdir, dataclasses.replace(description, runs=runs))
    draw = random.Random(0)
    sets = {
        split: [_sentence(draw, made.words) for _ in range(made.sentences)]
        for split in (("dev", "test") if made.tested else ("dev",))
    }
    for place, name in enumerate(names):
        for run in runs:
            if run.row == name and name not in missing:
                _write_run(workdir / store.folder_name(run), run, draw, place, sets, made)


def _variants(description: store.Description, row: str) -> dict[str, int]:
    return dict.fromkeys(description.variants(row).values(), 0)


def run_of(description: store.Description, row: str, seed: int) -> store.Run:
    """Returns the run of a row or variant with a seed."""
    config = config_lib.replace(description.config(row), {"train.seed": seed})
    texts = {k: v for k, v in description.overrides(row).items() if k.startswith("data.")}
    corpus = hashlib.sha256(repr(texts).encode()).hexdigest()
    return store.Run(row, seed, config_lib.fingerprint(config, {**DIGESTS, "corpus": corpus}))


def folder(workdir: pathlib.Path, row: str, seed: int = 0) -> pathlib.Path:
    """Returns the folder of a run."""
    return workdir / store.folder_name(run_of(store.read(workdir), row, seed))


def _sentence(draw: random.Random, words: Sequence[str]) -> str:
    chosen = [draw.choice(_WORDS) for _ in range(draw.randint(4, 20))]
    return " ".join([*chosen, *words])


def _write_run(
    path: pathlib.Path,
    run: store.Run,
    draw: random.Random,
    place: int,
    sets: Mapping[str, Sequence[str]],
    made: Made,
) -> None:
    path.mkdir(parents=True, exist_ok=True)
    record = {"config_hash": run.config_hash, "digests": DIGESTS}
    (path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    result = {"row": run.row, "seed": run.seed, "config_hash": run.config_hash}
    result |= _result(draw, place)
    if made.tested:
        result |= {"test_sha256": "f" * 64, "test": {"ppl": result["ppl"], "bleu": {}}}
    (path / "result.json").write_text(json.dumps(result), encoding="utf-8")
    right = 0.4 + made.slope * place / len(made.rows)
    for split, references in sets.items():
        set_counts(path, _write_texts(path, draw, references, right, split), split)
    curve = [
        json.dumps({"step": 10 * i, "loss": 5 / i, "ppl": 200 / i + 2, "dev_ppl": 90 / i})
        for i in range(1, made.steps + 1)
    ]
    (path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in curve))


def _write_texts(
    path: pathlib.Path,
    draw: random.Random,
    references: Sequence[str],
    right: float,
    split: str,
) -> list[list[int]]:
    """Writes the sentences of a set, and returns their counts for BLEU."""
    hypotheses, counts = [], []
    for reference in references:
        words = reference.split(" ")
        kept = round(len(words) * min(1, right + draw.random() / 2))
        translation = [*words[:kept], *(draw.choice(_WORDS) for _ in words[kept:])]
        hypotheses.append(" ".join(translation))
        matches = [max(0, kept - n) for n in range(4)]
        ngrams = [max(0, len(translation) - n) for n in range(4)]
        counts.append([len(translation), len(words), *matches, *ngrams])
    sources = [reference[::-1] for reference in references]
    texts = {"sources": sources, "references": references, "hypotheses": hypotheses}
    for name, lines in texts.items():
        content = "".join(f"{line}\n" for line in lines)
        file = path / f"{frames.SPLITS[split]}{name}.txt"
        file.write_text(content, encoding="utf-8", newline="")
    return counts


def set_counts(path: pathlib.Path, counts: Sequence[Sequence[int]], split: str = "dev") -> None:
    """Writes a run's counts for BLEU, and their score into its result.json."""
    name = f"{frames.SPLITS[split]}bleu_counts.json"
    (path / name).write_text(json.dumps({bleu.MAIN: np.array(counts).tolist()}))
    result = json.loads((path / "result.json").read_bytes())
    one_set = result if split == "dev" else result["test"]
    score = bleu.from_counts(np.sum(counts, 0), bleu.MAIN)
    one_set["bleu"][bleu.MAIN] = {"signature": SIGNATURE, "score": score}
    change(path, **result)


def _result(draw: random.Random, place: int) -> dict[str, Any]:
    score = 20 + place + draw.random()  # of sentences by length
    return {
        "params": 1_000_000 + 10_000 * place,
        "steps": 12,
        "ppl": 5 - place / 10 + draw.random() / 10,
        "bleu": {},
        "bleu_by_length": [
            {"tokens": "1-6", "sentences": 30, "score": score + 3},
            {"tokens": "7-30", "sentences": 40, "score": score - 3},
        ],
        "wall_seconds": 60.0 + place,
        "tokens_per_second": 1234.5,
        "git_commit": "c0ffee" * 6,
        "data_sha256": "d" * 64,
        "tokenizer_sha256": "e" * 64,
        "test_sha256": "",
        "data": {"languages": ["en", "de"]},
        "decode": {"beam_size": 4, "alpha": 0.6},
        "devices": ["cpu"],
        "versions": {"jax": "0.10"},
    }


def of_runs(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    rows: Mapping[str, Mapping[str, Any]] | None = None,
    lengths: Sequence[Mapping[str, Any]] = (),
    failed: Sequence[str] = (),
    configuration: config_lib.Config | None = None,
    table: str = "mine",
) -> frames.Sweep:
    """Returns a sweep of runs, without files.

    Args:
      runs: for each row, or variant of it, the columns of its runs.
      rows: the overrides of each row; None for the rows of `runs` without any.
      lengths: lines of `frames.Sweep.lengths`, in which the row and the seed name the run.
      failed: rows with a failed run.
      configuration: that of base; None for `base()`.
      table: the name of the table.
    """
    rows = {row: {} for row in runs} if rows is None else rows
    description = store.Description(table, configuration or base(), rows)
    lines = [
        {"row": row, "seed": seed, "config_hash": f"{row} {seed}", **columns}
        for row, each in runs.items()
        for seed, columns in enumerate(each)
    ]
    first = ["row", "seed", "config_hash"]
    measured = [{**line, "config_hash": f"{line['row']} {line['seed']}"} for line in lengths]
    failures = [{"row": row, "seed": 9, "config_hash": "", "error": "diverged"} for row in failed]
    length_columns = ["unit", "bucket", "beyond_training", "sentences", "score"]
    sweep = frames.Sweep(
        pathlib.Path("made_up"),
        description,
        pd.DataFrame(lines) if lines else pd.DataFrame(columns=[*first, "ppl", "params"]),
        pd.DataFrame(columns=[*first, "step"]),
        pd.DataFrame(measured, columns=[*first, *length_columns]),
        pd.DataFrame(failures, columns=[*first, "error"]),
        pd.DataFrame(columns=first),
        {line["config_hash"]: pathlib.Path("made_up") for line in lines},
    )
    for line in lines:
        scores = {name: line.get(name) for name in ("bleu", "test_bleu")}
        sweep._statistics[line["config_hash"]] = {
            name: _counts_of(score) for name, score in scores.items() if score is not None
        }
    return sweep


def _counts_of(score: float) -> np.ndarray:
    """Returns counts of two equal sentences of 10,000 words with a BLEU of two decimals."""
    right, words = round(100 * score), 10_000
    return np.array([[words] * 2 + [right] * 4 + [words] * 4] * 2)


def without_counts(sweep: frames.Sweep, table: table_lib.Table) -> comparison.Comparison:
    """Returns the comparison of a sweep whose runs have no counts of their sentences."""
    nothing = comparison.OneSet(0)
    rows = comparison._frame(sweep, table, nothing, None, {}, {})
    return comparison.Comparison(sweep, table, rows, nothing, None, {}, {})


def add_seeds(workdir: pathlib.Path, row: str, seeds: int) -> None:
    """Adds runs like a row's first, each with a word fewer right in every sentence."""
    description = store.read(workdir)
    first = folder(workdir, row)
    runs = [run for run in description.runs if run.row != row or run.seed >= seeds]
    for seed in range(seeds):
        run = run_of(description, row, seed)
        runs.append(run)
        path = workdir / store.folder_name(run)
        if seed == 0 or path == first:
            continue
        path.mkdir(parents=True, exist_ok=True)
        for file in first.iterdir():
            (path / file.name).write_bytes(file.read_bytes())
        record = {"config_hash": run.config_hash, "digests": DIGESTS}
        (path / "run.json").write_text(json.dumps(record), encoding="utf-8")
        change(path, config_hash=run.config_hash, seed=seed)
        for split, prefix in frames.SPLITS.items():
            file = path / f"{prefix}bleu_counts.json"
            if file.exists():
                counts = np.array(json.loads(file.read_bytes())[bleu.MAIN])
                counts[:, 2:6] = np.maximum(counts[:, 2:6] - seed, 0)
                set_counts(path, counts.tolist(), split)
    store.write(workdir, dataclasses.replace(description, runs=runs))


def spoil(path: pathlib.Path) -> None:
    """Makes nearly all words of a run's translations wrong."""
    for split, prefix in frames.SPLITS.items():
        file = path / f"{prefix}bleu_counts.json"
        if file.exists():
            counts = json.loads(file.read_bytes())[bleu.MAIN]
            set_counts(path, [[*line[:2], 1, 0, 0, 0, *line[6:]] for line in counts], split)


def describe(workdir: pathlib.Path, **fields: Any) -> None:
    """Replaces fields of a sweep's description."""
    store.write(workdir, dataclasses.replace(store.read(workdir), **fields))


def fail(workdir: pathlib.Path, row: str, seed: int, error: str) -> None:
    """Writes what a failed run leaves in the place of a run."""
    description = store.read(workdir)
    run = run_of(description, row, seed)
    path = workdir / store.folder_name(run)
    path.mkdir(parents=True, exist_ok=True)
    (path / "result.json").unlink(missing_ok=True)
    failure = {"error": error, "traceback": error, "step": 3}
    (path / "failure.json").write_text(json.dumps(failure), encoding="utf-8")
    if run not in description.runs:
        describe(workdir, runs=[*description.runs, run])


def change(path: pathlib.Path, **fields: Any) -> None:
    """Replaces fields of a run's result.json."""
    result = json.loads((path / "result.json").read_bytes())
    (path / "result.json").write_text(json.dumps({**result, **fields}), encoding="utf-8")
