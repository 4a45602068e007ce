"""Faults of what is computed: models, losses, steps, evaluation and decoding; see `faults`."""

from tests.mutants import faults

Fault = faults.Fault

_TRANSFORMER = "tests/transformer_test.py::test_"
CACHE = _TRANSFORMER + "cached_decoding_equals_the_full_forward_pass"
PACKING = _TRANSFORMER + "packing_and_padding_change_no_sentences_logits"
TABLES = _TRANSFORMER + "a_position_kinds_parameters_stand_once_in_a_stack"
_ATTENTION = "tests/attention_test.py::test_"
MASKS = _ATTENTION + "masks_are_what_their_names_say"
LOOPS = _ATTENTION + "equals_loops[0-4-2-5-2]"
REFERENCE = (
    "tests/reference_test.py::test_logits_and_gradients_are_the_papers_equations"
    "[{}-(1.0, 1.0, 1.0)]"
)
_POSITIONS = "tests/positions_test.py::test_"
SLOPES = _POSITIONS + "alibi_slopes_are_the_published_ones"
ALIBI = _POSITIONS + "alibi_subtracts_slope_times_distance"
ROTARY = _POSITIONS + "rotary_multiplies_by_a_complex_number"
RELATIVE = _POSITIONS + "relative_positions_are_shaws_equations"
T5 = _POSITIONS + "t5_buckets_of_an_encoder_tell_before_from_after"
_BEAM = "tests/beam_search_test.py::test_"
BEAM = _BEAM + "the_early_stop_changes_nothing"
BEAM_GROWS = _BEAM + "sentences_that_leave_the_batch_and_caches_that_grow_change_nothing"
GREEDY = _BEAM + "greedy_takes_the_likeliest_token"
PERPLEXITY = "tests/evaluation_test.py::test_perplexity_counts_every_token_of_every_sentence"
LOSS = "tests/losses_test.py"
STEPS = "tests/step_test.py"

FAULTS: dict[str, list[Fault]] = {
    "transformer_jax/models/attention.py": [
        Fault("wrong attention scale", "d_k) / math.sqrt(d_k)", "d_k) / d_k", LOOPS),
        Fault(
            "key–value heads mis-grouped",
            "queries.reshape(batch, kv_heads, -1, d_k)",
            "queries[:, ::-1].reshape(batch, kv_heads, -1, d_k)[:, :, ::-1]",
            LOOPS,
        ),
        Fault(
            "a transposed projection",
            "x, kernel.reshape(self.heads))",
            "x, kernel.T.reshape(self.heads))",
            REFERENCE,
        ),
        Fault(
            "values are read without what positions add",
            "mixed if related is None else mixed + related",
            "mixed",
            RELATIVE,
        ),
    ],
    "transformer_jax/models/masks.py": [
        Fault("causal mask one too wide", ":, None] >= key", ":, None] + 1 >= key", MASKS),
        Fault("causal mask one too narrow", ":, None] >= key", ":, None] > key", MASKS),
        Fault("window one too narrow", "abs(distance) <= window", "abs(distance) < window", MASKS),
        Fault(
            "window one too wide", "abs(distance) <= window", "abs(distance) <= window + 1", MASKS
        ),
    ],
    "transformer_jax/models/embedding.py": [
        Fault(
            "missing sqrt(d_model)",
            ".astype(dtype) * math.sqrt(embedding.shape[-1])",
            ".astype(dtype)",
            REFERENCE,
        ),
    ],
    "transformer_jax/models/transformer.py": [
        Fault(
            "encoder sees a row's other sentences",
            "x = layer(x, same & pattern, source.positions, rates)",
            "x = layer(x, pattern, source.positions, rates)",
            PACKING + "[{}]",
        ),
        Fault(
            "decoder sees sources of a row's other sentences",
            "masks.same_segment(target.segments, source.segments)",
            "masks.same_segment(jnp.sign(target.segments), jnp.sign(source.segments))",
            PACKING + "[{}]",
        ),
        Fault(
            "decoding sees padding of the source",
            "source.segments > 0",
            "source.segments >= 0",
            GREEDY,
        ),
    ],
    "transformer_jax/models/hypotheses.py": [
        Fault(
            "hypotheses keep their own past when they change places",
            "return self._replace(ancestors=ancestors)\n",
            "return self\n",
            CACHE + "[{}]",
        ),
        Fault(
            "decoding sees one position ahead",
            "masks.causal(here, self.slots)",
            "masks.causal(here + 1, self.slots)",
            CACHE + "[{}]",
        ),
    ],
    "transformer_jax/models/decoder.py": [
        Fault(
            "a decoder's target begins anew at position 0",
            "after = target.positions + ours.sum(axis=-1)",
            "after = target.positions",
            "tests/decoder_test.py::test_is_the_equations_of_one_sequence[causal-0]",
        ),
        Fault(
            "a decoder sees the other sentences of a row",
            "masks.same_segment(segments, segments) & masks",
            "masks",
            PACKING + "[{'model.architecture': 'decoder'}]",
        ),
        Fault(
            "decoding alone sees padding of the source",
            "(source.segments > 0)[:, None",
            "(source.segments >= 0)[:, None",
            GREEDY,
        ),
    ],
    "transformer_jax/models/layers.py": [
        Fault(
            "cache position off by one",
            "positions), first)",
            "positions), first + x.shape[1])",
            CACHE + "[{}]",
        ),
        Fault(
            "decoded token's position off by one",
            "self._whole(x, y, positions, own, source, dropout.NONE)",
            "self._whole(x, y, positions + 1, own, source, dropout.NONE)",
            CACHE + "[{'model.position': 't5'}]",
        ),
        Fault(
            "T5 bias per layer instead of shared",
            "layer(config, position, ",
            "layer(config, positions_lib.KINDS[config.position](config), ",
            TABLES,
        ),
    ],
    "transformer_jax/models/positions.py": [
        Fault("ALiBi's slopes off by one", "-8 * (i + 1) / power)", "-8 * i / power)", SLOPES),
        Fault("ALiBi rewards distance", "return -slopes", "return slopes", ALIBI),
        Fault(
            "rotary turns the other way",
            "even * cos - odd * sin, even * sin + odd * cos",
            "even * cos + odd * sin, odd * cos - even * sin",
            ROTARY,
        ),
        Fault(
            "relative positions confuse before and after",
            "jnp.clip(offset, -self",
            "jnp.clip(-offset, -self",
            RELATIVE,
        ),
        Fault(
            "queries meet relative positions unscaled",
            "queries / math.sqrt(self.config.d_k), vectors",
            "queries, vectors",
            RELATIVE,
        ),
        Fault("T5 confuses before and after", "jnp.where(offset > 0", "jnp.where(offset < 0", T5),
        Fault(
            "T5 sees one distance too few", "exact = buckets // 2", "exact = buckets // 2 - 1", T5
        ),
    ],
    "transformer_jax/models/recurrent_attention.py": [
        Fault(
            "Luong's context and output exchanged",
            "[context, output]",
            "[output, context]",
            "tests/recurrent_test.py::test_dot_attention_is_luongs",
        ),
        Fault(
            "Bahdanau's tanh missing",
            "jnp.tanh(self.from_state(state)[:, :, None] + source.keys[:, None])",
            "self.from_state(state)[:, :, None] + source.keys[:, None]",
            "tests/recurrent_test.py::test_additive_attention_is_bahdanaus",
        ),
    ],
    "transformer_jax/models/recurrent.py": [
        Fault(
            "a sampled word begins the next sentence",
            "own & ~begins",
            "own",
            "tests/recurrent_test.py::test_a_sampled_word_stays_in_its_sentence",
        ),
        Fault(
            "recurrent decoder remembers the sentence before",
            "jnp.where(fresh, a[:, None], b)",
            "jnp.where(fresh & (b == 0), a[:, None], b)",
            PACKING + "[{'model.architecture': 'rnn', 'model.position': 'none'}]",
        ),
    ],
    "transformer_jax/models/recurrent_cells.py": [
        Fault(
            "recurrent encoder remembers the sentence before",
            "tuple(jnp.where(begins[:, None], 0, part) for part in state), projected",
            "state, projected",
            PACKING + "[{'model.architecture': 'rnn', 'model.position': 'none'}]",
        ),
    ],
    "transformer_jax/models/convolutional.py": [
        Fault(
            "a convolution's gate and value exchanged",
            "value * nn.sigmoid(gate)",
            "gate * nn.sigmoid(value)",
            "tests/recurrent_test.py::test_a_convolution_is_gated",
        ),
        Fault(
            "a convolutional decoder forgets what it has read",
            '(self._projection("query")(x) + embedded)',
            'self._projection("query")(x)',
            "tests/recurrent_test.py::test_a_convolutional_decoders_attention_is_gehrings",
        ),
        Fault(
            "convolution reaches into the sentence beside",
            "(segments[:, there] == segments)",
            "(segments > 0)",
            PACKING + "[{'model.architecture': 'conv'}]",
        ),
    ],
    "transformer_jax/training/losses.py": [
        Fault("smoothing in perplexity", "jnp.sum(true,", "jnp.sum(smoothed,", LOSS),
        Fault(
            "end token not counted in perplexity",
            "(segments > 0) & (labels != tokenizer.PAD)",
            "(segments > 0) & (labels != tokenizer.EOS)",
            PERPLEXITY,
        ),
        Fault(
            "a label of PAD counts",
            "(segments > 0) & (labels != tokenizer.PAD)",
            "segments > 0",
            LOSS,
        ),
    ],
    "transformer_jax/evaluation/evaluators.py": [
        Fault(
            "perplexity is over extra ids too",
            "embedding.of(params)[: config.vocab_size]",
            "embedding.of(params)",
            PERPLEXITY,
        ),
        Fault(
            "dropout active in evaluation",
            "models.outputs(model, params, batch)",
            "models.outputs(model, params, batch, models.dropout.Rates(jax.numpy.float32(0.1)), "
            "jax.random.key(0))",
            PERPLEXITY,
        ),
    ],
    "transformer_jax/training/step.py": [
        Fault(
            "the source's tokens do not count in the mean",
            "total.tokens + weight * source.tokens",
            "total.tokens",
            "tests/decoder_test.py::test_the_source_counts_by_its_weight",
        ),
        Fault(
            "every step drops the same elements",
            "jax.random.fold_in(key, state.step)",
            "key",
            STEPS,
        ),
        Fault(
            "every part of a step drops the same elements",
            "jax.random.fold_in(key, index)",
            "key",
            STEPS,
        ),
    ],
    "transformer_jax/decoding/beam_search.py": [
        Fault(
            "wrong length penalty",
            "((5 + length) / 6) ** alpha",
            "((6 + length) / 6) ** alpha",
            BEAM,
        ),
        Fault(
            "end token not counted in a hypothesis's length",
            "self._penalised(top_scores, beam.step + 1)",
            "self._penalised(top_scores, beam.step)",
            BEAM,
        ),
        Fault(
            "beam search stops too early",
            "bound = self._penalised(beam.scores[:, 0], beam.limits)",
            "bound = beam.scores[:, 0]",
            BEAM,
        ),
        Fault(
            "sentences that leave take each other's places",
            "all_rows[sentences[done]] = np.asarray(rows)[done]",
            "all_rows[done] = np.asarray(rows)[done]",
            BEAM_GROWS,
        ),
    ],
}
