"""Treebanks that are none: one clear line, as `tests/bad_input_test.py` has for other input."""

from tests import refusals


@refusals.table(
    ("a missing file", "train=X/none", r"data\.train: there is no file .*none"),
    ("no closing bracket", "train=X/open", r"open: the tree that begins in line 2 is not closed"),
    ("bad further trees", "parsed=X/text", r"text: line 1 has 'word' outside all brackets"),
    (
        "a slice of nothing",
        "parsed=X/good[9:]",
        r"data\.parsed: .*good\[9:\] takes none of its 9 t",
    ),
    ("unknown terminals", "tree_terminals=words", r"tree_terminals='words' is unknown.*pos, xx"),
    ("too small a vocabulary", "vocab_size=262", r"data\.vocab_size=262 is less than"),
)
def test_trees_that_are_none_are_named(server, commands_cache, tmp_path, case):
    override, message = case
    (tmp_path / "good").write_text("(S (NP (NN dog)) (. .))\n" * 9)
    (tmp_path / "open").write_text("(S (NN dog))\n(S (NN dog)")
    (tmp_path / "text").write_text("word")
    given = [f"{name}={tmp_path}/good" for name in ("train", "dev")]
    fields = ["corpus=trees", *given, override.replace("X", str(tmp_path))]
    arguments = [f"--workdir={tmp_path}/run", f"--cache_dir={commands_cache}"]
    arguments += [f"--config.data.{field}" for field in fields]
    refusals.assert_refused(server.run("transformer_jax.train", *refusals.TOY, *arguments), message)
