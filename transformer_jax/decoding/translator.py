"""Sentences in, sentences out."""

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

LONG = 1024  # tokens; a longer sentence is translated by itself, if there is memory for it
ROW_MULTIPLE = 16  # source lengths are rounded up to a multiple, so that few shapes are compiled
FEWEST_ROWS = 16  # sentences of one of several searches side by side: below, products get slow
# The parameters that models cast before they use them; what else there is, norms' and most of the
# positions', they use as it is.
CAST = ("kernel", "embedding")


@final
class Translator:
    """A trained model, ready to translate; `config.decode` says how to search."""

    def __init__(
        self,
        model: interface.Decoder,
        params: Any,
        tokenizer: tokenizer_lib.Tokenizer,
        config: config_lib.Config,
        mesh: jax.sharding.Mesh,
    ) -> None:
        """Shards sentences over the devices of a mesh."""
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
        """Translates sentences, in their order; of a blank one comes an empty one.

        Progress is called with the number of sentences done so far. The language is that of the
        main direction, unless `to` names another that the model has learnt.

        Raises:
          UserError: a sentence is too long for learned positions, or for the memory there is, or
            the model does not know the language.
        """
        return self.translate_ids(self.encode(sentences, to), progress)

    def encode(self, sentences: Sequence[str], to: str = "") -> list[list[int]]:
        """Sentences as the model reads them, each behind the tag of the language, if there are any.

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
        """What each id stands for, as `Tokenizer.pieces`; a tag is `<2de>`."""
        tags = {tag: f"<2{name}>" for name, tag in directions.tags(self.config.data).items()}
        return [tags.get(token) or self.tokenizer.pieces([token])[0] for token in ids]

    def translate_ids(
        self, sources: Sequence[Sequence[int]], progress: Callable[[int], None] = lambda done: None
    ) -> list[str]:
        """As `translate`, of sentences that are encoded, without BOS and EOS."""
        texts = [""] * len(sources)
        done = 0
        for found in self.search(sources):
            decoded = self.tokenizer.decode(list(found.values()))
            for index, text in zip(found, decoded, strict=True):
                # A line break would shift all lines after it.
                texts[index] = text.replace("\n", " ")
            done += len(found)
            progress(done)
        return texts

    def search(self, sources: Sequence[Sequence[int]]) -> Iterator[dict[int, list[int]]]:
        """Translates token lists, with neither BOS nor EOS; an empty one is left out.

        Yields:
          Translations by their indices among the sources, as they become known.

        Raises:
          UserError: as `translate`.
        """
        indices = [index for index, ids in enumerate(sources) if ids]
        self._check_lengths(sources)
        parts = sharding.batch_shards(self._mesh)
        rows = -(-self.config.decode.batch_sentences // (parts * self._searches)) * parts
        pool = futures.ThreadPoolExecutor(self._searches)
        try:
            # With devices of their own, or of other processes, searches keep their order.
            several = pool.map if self._searches > 1 else map
            for is_long, rows_together, search in ((True, parts, map), (False, rows, several)):
                chosen = [index for index in indices if (len(sources[index]) > LONG) == is_long]
                groups = list(
                    batching.padded_batches(
                        [sources[index] for index in chosen], rows_together, ROW_MULTIPLE
                    )
                )
                if is_long and groups:  # the first is the longest
                    self._check_memory(groups[0].batch, chosen[groups[0].indices[0]])
                for group, found in search(self._search_group, groups):
                    yield {chosen[i]: ids for i, ids in zip(group.indices, found, strict=False)}
        finally:
            pool.shutdown(cancel_futures=True)

    def _search_group(
        self, group: batching.PaddedBatch
    ) -> tuple[batching.PaddedBatch, list[list[int]]]:
        source = sharding.put(group.batch, self._mesh).source
        found = np.asarray(self._search(self._weights, source).tokens)
        return group, [
            row[: row.index(tokenizer_lib.EOS)] if tokenizer_lib.EOS in row else row
            for row in found.tolist()
        ]

    def _check_memory(self, batch: sequences.Batch, index: int) -> None:
        """Raises UserError, naming the sentence, if there is too little memory to encode it.

        Attention weighs each token against each: ten times the length takes a hundred times the
        memory, and a process that takes too much is killed without a word.
        """
        decode, source = self.config.decode, sharding.put(batch, self._mesh).source
        length = source.tokens.shape[1]

        def encode(params: Any, source: sequences.Sequences) -> Any:
            limit = length + decode.extra_tokens
            return self.model.apply(params, source, decode.beam_size, limit, method="prefill")

        needed = memory.of_program(jax.jit(encode).lower(self._weights, source).compile())
        there = memory.of_device(self._mesh)
        if needed is not None and there is not None and needed > there:
            raise errors.UserError(
                f"sentence {index + 1} has about {length:,} tokens, which take "
                f"{needed / 2**30:.1f} GiB of memory where there are {there / 2**30:.1f}: split it"
            )

    def _check_lengths(self, sources: Sequence[Sequence[int]]) -> None:
        model = self.config.model
        if not positions.KINDS[model.position].bounded:
            return
        # EOS and the translation's extra tokens need positions too, and, in one sequence with the
        # source, so does its every token.
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
    """A model's parameters as it reads them when it computes in dtype.

    A model that casts them itself does so whenever it is called, here every few steps.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, x: x.astype(dtype) if path[-1].key in CAST else x, params
    )


def _side_by_side(batch_sentences: int, mesh: jax.sharding.Mesh) -> int:
    """How many searches divide a batch: on a CPU one for each core, if it is large enough.

    A search on several cores waits for the slowest of them at every product, and these are small.
    """
    if mesh.size > 1 or mesh.devices.flat[0].platform != "cpu":
        return 1
    here = getattr(os, "sched_getaffinity", None)  # a process may be kept to some of the cores
    cores = len(here(0)) if here else os.cpu_count() or 1
    return max(1, min(cores, batch_sentences // FEWEST_ROWS))
