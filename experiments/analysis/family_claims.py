"""What papers say of families and objectives, beside what the runs of a sweep say.

T5's numbers are BLEU on newstest2014, English to German (Raffel et al. 2020, tables 1, 2, 4 and 5),
after training on another corpus first, 2^35 tokens of it: here only their signs can be compared.
"""

from experiments.analysis import claims

T5 = "Raffel et al. 2020"
CLAIMS = (
    claims.Claim(
        "two stacks are better than one that sees its prefix whole, and that than a causal one",
        f"{T5}, table 2: 26.98, 26.43 and 25.09",
        [
            claims.Inequality("base", "L decoder prefix"),
            claims.Inequality("L decoder prefix", "L decoder causal"),
        ],
    ),
    claims.Claim(
        "one stack that sees its prefix whole is as good, if it has the layers of both",
        "Zhang et al. 2022 of large models, Gao et al. 2022: here papers disagree",
        [claims.Inequality("L decoder prefix 2N", "base", strictly=False)],
    ),
    claims.Claim(
        "to see the source one way alone hurts, and a loss on the source hurts too",
        "Zhang et al. 2022, of translation",
        [
            claims.Inequality("L decoder prefix 2N", "L decoder causal 2N"),
            claims.Inequality("L decoder causal", "L decoder source loss"),
        ],
    ),
    claims.Claim(
        "two stacks of the same weights are nearly as good",
        f"{T5}, table 2: 26.72, where two stacks have 26.98",
        [claims.Inequality("L shared stacks", "base", strictly=False)],
    ),
    claims.Claim(
        "to restore spans first helps",
        f"{T5}, table 1: 26.98 with, 25.86 without",
        [claims.Inequality("O span corruption", "base")],
    ),
    claims.Claim(
        "to restore spans is better than to go on with a text",
        f"{T5}, table 2, encoder–decoder: 26.98 and 26.27",
        [claims.Inequality("O span corruption", "O prefix")],
    ),
    claims.Claim(
        "of masked words, their spans are no worse a target than the whole text",
        f"{T5}, table 5: 26.98 and 26.78",
        [claims.Inequality("O span corruption", "O BERT-style", strictly=False)],
    ),
    claims.Claim(
        "deshuffling is worst",
        f"{T5}, table 4: 26.11, where a prefix has 26.86 and BERT-style masking 26.78",
        [claims.Inequality(f"O {other}", "O deshuffling") for other in ("prefix", "BERT-style")],
    ),
    claims.Claim(
        "to say a masked half first helps where there are few pairs",
        "Song et al. 2019, after training on other text",
        [claims.Inequality("O MASS", "base")],
    ),
)
COMPARED = claims.compared(CLAIMS)
NOTE = (
    "T5's numbers are after training on far more text, so that only their signs compare. Rows O "
    "train on the texts of the training pairs, and on nothing else, for the first part of their "
    f"steps. {claims.VERDICTS} {claims.RECIPES}"
)
