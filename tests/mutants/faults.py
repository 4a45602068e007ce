"""One-line faults, by file, each with the tests of which at least one must fail.

Those of models, and of what computes with them, stand in `model_faults`. A fault that no test
notices is a law that no test holds: write the test, then list the fault.
"""

from typing import NamedTuple

_SIGNIFICANCE = "tests/significance_test.py::test_"
_FLOOR = "tests/noise_floor_test.py::test_"
INTERVAL = _SIGNIFICANCE + "sentences_and_seeds_both_widen_the_interval"
VERDICTS = _SIGNIFICANCE + "verdicts"
_TREES, _PARSEVAL = "tests/trees_test.py::test_", "tests/parseval_test.py::test_"
DAMAGED = "tests/faults_test.py::test_a_damaged_checkpoint_is_set_aside_for_the_one_before"
SIGTERM = "tests/faults_test.py::test_sigterm_leaves_a_checkpoint_of_the_last_step"
_DIRECTIONS = "tests/directions_test.py::test_"
SECOND = "tests/faults_test.py::test_a_second_run_in_a_folder_is_refused"


class Fault(NamedTuple):
    """What is wrong, the text that becomes another, and the tests that should notice."""

    name: str
    old: str
    new: str
    tests: str


FAULTS: dict[str, list[Fault]] = {
    "experiments/analysis/intervals.py": [
        Fault(
            "no variance of seeds", "known + sum(part for", "known + 0.0 * sum(part for", INTERVAL
        ),
        Fault(
            "no correction for many rows",
            "(len(chances) - place) * chances[name]",
            "chances[name]",
            _FLOOR + "of_tables_without_differences_5_percent_show_one",
        ),
        Fault(
            "too much freedom",
            "part**2 / freedom for",
            "part**2 / (freedom + 1) for",
            INTERVAL,
        ),
    ],
    "experiments/analysis/noise_floor.py": [
        Fault(
            "one estimate counts as two",
            "if ours is theirs:",
            "if False:",
            _FLOOR + "one_seed_has_the_noise_of_a_new_run",
        ),
        Fault(
            "a wild row is pooled",
            "if chance < LEVEL}",
            "if False}",
            _FLOOR + "a_row_that_varies_clearly_more_neither_gives_nor_takes",
        ),
    ],
    "experiments/analysis/tuning.py": [
        Fault(
            "what chooses scores",
            "slice(1, None, 2)",
            "slice(0, None, 2)",
            "tests/tuning_test.py::test_what_is_chosen_is_scored_as_high_as_it_is",
        ),
    ],
    "experiments/analysis/significance.py": [
        Fault("a tie may contradict", "if row in ties and", "if row not in ties and", VERDICTS),
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
    "experiments/analysis/comparison.py": [
        Fault(
            "a mark is filled by its own row's interval alone",
            "found[name].is_sure",
            "compared.gaps[name].excludes_0",
            "tests/published_page_test.py::"
            "test_the_summary_counts_verdicts_and_marks_are_filled_by_them",
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
            "self.names[slot * self.for_each % len(self.names) :]",
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
    "transformer_jax/training/metrics.py": [
        Fault(
            "a log may go back",
            'record["step"] <= before',
            'record["step"] < 0',
            "tests/damaged_sweeps_test.py::test_a_damaged_file_is_not_reported",
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
        Fault(
            "a translation may end the script",
            '.replace("<", "\\\\u003c")',
            "",
            "tests/escaping_test.py::test_no_text_becomes_part_of_the_page_of_a_sweep",
        ),
    ],
    "transformer_jax/data/dataset.py": [
        Fault(
            "an objective reads what is said of the direction",
            "for i in once], [[]] * len(once))",
            "for i in once], [tags[i] for i in once])",
            _DIRECTIONS + "a_tag_is_all_that_differs_from_the_plain_corpus",
        ),
        Fault(
            "a row has no room for a tag",
            "source.lengths + tag_tokens >= config.source_length",
            "source.lengths >= config.source_length",
            _DIRECTIONS + "an_epoch_reads_each_pair_once_in_each_direction",
        ),
    ],
    "transformer_jax/data/corruption.py": [
        Fault(
            "no sentinel ends the spans",
            "starts = np.append(np.flatnonzero(begins[spans]), spans.sum())",
            "starts = np.flatnonzero(begins[spans])",
            "tests/corruption_test.py::test_the_worked_example_of_t5",
        ),
        Fault(
            "a text keeps its ends",
            "gaps[[0, -1]] -= 1",
            "gaps[[1, -1]] -= 1",
            "tests/corruption_test.py::test_every_mask_of_the_right_numbers_is_equally_likely",
        ),
    ],
    "transformer_jax/data/examples.py": [
        Fault(
            "every epoch corrupts alike",
            "(self._seed, epoch, *numbers, 1)",
            "(self._seed, 0, *numbers, 1)",
            "tests/objectives_test.py::test_each_epoch_corrupts_both_sides_of_the_training_pairs_anew",
        ),
    ],
    "transformer_jax/data/tokenizer.py": [
        Fault(
            "bytes begin where special tokens end but for one",
            "[[len(SPECIAL) + byte for byte",
            "[[len(SPECIAL) - 1 + byte for byte",
            "tests/tokenizer_test.py::test_bytes_are_those_of_utf_8_behind_the_special_tokens",
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
    "transformer_jax/data/trees.py": [
        Fault(
            "a label that differs is well formed",
            "is_whole &= found[place].label == label",
            "pass",
            _TREES + "what_is_malformed_is_repaired_and_told",
        ),
        Fault(
            "what never opened is lost",
            "found.insert(0, Bracket(label, 0, len(tags)))",
            "pass",
            _TREES + "what_is_malformed_is_repaired_and_told",
        ),
        Fault(
            "a word too many is well formed",
            "not is_open and len(tags) == len(words)",
            "not is_open",
            _TREES + "what_is_malformed_is_repaired_and_told",
        ),
    ],
    "transformer_jax/data/treebank.py": [
        Fault(
            "function tags are kept",
            're.split("[-=]", label)[0] or label',
            "label",
            _TREES + "annotations_empty_elements_and_function_tags_are_dropped",
        ),
        Fault(
            "features of word classes are kept",
            'label.split("_")[0] or label',
            "label",
            _TREES + "annotations_empty_elements_and_function_tags_are_dropped",
        ),
        Fault(
            "parts of speech do not identify a corpus",
            "[trees.bracketed(tree) for tree in found],",
            '[trees.linearised(tree, "xx") for tree in found],',
            _TREES + "a_corpus_pairs_sentences_with_their_trees",
        ),
    ],
    "transformer_jax/evaluation/parseval.py": [
        Fault(
            "particles are no adverbs",
            '{"PRT": "ADVP"}',
            "{}",
            _PARSEVAL + "punctuation_top_and_equal_labels_are_as_in_collins",
        ),
        Fault(
            "a bracket is matched twice",
            "(collections.Counter(theirs) & collections.Counter(ours)).total()",
            "sum(bracket in theirs for bracket in ours)",
            _PARSEVAL + "every_sentence_of_evalbs_sample_counts_as_evalb_printed",
        ),
        Fault(
            "brackets of punctuation count",
            "and place[start] < place[end]",
            "",
            _PARSEVAL + "punctuation_top_and_equal_labels_are_as_in_collins",
        ),
        Fault(
            "brackets that touch cross",
            "any(a < start < b < end or start < a < end < b",
            "any(a < start <= b < end or start < a <= end < b",
            _PARSEVAL + "every_sentence_of_evalbs_sample_counts_as_evalb_printed",
        ),
    ],
}
