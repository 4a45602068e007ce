"""One-line faults, by file, each with the tests of which at least one must fail.

A fault that no test notices is a law that no test holds: write the test, then list the fault.
"""

from typing import NamedTuple

_TRANSFORMER = "tests/transformer_test.py::test_"
CACHE = _TRANSFORMER + "cached_decoding_equals_the_full_forward_pass"
PACKING = _TRANSFORMER + "packing_and_padding_change_no_sentences_logits"
TABLES = _TRANSFORMER + "a_position_kinds_parameters_stand_once_in_a_stack"
_ATTENTION = "tests/attention_test.py::test_"
MASKS = _ATTENTION + "masks_are_what_their_names_say"
LOOPS = _ATTENTION + "equals_loops[0-5-2-4-2]"
REFERENCE = (
    "tests/reference_test.py::test_logits_and_gradients_are_the_papers_equations"
    "[{}-(1.0, 1.0, 1.0)]"
)
_POSITIONS = "tests/positions_test.py::test_"
SLOPES = _POSITIONS + "alibi_slopes_are_the_published_ones"
ALIBI = _POSITIONS + "alibi_subtracts_slope_times_distance"
ROTARY = _POSITIONS + "rotary_multiplies_by_a_complex_number"
T5 = _POSITIONS + "t5_buckets_of_an_encoder_tell_before_from_after"
_BEAM = "tests/beam_search_test.py::test_"
BEAM = _BEAM + "the_early_stop_changes_nothing"
BEAM_GROWS = _BEAM + "sentences_that_leave_the_batch_and_caches_that_grow_change_nothing"
GREEDY = _BEAM + "greedy_takes_the_likeliest_token"
PERPLEXITY = "tests/evaluation_test.py::test_perplexity_counts_every_token_of_every_sentence"
LOSS = "tests/losses_test.py"
STEPS = "tests/step_test.py"
_SIGNIFICANCE = "tests/significance_test.py::test_"
INTERVAL = _SIGNIFICANCE + "sentences_and_seeds_both_widen_the_interval"
VERDICTS = _SIGNIFICANCE + "verdicts"
DAMAGED = "tests/faults_test.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before"
SIGTERM = "tests/faults_test.py::test_sigterm_leaves_a_checkpoint_of_the_last_step"
SECOND = "tests/faults_test.py::test_a_second_run_in_a_folder_is_refused"


class Fault(NamedTuple):
    """What is wrong, the text that becomes another, and the tests that should notice."""

    name: str
    old: str
    new: str
    tests: str


FAULTS: dict[str, list[Fault]] = {
    "experiments/analysis/intervals.py": [
        Fault("no variance of seeds", "known + sum(parts)", "known + 0.0", INTERVAL),
        Fault("too much freedom", "(len(side) - 1) for", "len(side) for", INTERVAL),
    ],
    "experiments/analysis/significance.py": [
        Fault("a tie may contradict", "if is_tie and abs", "if not is_tie and abs", VERDICTS),
    ],
    "experiments/sweep/results.py": [
        Fault(
            "rows share a folder",
            "        if owner != row:",
            "        if False:",
            "tests/safety_test.py::test_rows_of_one_folder_are_refused",
        ),
        Fault(
            "a row may lead out of the sweep",
            "if not _PLAIN.fullmatch(name) or",
            "if",
            "tests/safety_test.py::test_no_row_leads_out_of_the_workdir",
        ),
    ],
    "transformer_jax/drawing/tables.py": [
        Fault(
            "Markdown lets HTML through",
            '.replace("<", "&lt;")',
            "",
            "tests/escaping_test.py::test_no_cell_title_or_note_becomes_part_of_a_report",
        ),
    ],
    "experiments/sweep/progress.py": [
        Fault(
            "an engine's word beats a result",
            "cell.state not in (DONE, FAILED) and ",
            "",
            "tests/progress_test.py::test_what_is_done_or_failed_says_so_whatever_an_engine_says",
        ),
    ],
    "experiments/reporting/document.py": [
        Fault(
            "a translation may end the script",
            '.replace("<", "\\\\u003c")',
            "",
            "tests/escaping_test.py::test_no_text_becomes_part_of_the_page_of_a_sweep",
        ),
    ],
    "experiments/reporting/translations.py": [
        Fault(
            "a sentence's BLEU is another's",
            "for c in own.get(seed, ())]",
            "for c in reversed(own.get(seed, ()))]",
            "tests/report_page_test.py::"
            "test_translations_are_those_of_the_runs_and_their_scores_those_of_the_counts",
        ),
    ],
    "launch/local.py": [
        Fault(
            "a job that was stopped counts as failed",
            "if code == engine.RUN_AGAIN:",
            "if code == -engine.RUN_AGAIN:",
            "tests/local_test.py::test_a_job_that_was_stopped_from_outside_is_started_again",
        ),
        Fault(
            "jobs share a device",
            "self.names[slot * self.for_each :]",
            "self.names[slot:]",
            "tests/local_test.py::test_jobs_at_a_time_have_devices_that_no_other_has",
        ),
    ],
    "launch/slurm.py": [
        Fault(
            "another's run that refuses a cell fails it",
            '[ "$2" = 2 ] && exit',
            ":",
            "tests/handed_over_test.py::test_slurm_is_given_an_array_and_a_report_that_waits_for_it",
        ),
    ],
    "transformer_jax/training/checkpoint.py": [
        Fault(
            "a damaged checkpoint is read", "fault = manifest.fault(", 'fault = "" and (', DAMAGED
        ),
        Fault(
            "a checkpoint that lost its mark is deleted",
            "if (half_written or half_removed) and not manifest.is_there(folder):",
            "if half_written or half_removed:",
            "tests/bucket_test.py::test_only_what_has_neither_mark_nor_manifest_counts_as_half_written",
        ),
        Fault(
            "half of a removed checkpoint stays",
            "half_removed = folder.name in superseded",
            "half_removed = False",
            "tests/checkpoint_test.py::test_half_of_an_old_checkpoint_condemns_no_other",
        ),
        Fault(
            "the damaged checkpoint is set aside first",
            "reversed(self._steps())",
            "self._steps()",
            "tests/checkpoint_test.py::"
            "test_killed_while_it_sets_aside_a_start_still_sees_what_is_damaged",
        ),
        Fault(
            "a checkpoint in between is averaged",
            "if step % every == 0 or step == last",
            "if step",
            "tests/averaging_test.py::test_the_average_is_the_mean_of_the_last_checkpoints",
        ),
    ],
    "transformer_jax/training/manifest.py": [
        Fault(
            "digests are not compared", "if found[name] != expected", "if 0 and expected", DAMAGED
        ),
    ],
    "transformer_jax/distributed/sharding.py": [
        Fault(
            "activations go where XLA likes",
            "if mesh is None or mesh.size == 1:",
            "if True:",
            "tests/partitioned_test.py::test_fsdp_gathers_its_parameters_and_no_activations",
        ),
    ],
    "transformer_jax/distributed/preemption.py": [
        Fault("SIGTERM is not heard", "    return _told.is_set()", "    return False", SIGTERM),
    ],
    "transformer_jax/distributed/hosts.py": [
        Fault(
            "the dead are not missed",
            "if dead and not self._leaving.is_set():",
            "if False:",
            "tests/hosts_test.py::test_a_process_that_dies_is_named_and_two_can_go_on_where_four_were",
        ),
    ],
    "transformer_jax/runs/run_folder.py": [
        Fault("two runs in one folder", "fcntl.LOCK_EX |", "fcntl.LOCK_SH |", SECOND),
    ],
    "transformer_jax/drawing/html_pages.py": [
        Fault(
            "a token may end the script",
            '.replace("<", "\\\\u003c")',
            "",
            "tests/escaping_test.py::test_no_token_becomes_part_of_the_page_of_attention",
        ),
    ],
    "transformer_jax/data/token_cache.py": [
        Fault(
            "a truncated cache is read",
            "if found != length * kind.itemsize:",
            "if False:",
            "tests/damaged_files_test.py::test_a_damaged_cache_is_named",
        ),
    ],
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
            "hypotheses keep their own past when they change places",
            "return self._replace(ancestors=ancestors)",
            "return self",
            CACHE + "[{}]",
        ),
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
        Fault(
            "decoding sees one position ahead",
            "masks.causal(here, slots)",
            "masks.causal(here + 1, slots)",
            CACHE + "[{}]",
        ),
        Fault(
            "T5 bias per layer instead of shared",
            "(layers.EncoderLayer)(config, self.position)",
            "(layers.EncoderLayer)(config, positions_lib.KINDS[config.position](config))",
            TABLES,
        ),
    ],
    "transformer_jax/models/layers.py": [
        Fault(
            "cache position off by one",
            "cache.write(new, positions[0, 0] * x.shape[1])",
            "cache.write(new, (positions[0, 0] + 1) * x.shape[1])",
            CACHE + "[{}]",
        ),
        Fault(
            "decoded token's position off by one",
            "cache, mask, positions, slots)",
            "cache, mask, positions + 1, slots)",
            CACHE + "[{'model.position': 't5'}]",
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
            "recurrent encoder remembers the sentence before",
            "tuple(jnp.where(begins[:, None], 0, part) for part in state), projected",
            "state, projected",
            PACKING + "[{'model.architecture': 'rnn', 'model.position': 'none'}]",
        ),
        Fault(
            "recurrent decoder remembers the sentence before",
            "jnp.where(fresh, a[:, None], b)",
            "jnp.where(fresh & (b == 0), a[:, None], b)",
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
            "labels, segments > 0, eps",
            "labels, (segments > 0) & (labels != 2), eps",
            PERPLEXITY,
        ),
    ],
    "transformer_jax/evaluation/evaluators.py": [
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
