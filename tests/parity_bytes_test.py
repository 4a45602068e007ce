"""Our bytes against those of Hugging Face's ByT5 tokenizer."""

from tests import parity
from transformer_jax.data import tokenizer

OFFSET = len(tokenizer.SPECIAL) - 3  # ByT5 has no BOS
TEXTS = ["Neununddreißig Bären.", " a b ", "日本語 😀", "e\u0301\u2581"]


def test_tokens_are_byt5s_but_for_one_special_token_more():
    theirs = parity.transformers.ByT5Tokenizer()
    found = theirs(TEXTS, add_special_tokens=False).input_ids
    ours = tokenizer.ByteTokenizer()
    assert ours.encode(TEXTS) == [[token + OFFSET for token in row] for row in found]
    assert ours.decode(ours.encode(TEXTS)) == theirs.batch_decode(found)
