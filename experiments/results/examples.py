"""Example sentences of a sweep: ten of the development set, with the outputs of its rows."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from experiments.results import frames
from experiments.sweep import store
from transformer_jax import errors, files
from transformer_jax.data import text

NUMBER = 10
NAME = "examples.json"  # in a published folder


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of the development set.

    Attributes:
      number: the line of the development set, from 1.
      source: the sentence to translate; "" if it was not recorded.
      reference: the reference translation.
    """

    number: int
    source: str
    reference: str


@dataclasses.dataclass(frozen=True)
class Examples:
    """Sentences of the development set, and each row's outputs for these sentences.

    Attributes:
      sentences: the sentences.
      outputs: for each row, the outputs of the row's first run, in the order of `sentences`.
    """

    sentences: Sequence[Sentence]
    outputs: Mapping[str, Sequence[str]]


def collect(sweep: frames.Sweep) -> Examples:
    """Returns sentences at equal distances in the development set, and the rows' outputs for them.

    A row has no outputs if it generates no text, or if its development set is not that of the first
    row.

    Raises:
      UserError: the files of a run have different numbers of lines.
    """
    sentences: Sequence[Sentence] = ()
    outputs: dict[str, Sequence[str]] = {}
    for row in sweep.description.rows:
        runs = sweep.of(row)
        for config_hash in runs["config_hash"].iloc[:1]:
            found, lines = _of_run(sweep.folders[config_hash], row)
            sentences = sentences or found
            if lines and _are_same(found, sentences):
                outputs[row] = lines
    return Examples(sentences, outputs)


def _are_same(some: Sequence[Sentence], others: Sequence[Sentence]) -> bool:
    return [each.reference for each in some] == [each.reference for each in others]


def _of_run(folder: pathlib.Path, row: str) -> tuple[Sequence[Sentence], Sequence[str]]:
    if store.is_published(folder):
        published = read(folder)
        return published.sentences, published.outputs.get(row, ())
    sides = []
    for name in ("sources", "references", "hypotheses"):
        path = folder / f"{name}.txt"
        sides.append(text.read_lines(path) if path.exists() else [])
    total = len(sides[0])
    if any(len(side) != total for side in sides):
        raise errors.UserError(
            f"{folder}: sources.txt, references.txt and hypotheses.txt have different numbers of "
            f"lines: {frames.EVALUATE_AGAIN}"
        )
    places = sorted({total * (2 * index + 1) // (2 * NUMBER) for index in range(NUMBER)})
    if not total:
        return (), ()
    sources, references, hypotheses = sides
    sentences = [Sentence(place + 1, sources[place], references[place]) for place in places]
    return sentences, [hypotheses[place] for place in places]


def read(folder: pathlib.Path) -> Examples:
    """Reads the examples of a published folder; there are none if it has no examples.json.

    Raises:
      UserError: the file is damaged.
    """
    path = folder / NAME
    if not path.exists():
        return Examples((), {})
    remedy = "delete the file, or publish the sweep again"
    record = files.read_json(path, {"sentences": list, "rows": dict}, remedy)
    try:
        sentences = [Sentence(**each) for each in record["sentences"]]
    except TypeError as error:
        raise errors.UserError(f"{path} is damaged ({error}): {remedy}") from error
    return Examples(sentences, record["rows"])


def write(found: Examples, folder: pathlib.Path) -> None:
    """Writes examples.json to a published folder, or removes it if there are no sentences."""
    path = folder / NAME
    if not found.sentences:
        path.unlink(missing_ok=True)
        return
    sentences = [dataclasses.asdict(sentence) for sentence in found.sentences]
    rows = {row: list(lines) for row, lines in found.outputs.items()}
    files.write_json(path, {"sentences": sentences, "rows": rows})
