"""Downloads and prepares the data of a config, ahead of time and without an accelerator.

python -m transformer_jax.prepare --config=configs/base.py --cache_dir=cache

The corpus, the tokenizer and the encoded training set are cached for `train --cache_dir=cache`. If
the preparation is stopped, the same command resumes it.
"""

import logging
import operator

from absl import flags

from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.data import dataset as dataset_lib

_log = logging.getLogger("transformer_jax.prepare")

_CONFIG = flags_lib.define_config()
_CACHE_DIR = flags.DEFINE_string("cache_dir", "cache", "Folder of the prepared data.")


def main() -> None:
    """Prepares the data, and logs the sizes of its parts."""
    config = flags_lib.read_config(_CONFIG)
    if not _CACHE_DIR.value:
        raise errors.UserError("--cache_dir is empty: name a folder")
    cache_dir = files.local_path(_CACHE_DIR.value)
    files.make_folder(cache_dir, "the cache's folder")
    dataset = dataset_lib.load(config.data, cache_dir)
    sets = (dataset.dev, dataset.test)
    sets += tuple(pairs for other in dataset.directions.values() for pairs in other[1:])
    held_out = [text for pairs in sets for text in (*pairs.source, *pairs.target)]
    ids = []
    for pairs in sets:
        ids += [*(row[dataset.tag_tokens :] for row in pairs.source_ids), *pairs.target_ids]
    same = sum(map(operator.eq, held_out, dataset.tokenizer.decode(ids)))
    _log.info(
        f"{same:,} of {len(held_out):,} development and test sentences survive encoding and "
        "decoding unchanged"
    )
    for name, side in (("source", dataset.source), ("target", dataset.target)):
        tokens = int(side.lengths.sum(dtype=int))
        _log.info(f"training {name}: {tokens:,} tokens in {len(side):,} sentences")
    size = sum(path.stat().st_size for path in cache_dir.rglob("*") if path.is_file())
    _log.info("%s holds %.2f GB", cache_dir, size / 1e9)


if __name__ == "__main__":
    flags_lib.run(main)
