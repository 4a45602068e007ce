"""Beam search against that of Hugging Face transformers, over the same random model."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from tests import parity
from transformer_jax import models
from transformer_jax.data import batching, tokenizer
from transformer_jax.decoding import beam_search

torch, transformers = parity.torch, parity.transformers

EXTRA = 8
SOURCES = [source for source, _ in parity.sentence_pairs()]
SOURCE_LENGTH = max(map(len, SOURCES)) + 1
logits = jax.jit(models.logits, static_argnums=0)


class LanguageModel(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Our model's logits after one source sentence, as a language model of Hugging Face's."""

    def __init__(self, next_logits):
        super().__init__(transformers.PretrainedConfig(vocab_size=parity.VOCABULARY))
        self.next_logits = next_logits
        self.anchor = torch.nn.Parameter(torch.zeros(1))  # says on which device it is

    def forward(self, input_ids, **_):
        found = torch.tensor(np.array(self.next_logits(input_ids.numpy())))
        return transformers.modeling_outputs.CausalLMOutput(logits=found[:, None])

    def _update_finished_beams(self, **state):
        """Two rules of theirs give way to those of the paper's code, which are ours.

        Of the 2W best continuations theirs lets only the W best end, ours any; and at the length
        limit theirs takes hypotheses that were cut off for finished ones, ours those with an end.
        """
        last = state["topk_running_sequences"][:, :, state["cur_len"]]
        state["next_token_hits_stopping_criteria"] = last == tokenizer.EOS
        state["top_num_beam_mask"] = torch.ones_like(state["top_num_beam_mask"])
        return super()._update_finished_beams(**state)


def next_logits(model, params, source, prefixes):
    """Returns the logits after prefixes that begin with BOS, by a full forward pass."""
    rows = [[(source, prefix[1:])] for prefix in prefixes]
    batch = batching.fill(rows, SOURCE_LENGTH, SOURCE_LENGTH + EXTRA)
    return logits(model, params, batch)[:, prefixes.shape[1] - 1]


def their_search(model, params, source, beam_size, alpha):
    language_model = LanguageModel(functools.partial(next_logits, model, params, source))
    found = language_model.generate(
        torch.tensor([[tokenizer.BOS]]),
        generation_config=transformers.GenerationConfig(
            num_beams=beam_size, length_penalty=alpha, early_stopping="never",
            max_new_tokens=len(source) + 1 + EXTRA, use_cache=False, do_sample=False,
            eos_token_id=tokenizer.EOS, pad_token_id=tokenizer.PAD, bos_token_id=tokenizer.BOS,
            return_dict_in_generate=True, output_scores=True,
        ),
    )  # fmt: skip
    return found.sequences[0, 1:].tolist(), found.sequences_scores[0].item()


def random_model(config):
    model: Any = models.build(config.model, parity.VOCABULARY)
    params = jax.tree.map(lambda x: 1.5 * x, parity.model_parameters(model))
    # The last norm leans towards EOS, so that hypotheses end at all lengths.
    norm = params["params"]["decoder_1"]["feed_forward_residual"]["norm"]
    norm["bias"] += 0.5 * params["params"]["embedding"][tokenizer.EOS]
    return model, params


@pytest.mark.parametrize(
    ("beam_size", "alpha", "penalty"),
    [(2, 0.0, "gnmt"), (4, 0.0, "gnmt"), (4, 0.6, "length"), (4, 1.0, "length")],
)
def test_finds_what_hugging_faces_beam_search_finds(make_config, beam_size, alpha, penalty):
    config = make_config(
        {
            "decode.beam_size": beam_size,
            "decode.alpha": alpha,
            "decode.penalty": penalty,
            "decode.extra_tokens": EXTRA,
        }
    )
    model, params = random_model(config)
    rows = batching.fill([[(source, [])] for source in SOURCES], SOURCE_LENGTH, 1).source
    found = beam_search.BeamSearch(model, config.decode)(params, rows)
    ended = 0
    for source, tokens, score in zip(SOURCES, *map(np.array, found), strict=True):
        expected, expected_score = their_search(model, params, source, beam_size, alpha)
        if tokenizer.EOS in tokens:
            ended += 1
            assert tokens[: len(expected)].tolist() == expected
            assert not tokens[len(expected) :].any()
            # Their length, too, counts EOS and not BOS.
            parity.assert_close(score, expected_score, "score")
        else:
            assert tokenizer.EOS not in expected
    assert ended >= 4
