"""What a run's result.json has to hold, as `files.read_json` is told."""

from typing import Any

from transformer_jax import fields, files
from transformer_jax.evaluation import bleu

_SCORE = {"score": fields.NotNegative, "signature": str}
_BUCKET = {"tokens": str, "sentences": fields.Natural, "score": fields.NotNegative}
_KINDS = ("f1", "recall", "precision", "exact", "crossing", "malformed")
_PARSES = {
    **dict.fromkeys(_KINDS, fields.NotNegative),
    "tagging": files.Maybe(fields.NotNegative, null=True),
    "by_length": [{"words": str, "sentences": fields.Natural, "f1": fields.NotNegative}],
}
RESULT: dict[str, Any] = {  # whatever the model and its text
    "params": int,
    "ppl": fields.Above0,
    "wall_seconds": fields.NotNegative,
    "data_sha256": str,
    "tokenizer_sha256": str,
    "test_sha256": str,
    "data": {"languages": [str]},
    "decode": dict,
    # Which earlier versions, or other models, lack.
    "config_hash": files.Maybe(str),
    "git_commit": files.Maybe(str),
    "devices": files.Maybe([str]),
    "versions": files.Maybe({str: str}),
    "tokens_per_second": files.Maybe(fields.NotNegative, null=True),
    "sentences_per_second": files.Maybe(fields.NotNegative),
    "tokens_per_sentence": files.Maybe(dict.fromkeys(("source", "target"), fields.NotNegative)),
    "accuracy": files.Maybe({"share": fields.Share, "answers": fields.Positive}),
}


def scores(writes: bool, tested: bool) -> dict[str, Any]:
    """What a result says of the sets that the run was scored on, the test set perhaps among them.

    A model may write no sentences, or its text have no sources: then there is the perplexity alone.
    """
    one_set: dict[str, Any] = {"ppl": fields.Above0}
    lengths: dict[str, Any] = {}
    if writes:
        one_set |= {"bleu": {str: _SCORE, bleu.MAIN: _SCORE}, "parses": files.Maybe(_PARSES)}
        lengths["bleu_by_length"] = [_BUCKET]
        lengths["bleu_beyond_training"] = files.Maybe(_BUCKET, null=True)
    perhaps = files.Maybe(one_set)
    return {
        **one_set,
        **lengths,
        "test": one_set if tested else perhaps,
        "directions": files.Maybe({str: {**one_set, "test": perhaps}}),
    }
