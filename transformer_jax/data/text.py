r"""Your own parallel text: aligned files, one sentence per line, plain or gzip-compressed.

A path prefix stands for two files: `X` for `X.en` and `X.de` (or `X.en.gz`, `X.de.gz`). Lines end
at "\n" and nowhere else: `str.splitlines` would also break at U+0085, which real news contains.
"""

import gzip
import hashlib
import logging
import pathlib
import zlib
from typing import Any

from transformer_jax import config as config_lib
from transformer_jax.data import corpus as corpus_lib

_log = logging.getLogger(__name__)


def load(
    train: str, dev: str, test: str, source_language: str, target_language: str
) -> corpus_lib.Corpus:
    """Reads a corpus from path prefixes; several training prefixes are separated by commas.

    Raises:
      UserError: a prefix is not given, a file is missing, unreadable, empty or not UTF-8, or
        the two files of a pair differ in their number of lines.
    """
    files: list[dict[str, Any]] = []
    digest = hashlib.sha256()
    sets, digests = {}, {}
    for name, prefixes in (("train", train), ("dev", dev), ("test", test)):
        source: list[str] = []
        target: list[str] = []
        for prefix in filter(None, (part.strip() for part in prefixes.split(","))):
            sides = [_read_side(prefix, end) for end in (source_language, target_language)]
            (source_record, source_lines), (target_record, target_lines) = sides
            if len(source_lines) != len(target_lines):
                raise config_lib.UserError(
                    f"{source_record['path']} has {len(source_lines):,} lines, but "
                    f"{target_record['path']} has {len(target_lines):,}: they should be aligned"
                )
            source += source_lines
            target += target_lines
            for record in (source_record, target_record):
                files.append({"set": name, **record})
                digest.update(f"{name} {record['sha256']}\n".encode())
        if not source and name != "test":
            raise config_lib.UserError(
                f"data.{name} is empty: give a path prefix, --config.data.{name}=PATH/{name} reads "
                f"PATH/{name}.{source_language} and PATH/{name}.{target_language}"
            )
        sets[name] = corpus_lib.Pairs(source, target)
        digests[name] = digest.hexdigest()
        if source:
            _log.info("data.%s: %s sentence pairs", name, f"{len(source):,}")
    provenance = {"corpus": "text", "files": files}
    return corpus_lib.Corpus(
        **sets, train_digest=digests["train"], digest=digests["dev"], provenance=provenance
    )


def read_lines(path: pathlib.Path) -> tuple[list[str], str]:
    """Reads a text file; a name that ends in .gz is decompressed.

    Returns:
      The lines, and the SHA-256 of the file as it lies on disk.

    Raises:
      UserError: the file cannot be read, has no lines, or a line is not UTF-8.
    """
    try:
        stored = path.read_bytes()
        content = gzip.decompress(stored) if path.suffix == ".gz" else stored
    except (OSError, EOFError, zlib.error) as error:
        raise config_lib.UserError(f"cannot read {path}: {error}") from error
    if not content:
        raise config_lib.UserError(f"{path} is empty: it has 0 lines")
    return split_lines(content, str(path)), hashlib.sha256(stored).hexdigest()


def split_lines(content: bytes, name: str) -> list[str]:
    r"""The lines of UTF-8 text, split at "\n" only; the last may end without it.

    Raises:
      UserError: a line is not UTF-8; the message has its number, and `name`.
    """
    lines = content.removesuffix(b"\n").split(b"\n")
    sentences = []
    for number, line in enumerate(lines, start=1):
        try:
            sentences.append(line.decode())
        except UnicodeDecodeError as error:
            raise config_lib.UserError(
                f"{name}: line {number:,} of {len(lines):,} is not UTF-8 ({error.reason} at byte "
                f"{error.start + 1} of the line)"
            ) from error
    return sentences


def _read_side(prefix: str, language: str) -> tuple[dict[str, Any], list[str]]:
    candidates = [pathlib.Path(f"{prefix}.{language}{end}") for end in ("", ".gz")]
    for path in candidates:
        if path.exists():
            lines, digest = read_lines(path)
            return {"path": str(path), "sha256": digest, "lines": len(lines)}, lines
    raise config_lib.UserError(f"there is no file {candidates[0]}, nor {candidates[1].name}")
