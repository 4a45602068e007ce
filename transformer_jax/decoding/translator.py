"""Sentences in, sentences out."""

from collections.abc import Callable, Sequence
from typing import Any, final

import flax.linen as nn
import jax
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.data import batching
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.decoding import beam_search
from transformer_jax.models import positions
from transformer_jax.training import memory, sharding

LONG = 1024  # tokens; a longer sentence is translated by itself, if there is memory for it
ROW_MULTIPLE = 32  # source lengths are rounded up to a multiple, so that few shapes are compiled


@final
class Translator:
    """A trained model, ready to translate.

    Attributes:
      model: an architecture.
      params: its parameters.
      tokenizer: the one that it was trained with.
      config: its configuration; `config.decode` says how to search.
    """

    def __init__(
        self,
        model: nn.Module,
        params: Any,
        tokenizer: tokenizer_lib.Tokenizer,
        config: config_lib.Config,
        mesh: jax.sharding.Mesh,
    ) -> None:
        """Gathers what translating needs.

        Args:
          model: see above, as the next three.
          params: its parameters.
          tokenizer: its own.
          config: the run's.
          mesh: the devices that sentences are shared out over.
        """
        self.model = model
        self.params = params
        self.tokenizer = tokenizer
        self.config = config
        self._mesh = mesh
        self._search = beam_search.build(model, config.decode, mesh)

    def translate(
        self, sentences: Sequence[str], progress: Callable[[int], None] = lambda done: None
    ) -> list[str]:
        """Translates sentences, in their order; an empty one stays empty.

        Args:
          sentences: in the source language.
          progress: called with the number of sentences done so far.

        Raises:
          UserError: a sentence is too long for learned positions, or for the memory there is.
        """
        tokens = self.tokenizer.encode(sentences)
        places = [place for place, ids in enumerate(tokens) if ids]
        self._check_lengths([len(tokens[place]) for place in places], places)
        translations = [""] * len(tokens)
        done = 0
        parts = sharding.parts(self._mesh)
        together = -(-self.config.decode.batch_sentences // parts) * parts
        for is_long, rows in ((True, parts), (False, together)):
            chosen = [place for place in places if (len(tokens[place]) > LONG) == is_long]
            for group in batching.padded_batches(
                [tokens[place] for place in chosen], None, rows, ROW_MULTIPLE
            ):
                source = sharding.put(group.batch, self._mesh).source
                if is_long:
                    self._check_memory(source, chosen[group.indices[0]])
                found = self._search(self.params, source)
                ids = np.asarray(found.tokens)[: len(group.indices)]
                for index, text in zip(group.indices, self._decode(ids), strict=True):
                    translations[chosen[index]] = text
                done += len(group.indices)
                progress(done)
        return translations

    def _check_memory(self, source: sequences.Sequences, place: int) -> None:
        """Raises UserError, naming the sentence, if there is too little memory to encode it.

        Attention weighs each token against each: ten times the length takes a hundred times the
        memory, and a process that takes too much is killed without a word.
        """
        decode, length = self.config.decode, source.tokens.shape[1]

        def encode(params: Any, source: sequences.Sequences) -> Any:
            limit = length + decode.extra_tokens
            return self.model.apply(
                params, source, decode.beam_size, limit, method="start_decoding"
            )

        needed = memory.of_program(jax.jit(encode).lower(self.params, source).compile())
        there = memory.of_device(self._mesh)
        if needed is not None and there is not None and needed > there:
            raise config_lib.UserError(
                f"sentence {place + 1} has about {length:,} tokens, which take "
                f"{needed / 2**30:.1f} GiB of memory where there are {there / 2**30:.1f}: split it"
            )

    def _decode(self, ids: np.ndarray) -> list[str]:
        ends = [
            row.tolist().index(tokenizer_lib.END) if tokenizer_lib.END in row else len(row)
            for row in ids
        ]
        texts = self.tokenizer.decode(
            [row[:end].tolist() for row, end in zip(ids, ends, strict=True)]
        )
        # A line break in a translation would shift all lines after it.
        return [text.replace("\n", " ") for text in texts]

    def _check_lengths(self, lengths: list[int], places: list[int]) -> None:
        model = self.config.model
        if not positions.KINDS[model.position].bounded:
            return
        # The end token and the translation's extra tokens need positions too.
        limit = model.max_positions - self.config.decode.extra_tokens - 1
        for length, place in zip(lengths, places, strict=True):
            if length > limit:
                raise config_lib.UserError(
                    f"sentence {place + 1} has {length} tokens, but this model's learned positions "
                    f"(model.max_positions={model.max_positions}) allow at most {limit}"
                )
