"""Sweeps with made-up results, for tests of reports: nothing is trained."""

import dataclasses
import json
import pathlib
import random
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs import toy
from experiments import table3
from experiments.sweep import results
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax.evaluation import bleu

_WORDS = "der die das Hund Katze sieht findet trägt heute nicht rote kleine Mann Frau Haus".split()
_SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


@dataclasses.dataclass(frozen=True)
class Made:
    """What to make up.

    Attributes:
      rows: each row's overrides.
      seeds: runs of each row.
      sentences: of the development set.
      words: that a sentence has besides.
      table: the sweep's.
      steps: logged steps.
      base: None: `base()`.
    """

    rows: Mapping[str, Mapping[str, Any]]
    seeds: int = 2
    sentences: int = 12
    words: Sequence[str] = ()
    table: str = "table3"
    steps: int = 40
    base: config_lib.Config | None = None


def base() -> config_lib.Config:
    """A tiny base that Table 3 can be scaled from."""
    config = toy.get_config()
    config.update_from_flattened_dict(
        {**tiny.OVERRIDES, "model.num_layers": 3, "model.num_heads": 8, "model.d_model": 32,
         "model.d_ff": 32, "model.d_k": 8, "model.d_v": 8}
    )  # fmt: skip
    return config_lib.from_mapping(config.to_dict())


def some_rows() -> dict[str, Mapping[str, Any]]:
    """Three rows of Table 3, and one that nobody has run."""
    rows = table3.rows_for(base())
    return {name: rows[name] for name in ("base", "A h=1", "D P_drop=0.0", "E")}


def make(workdir: pathlib.Path, made: Made, missing: Sequence[str] = ()) -> None:
    """Writes a sweep of which all rows but some have been run.

    Each run has right about half of the words of each reference, the more the later its row comes.
    """
    draw = random.Random(0)
    references = [_sentence(draw, made.words) for _ in range(made.sentences)]
    sources = [f"{reference[::-1]} {draw.choice(_WORDS)}" for reference in references]
    record = {
        "table": made.table,
        "base": config_lib.to_dict(made.base or base()),
        "rows": made.rows,
        "tune": {},
    }
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "sweep.json").write_text(json.dumps(record), encoding="utf-8")
    for place, name in enumerate(made.rows):
        for seed in range(0 if name in missing else made.seeds):
            folder = results.cell_folder(workdir, name, seed)
            folder.mkdir(parents=True)
            right = 0.4 + 0.3 * place / len(made.rows)
            counts = _write_run(folder, draw, sources, references, right)
            result = {"row": name, "seed": seed, **_result(draw, place)}
            metrics = [
                json.dumps({"step": 10 * i, "loss": 5 / i, "ppl": 200 / i + 2, "dev_ppl": 90 / i})
                for i in range(1, made.steps + 1)
            ]
            (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
            keep_counts(folder, counts)
            (folder / "metrics.jsonl").write_text("".join(f"{m}\n" for m in metrics))


def _sentence(draw: random.Random, words: Sequence[str]) -> str:
    chosen = [draw.choice(_WORDS) for _ in range(draw.randint(4, 20))]
    return " ".join([*chosen, *words])


def _write_run(
    folder: pathlib.Path,
    draw: random.Random,
    sources: Sequence[str],
    references: Sequence[str],
    right: float,
) -> list[list[int]]:
    """Writes sentences, and returns their counts for BLEU."""
    hypotheses, counts = [], []
    for reference in references:
        words = reference.split(" ")
        kept = round(len(words) * min(1, right + draw.random() / 2))
        said = [*words[:kept], *(draw.choice(_WORDS) for _ in words[kept:])]
        hypotheses.append(" ".join(said))
        matches = [max(0, kept - n) for n in range(4)]
        all_ngrams = [max(0, len(said) - n) for n in range(4)]
        counts.append([len(said), len(words), *matches, *all_ngrams])
    for name, lines in (
        ("sources", sources),
        ("references", references),
        ("hypotheses", hypotheses),
    ):
        content = "".join(f"{line}\n" for line in lines)
        (folder / f"{name}.txt").write_text(content, encoding="utf-8", newline="")
    return counts


def keep_counts(folder: pathlib.Path, counts: Sequence[Sequence[int]], of: str = "dev") -> None:
    """Writes a run's counts for BLEU, and the score that they give into its result.json."""
    name = {"dev": "", "test": "test_"}[of] + "bleu_counts.json"
    (folder / name).write_text(json.dumps({bleu.MAIN: np.array(counts).tolist()}))
    result = json.loads((folder / "result.json").read_bytes())
    own = result if of == "dev" else result.setdefault("test", {"ppl": result["ppl"], "bleu": {}})
    score = bleu.from_counts(np.sum(counts, 0), bleu.MAIN)
    own["bleu"].setdefault(bleu.MAIN, {"signature": _SIGNATURE})["score"] = score
    change(folder, **result)


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
        "config_hash": f"{place:064x}",
    }


def add_seeds(workdir: pathlib.Path, row: str, seeds: int) -> None:
    """More runs like a row's first, each with a word fewer right in every sentence."""
    first = results.cell_folder(workdir, row, 0)
    for seed in range(1, seeds):
        folder = shutil.copytree(first, first.with_name(f"seed{seed}"), dirs_exist_ok=True)
        counts = np.array(json.loads((folder / "bleu_counts.json").read_bytes())[bleu.MAIN])
        counts[:, 2:6] = np.maximum(counts[:, 2:6] - seed, 0)
        keep_counts(folder, counts.tolist())


def set_record(workdir: pathlib.Path, **fields: Any) -> None:
    """Writes other values into a sweep.json."""
    path = workdir / "sweep.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **fields}), encoding="utf-8")


def fail(workdir: pathlib.Path, row: str, seed: int, error: str) -> None:
    """Leaves what a run that has failed leaves."""
    folder = results.cell_folder(workdir, row, seed)
    folder.mkdir(parents=True)
    failure = {"error": error, "traceback": error, "step": 3}
    (folder / "failure.json").write_text(json.dumps(failure), encoding="utf-8")


def change(folder: pathlib.Path, **fields: Any) -> None:
    """Writes other values into a run's result.json."""
    path = folder / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **fields}), encoding="utf-8")
