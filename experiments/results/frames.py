"""The results of a sweep as pandas frames.

A `Sweep` is read from the folder of a sweep or from a published folder. It has:

- runs: a line for each finished run, with the numbers of its result.json;
- curves: a line for each logged step of a run, as in its metrics.jsonl;
- lengths: a line for each run and bucket of sentence lengths, with the score of the bucket;
- statistics: arrays with a line for each sentence of the development and test sets, such as the
  counts that BLEU is computed from.

A published folder has the frames as `runs.csv`, `curves.csv` and `lengths.csv`, and the statistics
as `sentences.npz`.
"""

import dataclasses
import io
import pathlib
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.sweep import store
from transformer_jax import errors, files
from transformer_jax.evaluation import bleu, evaluators, measures
from transformer_jax.runs import run_folder
from transformer_jax.training import metrics

RESTORE = "restore the published folder, or publish the sweep again"
EVALUATE_AGAIN = "delete the run's result.json and start the sweep again, which evaluates it anew"
# The measure that computes each score from per-sentence counts, by the score's name in frames and
# files.
MEASURES = {"bleu": measures.MEASURES[bleu.MAIN], "f1": measures.MEASURES[measures.F1]}
_MEASURE_KEYS = {"bleu": bleu.MAIN_VARIANTS, "f1": (measures.F1,)}
SPLITS = {"dev": "", "test": "test_"}  # the prefix of columns and files of each set
ROUNDING = 1e-6  # greatest difference between a recorded score and the score computed from counts
ROUNDING_NATS = 1e-4  # the same for ln PPL; likelihoods are stored in single precision

_BLEU_COLUMNS = {
    **dict.fromkeys(bleu.MAIN_VARIANTS, "bleu"),
    **{f"{variant}_lowercase": "bleu_lowercase" for variant in bleu.MAIN_VARIANTS},
    "sacrebleu_intl": "bleu_intl",
    "sacrebleu_intl_lowercase": "bleu_intl_lowercase",
    bleu.PAPER: "bleu_paper",
    "paper_lowercase": "bleu_paper_lowercase",
}
_PARSE_COLUMNS = ("f1", "recall", "precision", "exact", "crossing", "tagging", "malformed")
_COPIED = (
    "params",
    "steps",
    "tokens_per_second",
    "sentences_per_second",
    "wall_seconds",
    "git_commit",
    "data_sha256",
    "tokenizer_sha256",
    "test_sha256",
)
# Columns of text; pandas would read a hash such as 12e4 as a number.
_TEXT = {
    "row",
    "config_hash",
    "git_commit",
    "data_sha256",
    "tokenizer_sha256",
    "test_sha256",
    "source_language",
    "target_language",
    "decode_penalty",
    "device_kind",
    "jax_version",
    "split",
    "unit",
    "bucket",
}
_KEYS = ["row", "seed", "config_hash"]
# Columns that a published folder must have.
_MEASURED_ON = ["data_sha256", "tokenizer_sha256", "test_sha256"]
_MEASURED_ON += ["source_language", "target_language"]
_LENGTHS = [*_KEYS, "unit", "bucket", "beyond_training", "sentences", "score"]
_REQUIRED = {
    "runs": [*_KEYS, "ppl", "params", "wall_seconds", "git_commit", *_MEASURED_ON],
    "curves": [*_KEYS, "step"],
    "lengths": _LENGTHS,
}


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The results of a sweep.

    Attributes:
      folder: the sweep's folder, or a published folder.
      description: the contents of sweep.json.
      runs: a line for each finished run: row, seed, config_hash and the columns of `run_record`,
        in the order of rows and seeds.
      curves: row, seed, config_hash, step and the logged metrics.
      lengths: row, seed, config_hash, unit ("tokens" or "words"), bucket ("1-10"),
        beyond_training (True for sentences longer than any trained on), sentences, score.
      failures: row, seed and error of each run that failed.
      missing: row and seed of each run that has neither a result nor a failure.
      folders: for each config_hash, the folder with the statistics of the run.
    """

    folder: pathlib.Path
    description: store.Description
    runs: pd.DataFrame
    curves: pd.DataFrame
    lengths: pd.DataFrame
    failures: pd.DataFrame
    missing: pd.DataFrame
    folders: Mapping[str, pathlib.Path]
    _statistics: dict[str, dict[str, np.ndarray]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def of(self, row: str) -> pd.DataFrame:
        """Returns the lines of `runs` for a row, ordered by seed."""
        return self.runs.loc[self.runs["row"] == row]

    def values(self, row: str, column: str) -> list[Any]:
        """Returns a row's values in a column of `runs`, ordered by seed, without missing values."""
        return self.of(row)[column].dropna().tolist() if column in self.runs else []

    def counts(self, row: str, measure: str, split: str = "dev") -> dict[int, np.ndarray]:
        """Returns the per-sentence counts of a measure, by seed.

        Args:
          row: the name of a row, or of a variant of a row for --tune.
          measure: "bleu" or "f1".
          split: "dev" or "test".

        Returns:
          An array [sentences, counts] for each seed; {} if a run has no score of the measure.

        Raises:
          UserError: counts are missing or damaged, or do not give the run's score.
        """
        by_seed: dict[int, np.ndarray] = {}
        column = SPLITS[split] + measure
        for run in self.of(row).to_dict("records"):
            score = run.get(column, np.nan)
            if pd.isna(score):
                return {}
            counts = self.statistics(run["config_hash"]).get(column)
            path = self.folders[run["config_hash"]]
            remedy = RESTORE if store.is_published(path) else EVALUATE_AGAIN
            if counts is None:
                raise errors.UserError(
                    f"{path} has a {measure} score of the {split} set without the counts of its "
                    f"sentences: {remedy}"
                )
            computed = MEASURES[measure].from_counts(counts.sum(0, dtype=np.int64))
            if abs(computed - score) > ROUNDING:
                raise errors.UserError(
                    f"{path}: the counts of the {split} set give {measure} {computed:.2f}, but "
                    f"the result says {score:.2f}: {remedy}"
                )
            by_seed[run["seed"]] = counts
        return by_seed

    def likelihoods(
        self, row: str, split: str = "dev"
    ) -> tuple[dict[int, float], dict[int, np.ndarray]]:
        """Returns the perplexity of each run, and the likelihoods of its sentences.

        Args:
          row: the name of a row, or of a variant of a row for --tune.
          split: "dev" or "test".

        Returns:
          The perplexity by seed; and by seed, for runs that have them, an array [sentences, 2] with
          the negative log-likelihood in nats and the number of tokens of each sentence.

        Raises:
          UserError: likelihoods do not give the run's perplexity.
        """
        perplexities: dict[int, float] = {}
        likelihoods: dict[int, np.ndarray] = {}
        prefix = SPLITS[split]
        for run in self.of(row).to_dict("records"):
            ppl = run.get(f"{prefix}ppl", np.nan)
            if pd.isna(ppl):
                continue
            perplexities[run["seed"]] = ppl
            statistics = self.statistics(run["config_hash"])
            nats, tokens = (statistics.get(prefix + name) for name in ("nats", "tokens"))
            if nats is None or tokens is None:
                continue
            path = self.folders[run["config_hash"]]
            remedy = RESTORE if store.is_published(path) else EVALUATE_AGAIN
            total = tokens.sum(dtype=np.int64)
            computed = nats.sum(dtype=np.float64) / max(total, 1)
            if nats.shape != tokens.shape or abs(computed - np.log(ppl)) > ROUNDING_NATS:
                raise errors.UserError(
                    f"{path}: the likelihoods of the {split} set give perplexity "
                    f"{np.exp(computed):.3f}, but the result says {ppl:.3f}: {remedy}"
                )
            likelihoods[run["seed"]] = np.stack([nats.astype(np.float64), tokens], axis=1)
        return perplexities, likelihoods

    def statistics(self, config_hash: str) -> dict[str, np.ndarray]:
        """Returns the per-sentence statistics of a run by name.

        The names are bleu, f1, nats and tokens for the development set, and test_bleu, test_f1,
        test_nats and test_tokens for the test set. The first axis of each array is the sentences.
        """
        if config_hash not in self._statistics:
            self._statistics[config_hash] = _read(self.folders[config_hash], config_hash)
        return self._statistics[config_hash]


def _read(folder: pathlib.Path, config_hash: str) -> dict[str, np.ndarray]:
    if not store.is_published(folder):
        return read_statistics(folder)
    path = folder / "sentences.npz"
    if not path.exists():
        return {}
    prefix = f"{config_hash}."
    try:
        with path.open("rb") as file, np.load(file) as archive:
            return {
                name.removeprefix(prefix): archive[name]
                for name in archive.files
                if name.startswith(prefix)
            }
    except (EOFError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise errors.UserError(f"{path} is damaged ({error}): {RESTORE}") from error


def read_statistics(folder: files.Path) -> dict[str, np.ndarray]:
    """Reads the per-sentence statistics of a run's folder; see `Sweep.statistics`.

    Raises:
      UserError: a file is damaged.
    """
    found: dict[str, np.ndarray] = {}
    for prefix in SPLITS.values():
        for name, measure in MEASURES.items():
            path = folder / f"{prefix}{measure.file}"
            if path.exists():
                record = files.read_json(path, {}, EVALUATE_AGAIN)
                counts = next((record[key] for key in _MEASURE_KEYS[name] if key in record), [])
                found[prefix + name] = _counts(path, counts, measure.width)
        path = folder / f"{prefix}{evaluators.NLL_FILE}"
        if path.exists():
            values = files.read_json(path, {"nats": list, "tokens": list}, EVALUATE_AGAIN)
            found[f"{prefix}nats"] = _array(path, values["nats"], np.float32)
            found[f"{prefix}tokens"] = _array(path, values["tokens"], np.int32)
    return found


def _counts(path: files.Path, values: Sequence[Any], width: int) -> np.ndarray:
    counts = _array(path, values, np.int32)
    if counts.ndim != 2 or counts.shape[1] != width or not len(counts) or counts.min() < 0:
        raise errors.UserError(
            f"{path} is damaged (a sentence has {width} counts, none below 0): {EVALUATE_AGAIN}"
        )
    return counts


def _array(path: files.Path, values: Sequence[Any], dtype: Any) -> np.ndarray:
    try:
        return np.array(values, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise errors.UserError(f"{path} is damaged ({error}): {EVALUATE_AGAIN}") from error


def load(folder: pathlib.Path, visited: Collection[pathlib.Path] = ()) -> Sweep:
    """Reads the results of a sweep, or of a published folder.

    Args:
      folder: the folder.
      visited: folders that are being read, whose --reuse led to this folder. They are not read
        again.

    Raises:
      UserError: the folder holds no sweep, or a file is damaged.
    """
    description = store.read(folder)
    if store.is_published(folder):
        return _load_published(folder, description)
    visited = [*visited, folder.resolve()]
    others = [pathlib.Path(other) for other in description.reuse]
    reused = [load(other, visited) for other in others if other.resolve() not in visited]
    sources: dict[str, pathlib.Path] = {}
    lines: dict[str, list[Any]] = {"runs": [], "curves": [], "lengths": []}
    failures: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    for run in description.runs:
        place = store.locate(folder, run)
        keys = dataclasses.asdict(run)
        if (place / "result.json").exists():
            sources[run.config_hash] = place
            record, lengths = read_result(place)
            if record.pop("config_hash") != run.config_hash:
                raise errors.UserError(
                    f"{place / 'result.json'} is the result of another run than run.json beside "
                    f"it: {EVALUATE_AGAIN}"
                )
            lines["runs"].append({**keys, **record})
            lines["curves"] += [{**logged, **keys} for logged in metrics.read(place)]
            lines["lengths"] += [{**keys, **length} for length in lengths]
            continue
        other = next((each for each in reused if run.config_hash in each.folders), None)
        if other is not None:
            sources[run.config_hash] = other.folders[run.config_hash]
            for name in lines:
                lines[name] += _renamed(getattr(other, name), run)
        elif (place / "failure.json").exists():
            failures.append({**keys, "error": run_folder.read_error(place)})
        else:
            missing.append(keys)
    runs_columns = _columns(lines["runs"], [*_KEYS, "ppl", "params"])
    curves_columns = _columns(lines["curves"], [*_KEYS, "step"])
    return Sweep(
        folder=folder,
        description=description,
        runs=pd.DataFrame(lines["runs"], columns=runs_columns),
        curves=pd.DataFrame(lines["curves"], columns=curves_columns),
        lengths=pd.DataFrame(lines["lengths"], columns=_LENGTHS),
        failures=pd.DataFrame(failures, columns=[*_KEYS, "error"]),
        missing=pd.DataFrame(missing, columns=_KEYS),
        folders=sources,
    )


def _columns(lines: Sequence[Mapping[str, Any]], first: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*first, *(name for line in lines for name in line)]))


def _renamed(frame: pd.DataFrame, run: store.Run) -> list[dict[Any, Any]]:
    """Returns the lines of a reused run in the frame of another sweep.

    The run may have another row or seed in the other sweep. The lines get those of `run`.
    """
    own = frame.loc[frame["config_hash"] == run.config_hash]
    first = own.drop_duplicates([name for name in own.columns if name != "row"])
    return [
        {
            name: value
            for name, value in {**line, **dataclasses.asdict(run)}.items()
            if _known(value)
        }
        for line in first.to_dict("records")
    ]


def _known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and np.isnan(value))


def _load_published(folder: pathlib.Path, description: store.Description) -> Sweep:
    runs = _read_csv(folder / "runs.csv", _REQUIRED["runs"])
    curves = _read_csv(folder / "curves.csv", _REQUIRED["curves"])
    lengths = _read_csv(folder / "lengths.csv", _REQUIRED["lengths"])
    done = set(runs["config_hash"])
    lost = [run for run in description.runs if run.config_hash not in done]
    if lost:
        raise errors.UserError(
            f"{folder / 'runs.csv'} is damaged (it lacks {lost[0].row} with seed {lost[0].seed}, "
            f"which sweep.json lists): {RESTORE}"
        )
    return Sweep(
        folder=folder,
        description=description,
        runs=runs,
        curves=curves,
        lengths=lengths.reindex(columns=_LENGTHS),
        failures=pd.DataFrame(columns=[*_KEYS, "error"]),
        missing=pd.DataFrame(columns=_KEYS),
        folders=dict.fromkeys(done, folder),
    )


def _read_csv(path: pathlib.Path, required: Sequence[str]) -> pd.DataFrame:
    try:
        columns = list(pd.read_csv(path, nrows=0).columns)
        text = {name: str for name in columns if name in _TEXT or name.endswith("_signature")}
        frame = pd.read_csv(path, dtype=text, keep_default_na=False, na_values=[""])
        is_whole = path.read_bytes().endswith(b"\n")
    except (OSError, ValueError) as error:
        raise errors.UserError(f"{path} is damaged ({error}): {RESTORE}") from error
    if not is_whole:
        raise errors.UserError(f"{path} is damaged (its last line is cut off): {RESTORE}")
    for name in required:
        if name not in frame:
            raise errors.UserError(f"{path} is damaged (it has no column {name}): {RESTORE}")
    for name in text:
        frame[name] = frame[name].fillna("")
    return frame


def read_result(folder: files.Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Reads the result.json of a run.

    Returns:
      The line of `Sweep.runs` and the lines of `Sweep.lengths` for the run, without row and seed.

    Raises:
      UserError: the file is damaged.
    """
    result = run_folder.read_result(folder)
    try:
        record = {"config_hash": result["config_hash"], **run_record(result)}
        return record, list(length_records(result))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise errors.UserError(
            f"{folder / 'result.json'} is damaged ({type(error).__name__}: {error}): "
            f"{EVALUATE_AGAIN}"
        ) from error


def run_record(result: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the contents of a result.json to a line of `Sweep.runs`.

    Columns of the test set begin with test_. Columns of a further translation direction begin with
    the name of the direction, as in de-en_bleu. A column is missing if result.json lacks its value.
    """
    record: dict[str, Any] = {name: result[name] for name in _COPIED if _known(result.get(name))}
    record |= _scores(result)
    record |= {f"test_{name}": value for name, value in _scores(result.get("test", {})).items()}
    for direction, scores in result.get("directions", {}).items():
        own, test = _scores(scores), _scores(scores.get("test", {}))
        record |= {f"{direction}_{name}": value for name, value in own.items()}
        record |= {f"{direction}_test_{name}": value for name, value in test.items()}
    for side, tokens in result.get("tokens_per_sentence", {}).items():
        record[f"{side}_tokens"] = tokens
    if "accuracy" in result:
        record["accuracy"] = result["accuracy"]["share"]
        record["answers"] = result["accuracy"]["answers"]
    record |= measured_on(result)
    devices = result.get("devices") or []
    if devices:
        record["devices"] = len(devices)
        record["device_kind"] = " and ".join(sorted(set(devices)))
    if "versions" in result:
        record["jax_version"] = result["versions"]["jax"]
    return record


def measured_on(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns that must be equal in all runs of a table: corpus and decoding."""
    source, target = result["data"]["languages"]
    return {
        "data_sha256": result["data_sha256"],
        "tokenizer_sha256": result["tokenizer_sha256"],
        "test_sha256": result["test_sha256"],
        "source_language": source,
        "target_language": target,
        **{f"decode_{name}": value for name, value in result["decode"].items()},
    }


def _scores(scored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of one set: perplexity, BLEU in each variant, and counts of parses."""
    found = {name: scored[name] for name in ("ppl", "eval_seconds") if name in scored}
    for variant, score in scored.get("bleu", {}).items():
        column = _BLEU_COLUMNS.get(variant, f"bleu_{variant}")
        found[column] = score["score"]
        found[f"{column}_signature"] = score["signature"]
    parses = scored.get("parses", {})
    return found | {name: parses[name] for name in _PARSE_COLUMNS if _known(parses.get(name))}


def length_records(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Converts the contents of a result.json to lines of `Sweep.lengths`, without row and seed."""
    for unit, score, buckets in (
        ("tokens", "score", result.get("bleu_by_length", [])),
        ("words", "f1", result.get("parses", {}).get("by_length", [])),
    ):
        for bucket in buckets:
            yield _length(unit, bucket, score, beyond=False)
    if beyond := result.get("bleu_beyond_training"):
        yield _length("tokens", beyond, "score", beyond=True)


def _length(unit: str, bucket: Mapping[str, Any], score: str, beyond: bool) -> dict[str, Any]:
    return {
        "unit": unit,
        "bucket": bucket[unit],
        "beyond_training": beyond,
        "sentences": bucket["sentences"],
        "score": bucket[score],
    }


def write(sweep: Sweep, folder: pathlib.Path) -> None:
    """Writes the frames and statistics of a sweep into a published folder."""
    for name in ("runs", "curves", "lengths"):
        frame: pd.DataFrame = getattr(sweep, name)
        files.write(folder / f"{name}.csv", frame.to_csv(index=False).encode())
    arrays: dict[str, Any] = {}
    for config_hash in sweep.runs["config_hash"].unique():
        for name, values in sweep.statistics(config_hash).items():
            arrays[f"{config_hash}.{name}"] = _narrow(values)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    files.write(folder / "sentences.npz", content.getvalue())


def _narrow(values: np.ndarray) -> np.ndarray:
    """Converts an array of integers to the smallest type that holds all values."""
    is_whole = values.dtype.kind == "i" and values.size
    return values.astype(np.min_scalar_type(values.max())) if is_whole else values
