"""Sentences as the paper's BLEU counts them, without Perl.

The steps of tensor2tensor's `get_ende_bleu.sh`: punctuation normalised, Moses' tokens, and in
German compounds split at hyphens; `multi-bleu.perl` then counts what stands between spaces.
Punctuation is normalised by both of Moses' scripts, `replace-unicode-punctuation` and
`normalize-punctuation`, in translations and references alike: newstest2014's references have „
where its translations have ".
"""

import importlib.metadata
import re
from collections.abc import Sequence

_HYPHEN = re.compile(rb"(\S)-(\S)")


def prepare(sentences: Sequence[str], language: str) -> list[str]:
    """Sentences with their tokens between single spaces.

    Args:
      sentences: as a reader would see them.
      language: of the sentences; it decides about abbreviations, quotes and compounds.
    """
    import sacremoses  # reads its tables of characters when it is imported: half a second

    # perl_parity: two quotes as the script treats them, not as its port thinks better.
    normaliser = sacremoses.MosesPunctNormalizer(
        language, pre_replace_unicode_punct=True, perl_parity=True
    )
    tokeniser = sacremoses.MosesTokenizer(language)
    prepared = [
        " ".join(tokeniser.tokenize(normaliser.normalize(sentence))) for sentence in sentences
    ]
    return [split_compounds(sentence) for sentence in prepared] if language == "de" else prepared


def split_compounds(sentence: str) -> str:
    """Parts every hyphen from what surrounds it: rich-text becomes rich ##AT##-##AT## text.

    Like the original one-liner this works on bytes, and a letter between two hyphens belongs to
    the first only: a-b-c becomes a ##AT##-##AT## b-c.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", sentence.encode()).decode()


def signature(language: str) -> str:
    """What was done to sentences, in the form of sacreBLEU's signatures."""
    compounds = "+atat" if language == "de" else ""
    version = importlib.metadata.version("sacremoses")
    return f"tok:punctuation+moses.{language}.{version}{compounds}"
