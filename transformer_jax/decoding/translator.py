"""Translation of sentences with a trained model."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, final

import jax
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import errors, sequences
from transformer_jax.data import batching, directions
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.decoding import beam_search
from transformer_jax.distributed import memory, sharding
from transformer_jax.models import interface, positions

LONG = 1024  # tokens; longer sentences are translated one by one, if they fit into memory
ROW_MULTIPLE = 32  # source lengths are rounded up to a multiple, so that few shapes are compiled
FEWEST_ROWS = 16  # least sentences of a parallel search: with fewer, matrix products are slow
# Names of the parameters that models cast to their dtype; they use all others in float32.
CAST = ("kernel", "embedding")


@final
class Translator:
    """A trained model that translates sentences by beam search with the config's settings."""

    def __init__(
        self,
        model: interface.Decoder,
        params: Any,
        tokenizer: tokenizer_lib.Tokenizer,
        config: config_lib.Config,
        mesh: jax.sharding.Mesh,
    ) -> None:
        """Prepares the search, which shards sentences over the devices of the mesh."""
        self.model = model
        self.params = params
        self.tokenizer = tokenizer
        self.config = config
        self._mesh = mesh
        self._weights = cast(params, config.model.dtype)
        self._searches = _side_by_side(config.decode.batch_sentences, mesh)
        self._search = beam_search.BeamSearch(
            model, config.decode, mesh, one_core=self._searches > 1, vocab_size=tokenizer.vocab_size
        )

    def translate(
        self,
        sentences: Sequence[str],
        progress: Callable[[int], None] = lambda done: None,
        to: str = "",
    ) -> list[str]:
        """Returns the translations of sentences, in order. A blank sentence becomes "".

        Args:
          sentences: the sentences.
          progress: called after each batch with the number of sentences translated so far.
          to: the target language, if the model has several; "": that of its main direction.

        Raises:
          UserError: a sentence is too long for learned positions or for memory, or the model does
            not know the language.
        """
        return self.translate_ids(self.encode(sentences, to), progress)

    def encode(self, sentences: Sequence[str], to: str = "") -> list[list[int]]:
        """Returns the ids of source sentences, without BOS and EOS.

        If the model has several directions, the ids begin with the tag of the target language.

        Args:
          sentences: the sentences.
          to: the target language, as in `translate`.

        Raises:
          UserError: the model does not know the language.
        """
        data = self.config.data
        tags = {name: [tag] for name, tag in directions.tags(data).items()}
        tags = tags or {data.target_language: []}
        language = to or data.target_language
        if language not in tags:
            raise errors.UserError(
                f"this model translates into {' and '.join(tags)}, not into {language}"
            )
        encoded = self.tokenizer.encode_lines(sentences)
        return [[*tags[language], *ids] if ids else [] for ids in encoded]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the text of each id, as `Tokenizer.pieces` does.

        The text of the tag of German (de) is `<2de>`.
        """
        tags = {tag: f"<2{name}>" for name, tag in directions.tags(self.config.data).items()}
        return [tags.get(token) or self.tokenizer.pieces([token])[0] for token in ids]

    def translate_ids(
        self, sources: Sequence[Sequence[int]], progress: Callable[[int], None] = lambda done: None
    ) -> list[str]:
        """Returns the translations of encoded sentences, as `translate` does.

        Args:
          sources: the ids of each sentence, from `encode`.
          progress: called after each batch with the number of sentences translated so far.
        """
        texts = [""] * len(sources)
        done = 0
        for translations in self.search(sources):
            decoded = self.tokenizer.decode(list(translations.values()))
            for index, text in zip(translations, decoded, strict=True):
                # Files of translations have one translation per line.
                texts[index] = text.replace("\n", " ")
            done += len(translations)
            progress(done)
        return texts

    def search(self, sources: Sequence[Sequence[int]]) -> Iterator[dict[int, list[int]]]:
        """Translates lists of ids, batch by batch, and skips empty lists.

        Args:
          sources: the ids of each source, from `encode`.

        Yields:
          For each batch, the ids of its translations, without EOS, by the index of the source.

        Raises:
          UserError: a source is too long for learned positions or for memory.
        """
        indices = [index for index, ids in enumerate(sources) if ids]
        self._check_lengths(sources)
        parts = sharding.batch_shards(self._mesh)
        rows = -(-self.config.decode.batch_sentences // (parts * self._searches)) * parts
        pool = futures.ThreadPoolExecutor(self._searches)
        try:
            # On several devices or processes, searches must run in the same order everywhere.
            parallel = pool.map if self._searches > 1 else map
            for is_long, batch_rows, run in ((True, parts, map), (False, rows, parallel)):
                chosen = [index for index in indices if (len(sources[index]) > LONG) == is_long]
                groups = list(
                    batching.padded_batches(
                        [sources[index] for index in chosen], batch_rows, ROW_MULTIPLE
                    )
                )
                if is_long and groups:  # the first sentence is the longest
                    self._check_memory(groups[0].batch, chosen[groups[0].indices[0]])
                for group, rows_ids in run(self._search_group, groups):
                    # Rows beyond the indices repeat a sentence.
                    pairs = zip(group.indices, rows_ids, strict=False)
                    yield {chosen[i]: ids for i, ids in pairs}
        finally:
            pool.shutdown(cancel_futures=True)

    def _search_group(
        self, group: batching.PaddedBatch
    ) -> tuple[batching.PaddedBatch, list[list[int]]]:
        source = sharding.put(group.batch, self._mesh).source
        tokens = np.asarray(self._search(self._weights, source).tokens)
        return group, [
            row[: row.index(tokenizer_lib.EOS)] if tokenizer_lib.EOS in row else row
            for row in tokens.tolist()
        ]

    def _check_memory(self, batch: sequences.Batch, index: int) -> None:
        """Raises UserError if encoding a sentence needs more memory than a device has.

        Attention needs memory that grows with the square of the length. If a process exceeds the
        machine's memory, the operating system kills it without a message.

        Args:
          batch: the batch with the sentence.
          index: the sentence's index, for the error message.
        """
        decode = self.config.decode
        source = sharding.put(batch, self._mesh).source
        length = source.tokens.shape[1]

        def encode(params: Any, source: sequences.Sequences) -> Any:
            limit = length + decode.extra_tokens
            return self.model.apply(params, source, decode.beam_size, limit, method="prefill")

        needed = memory.of_program(jax.jit(encode).lower(self._weights, source).compile())
        available = memory.of_device(self._mesh)
        if needed is not None and available is not None and needed > available:
            raise errors.UserError(
                f"sentence {index + 1} has about {length:,} tokens, which need "
                f"{needed / 2**30:.1f} of {available / 2**30:.1f} GiB of memory: split it"
            )

    def _check_lengths(self, sources: Sequence[Sequence[int]]) -> None:
        model = self.config.model
        if not positions.KINDS[model.position].bounded:
            return
        # EOS and the translation's extra tokens need positions too; if source and target are one
        # sequence, so does each token of the translation.
        extra = self.config.decode.extra_tokens
        limit = model.max_positions - extra
        limit = max(limit // (2 if self.model.one_sequence else 1) - 1, 0)
        for index, ids in enumerate(sources):
            if len(ids) > limit:
                raise errors.UserError(
                    f"sentence {index + 1} has {len(ids)} tokens, but this model's learned "
                    f"positions (model.max_positions={model.max_positions}, of which a translation "
                    f"takes decode.extra_tokens={extra} more) allow at most {limit}: "
                    "split it"
                )


def cast(params: Any, dtype: Any) -> Any:
    """Returns parameters cast to the dtype in which a model computes.

    Without this, the model would cast them again in each program call, which is every few steps.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, x: x.astype(dtype) if path[-1].key in CAST else x, params
    )


def _side_by_side(batch_sentences: int, mesh: jax.sharding.Mesh) -> int:
    """Returns the number of searches that translate parts of a batch in parallel.

    On a CPU there are as many searches as cores, or fewer, so that each has at least FEWEST_ROWS
    sentences. One search on all cores would be slower, since the cores would wait for each other
    after every small matrix product. On other devices, and on several, there is one search.
    """
    if mesh.size > 1 or mesh.devices.flat[0].platform != "cpu":
        return 1
    affinity = getattr(os, "sched_getaffinity", None)  # a process may be limited to some cores
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, batch_sentences // FEWEST_ROWS))
