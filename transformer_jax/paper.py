"""The paper's numbers: its tables, and the values of config fields in its experiments."""

import dataclasses
from collections.abc import Mapping

from transformer_jax import config as config_lib


@dataclasses.dataclass(frozen=True)
class Reported:
    """Published results for one row of the paper's Table 3, or of a table with its columns.

    The paper uses beam search and no checkpoint averaging.
    """

    ppl: float  # per wordpiece
    bleu: float  # tokenised
    params: int | None = None  # in millions, where the paper prints it


TABLE3_ON = "WMT14 newstest2013"
TABLE3 = {
    "base": Reported(4.92, 25.8, 65),
    "A h=1": Reported(5.29, 24.9),
    "A h=4": Reported(5.00, 25.5),
    "A h=16": Reported(4.91, 25.8),
    "A h=32": Reported(5.01, 25.4),
    "B d_k=16": Reported(5.16, 25.1, 58),
    "B d_k=32": Reported(5.01, 25.4, 60),
    "C N=2": Reported(6.11, 23.7, 36),
    "C N=4": Reported(5.19, 25.3, 50),
    "C N=8": Reported(4.88, 25.5, 80),
    "C d_model=256": Reported(5.75, 24.5, 28),
    "C d_model=1024": Reported(4.66, 26.0, 168),
    "C d_ff=1024": Reported(5.12, 25.4, 53),
    "C d_ff=4096": Reported(4.75, 26.2, 90),
    "D P_drop=0.0": Reported(5.77, 24.6),
    "D P_drop=0.2": Reported(4.95, 25.5),
    "D eps_ls=0.0": Reported(4.67, 25.3),
    "D eps_ls=0.2": Reported(5.47, 25.7),
    "E": Reported(4.92, 25.7),
    "big": Reported(4.33, 26.4, 213),
}

# Sizes of the paper's base row. If a table has another base row, its sizes are scaled accordingly.
BASE_SIZES: dict[str, int] = {
    name: config_lib.get(config_lib.DEFAULTS, name)
    for name in (
        "model.num_layers",
        "model.d_model",
        "model.d_ff",
        "model.num_heads",
        "model.d_k",
        "model.d_v",
        "train.num_steps",
    )
}


@dataclasses.dataclass(frozen=True)
class Translation:
    """A row of Table 2: tokenised BLEU on newstest2014, and training cost in FLOPs.

    The paper estimates the cost as training time × number of GPUs × sustained single-precision
    FLOPS of a GPU.
    """

    bleu_de: float | None = None
    bleu_fr: float | None = None
    flops_de: float | None = None
    flops_fr: float | None = None


TABLE2 = {
    "ByteNet": Translation(23.75),
    "Deep-Att + PosUnk": Translation(None, 39.2, None, 1.0e20),
    "GNMT + RL": Translation(24.6, 39.92, 2.3e19, 1.4e20),
    "ConvS2S": Translation(25.16, 40.46, 9.6e18, 1.5e20),
    "MoE": Translation(26.03, 40.56, 2.0e19, 1.2e20),
    "Deep-Att + PosUnk ensemble": Translation(None, 40.4, None, 8.0e20),
    "GNMT + RL ensemble": Translation(26.30, 41.16, 1.8e20, 1.1e21),
    "ConvS2S ensemble": Translation(26.36, 41.29, 7.7e19, 1.2e21),
    "Transformer base": Translation(27.3, 38.1, 3.3e18),
    "Transformer big": Translation(28.4, 41.8, 2.3e19),
}


@dataclasses.dataclass(frozen=True)
class LayerKind:
    """A row of Table 1: n is the length, d the width, k the kernel, r the neighbourhood."""

    complexity: str  # operations of a layer
    powers: Mapping[str, int]  # of n and of d in the complexity
    sequential: str  # sequential operations
    sequential_power: int  # the power of n in the sequential operations
    path: str  # longest path between two positions through a network of such layers


TABLE1 = {
    "self-attention": LayerKind("O(n² d)", {"n": 2, "d": 1}, "O(1)", 0, "O(1)"),
    "recurrent": LayerKind("O(n d²)", {"n": 1, "d": 2}, "O(n)", 1, "O(n)"),
    "convolutional": LayerKind("O(k n d²)", {"n": 1, "d": 2}, "O(1)", 0, "O(log_k n)"),
    "self-attention, restricted": LayerKind("O(r n d)", {"n": 1, "d": 1}, "O(1)", 0, "O(n / r)"),
}


@dataclasses.dataclass(frozen=True)
class Parser:
    """A row of Table 4: F1 on section 23 of the Wall Street Journal."""

    name: str
    training: str
    f1: float


TABLE4 = (
    Parser("Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", 88.3),
    Parser("Petrov et al. (2006)", "WSJ only, discriminative", 90.4),
    Parser("Zhu et al. (2013)", "WSJ only, discriminative", 90.4),
    Parser("Dyer et al. (2016)", "WSJ only, discriminative", 91.7),
    Parser("Transformer (4 layers)", "WSJ only, discriminative", 91.3),
    Parser("Zhu et al. (2013)", "semi-supervised", 91.3),
    Parser("Huang & Harper (2009)", "semi-supervised", 91.3),
    Parser("McClosky et al. (2006)", "semi-supervised", 92.1),
    Parser("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Parser("Transformer (4 layers)", "semi-supervised", 92.7),
    Parser("Luong et al. (2015)", "multi-task", 93.0),
    Parser("Dyer et al. (2016)", "generative", 93.3),
)
PARSING_LAYERS = 4  # N of its Transformer

# Further values that the paper has for a field, besides the default.
ALTERNATIVES: dict[str, tuple[object, ...]] = {
    "model.num_layers": (2, 4, 8),
    "model.d_model": (256, 1024),
    "model.d_ff": (1024, 4096),
    "model.num_heads": (1, 4, 16, 32),
    "model.d_k": (16, 32, 128, 512),
    "model.d_v": (16, 32, 128, 512),
    "model.dropout_rate": (0.0, 0.2, 0.3),
    "model.position": ("learned",),  # row E
    "train.num_steps": (300_000,),
    "train.label_smoothing": (0.0, 0.2),
    "train.batch_tokens": (25_000,),  # "approximately 25000"
    "decode.beam_size": (21,),  # Table 4, as the two below
    "decode.alpha": (0.3,),
    "decode.extra_tokens": (300,),
}
# Fields of model, train and decode that are not part of the paper's recipe, such as those that
# determine how numbers are computed. `deviations` compares num_kv_heads with num_heads instead.
_UNSPECIFIED = {
    "model.num_kv_heads",
    "model.max_positions",
    "model.compute_dtype",
    "model.attention_kernel",
    "model.rematerialise",
    "train.accumulation_steps",
    "train.seed",
    "decode.batch_sentences",
}
# Fields of data that belong to the recipe; the others describe a corpus.
_DATA_RECIPE = {"data.directions", "data.vocabulary", "data.train_max_tokens"}


def deviations(config: config_lib.Config) -> list[str]:
    """Returns a line of text for each config field whose value differs from the paper's recipe."""
    lines = []
    for name, papers in config_lib.flatten(config_lib.DEFAULTS).items():
        in_recipe = name.startswith(("model.", "train.", "decode.")) or name in _DATA_RECIPE
        allowed = (papers, *ALTERNATIVES.get(name, ()))
        value = config_lib.get(config, name)
        if in_recipe and name not in _UNSPECIFIED and value not in allowed:
            values = " or ".join(str(each) or "none" for each in allowed)
            lines.append(f"{name}={value}, where the paper has {values}")
    if config.model.key_value_heads != config.model.num_heads:
        lines.append(
            f"model.num_kv_heads={config.model.num_kv_heads}, where the paper has one for each head"
        )
    return lines
