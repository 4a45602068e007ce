"""WMT corpora from TensorFlow Datasets, prepared as ArrayRecord and read without TensorFlow.

A name such as wmt_t2t_translate/de-en consists of a builder and a pair of languages; the config
determines the direction. The validation split is newstest2013, the test split newstest2014.
"""

import dataclasses
import hashlib
import itertools
import json
import logging
import os
import pathlib
import types
from collections.abc import Iterator
from typing import Any, final
from unittest import mock
from xml.sax import saxutils

import requests
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import download_manager, extractor
from tensorflow_datasets.translate import wmt as tfds_wmt
from tensorflow_datasets.translate import wmt14, wmt_t2t

from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import text

_log = logging.getLogger(__name__)

# Without TensorFlow, TFDS does not register its builders by name.
BUILDERS: dict[str, type[tfds_wmt.WmtTranslate]] = {
    "wmt_t2t_translate": wmt_t2t.WmtT2tTranslate,
    "wmt14_translate": wmt14.Wmt14Translate,
}
SPLITS = {"train": "train", "dev": "validation", "test": "test"}
BLOCK = 1024  # pairs that are read at once


@final
@dataclasses.dataclass(frozen=True)
class Split(corpus_lib.PairSource):
    """A split of a prepared dataset, read block by block."""

    examples: Any  # TFDS's data source
    source_language: str
    target_language: str

    def __len__(self) -> int:
        return len(self.examples)

    def read(self, start: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
        indices = range(start, len(self), every)
        for first in range(0, len(indices), BLOCK):
            for pair in self.examples.__getitems__(list(indices[first : first + BLOCK])):
                yield pair[self.source_language].decode(), pair[self.target_language].decode()


def load(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> corpus_lib.Corpus:
    """Opens a WMT dataset, after downloading and preparing it if necessary.

    Args:
      config: contains the name of the dataset and the folder of TFDS.
      cache_dir: the folder in which digests of the dataset's files are cached.

    Raises:
      UserError: the dataset does not exist, is in other languages, or cannot be downloaded or
        prepared.
    """
    name = config.tfds_name
    kind, _, pair = name.partition("/")
    builder_class = fields.lookup("data.tfds_name", kind, BUILDERS)
    pairs = [each.name for each in builder_class.BUILDER_CONFIGS]
    fields.require_known(f"data.tfds_name={kind}/…", pair, pairs)
    folder = files.path(config.tfds_dir) if config.tfds_dir else None
    builder = builder_class(config=pair, data_dir=folder, file_format="array_record")
    languages = (config.source_language, config.target_language)
    known = sorted(pair.split("-"))
    if sorted(languages) != known:
        raise errors.UserError(
            f"{name} is in {' and '.join(known)}, not in {' and '.join(languages)}: set "
            "data.source_language and data.target_language"
        )
    _prepare(builder, name)
    open_split: Any = builder.as_data_source  # untyped: TFDS's decorator hides its signature
    splits = {
        name: Split(open_split(split=split), config.source_language, config.target_language)
        for name, split in SPLITS.items()
    }
    digests = _digests(builder, cache_dir)
    digest = hashlib.sha256(f"train {digests['train']} {config.source_language}\n".encode())
    train_digest = digest.hexdigest()
    digest.update(f"dev {digests['dev']}\n".encode())
    provenance = {
        "corpus": "tfds",
        "name": builder.info.full_name,
        "pairs": {name: len(split) for name, split in splits.items()},
        "sha256": digests,
    }
    for set_name, split in splits.items():
        _log.info(f"{name}, data.{set_name}: {len(split):,} sentence pairs")
    return corpus_lib.Corpus(
        train=splits["train"],
        dev=_held_out(splits["dev"]),
        test=_held_out(splits["test"]),
        train_digest=train_digest,
        digest=digest.hexdigest(),
        provenance=provenance,
    )


def _prepare(builder: tfds.core.DatasetBuilder, name: str) -> None:
    """Downloads and prepares a dataset unless TFDS has already prepared it."""
    if builder.is_prepared():
        return
    _log.info("fetching and preparing %s into %s", name, builder.data_dir)
    downloads = pathlib.Path(builder._data_dir_root) / "downloads"
    try:
        with (
            mock.patch.object(extractor, "tf", _PLAIN_FILES),
            mock.patch.object(tfds_wmt, "_parse_parallel_sentences", _parse_line_by_line),
        ):
            builder.download_and_prepare(
                download_config=tfds.download.DownloadConfig(try_download_gcs=False)
            )
    except download_manager.NonMatchingChecksumError as error:
        first = str(error).splitlines()[0]
        raise errors.UserError(
            f"{name}: {first} The file is not the one that TFDS {tfds.__version__} expects: delete "
            f"it from {downloads} and start again; if that fails too, the server has changed it"
        ) from error
    except extractor.ExtractError as error:
        raise errors.UserError(
            f"{name}: an archive could not be unpacked ({_one_line(error)}): if the disk is not "
            f"full, delete the archive from {downloads} and start again"
        ) from error
    except (requests.RequestException, tfds.download.DownloadError, OSError) as error:
        raise errors.UserError(
            f"{name} could not be fetched ({type(error).__name__}: {_one_line(error)}): start "
            f"again; complete downloads are kept in {downloads}"
        ) from error


# TFDS still opens archives with TensorFlow (its issue 11058); this replaces the module.
_PLAIN_FILES = types.SimpleNamespace(
    io=types.SimpleNamespace(gfile=types.SimpleNamespace(GFile=open)),
    compat=types.SimpleNamespace(as_text=os.fspath),
)
_TFDS_PARSER = tfds_wmt._parse_parallel_sentences


def _parse_line_by_line(first: str, second: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Replaces TFDS's parser of two aligned files by one that reads plain text line by line.

    TFDS's parser reads whole files into memory, which takes tens of gigabytes for English–French.

    Yields:
      The key of a pair, as in TFDS, and the pair's sentences by language.
    """
    if first.endswith(".sgm") or "*" in first:
        yield from _TFDS_PARSER(first, second)
        return
    names = (first, second)
    languages = [name.removesuffix(".gz").rpartition(".")[2] for name in names]
    pairs = itertools.zip_longest(*(text.lines(pathlib.Path(name)) for name in names))
    for number, sides in enumerate(pairs):
        if None in sides:
            raise errors.UserError(
                f"{first} and {second} differ in their number of lines: delete their folder and "
                "start again"
            )
        yield f"0/{number}", dict(zip(languages, sides, strict=True))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _held_out(split: Split) -> corpus_lib.Pairs:
    """Returns the pairs of a development or test set, with SGML entities such as &quot; decoded."""
    pairs = [
        [saxutils.unescape(side, {"&quot;": '"', "&apos;": "'"}) for side in pair]
        for pair in split.read()
    ]
    return corpus_lib.Pairs([source for source, _ in pairs], [target for _, target in pairs])


def _digests(builder: tfds.core.DatasetBuilder, cache_dir: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of each split's files, from the cache if no file has changed.

    A file counts as unchanged if its size and its time of modification are the same.
    """
    paths = {
        name: [pathlib.Path(os.fspath(path)) for path in builder.info.splits[split].filepaths]
        for name, split in SPLITS.items()
    }
    stamps = {
        name: [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in split_paths]
        for name, split_paths in paths.items()
    }
    key = hashlib.sha256(json.dumps(stamps, sort_keys=True).encode()).hexdigest()[:16]
    record = cache_dir / f"digests-{key}.json"
    if not record.exists():
        files.write_json(
            record, {name: _sha256(split_paths) for name, split_paths in paths.items()}
        )
    return files.read_json(record, dict.fromkeys(SPLITS, str), "delete it, and it is written again")


def _sha256(paths: list[pathlib.Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(bytes.fromhex(files.sha256(path)))
    return digest.hexdigest()
