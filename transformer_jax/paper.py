"""The paper's numbers as data, and nowhere else: its recipe, and what its tables report."""

import dataclasses
from collections.abc import Mapping

from transformer_jax import config as config_lib


@dataclasses.dataclass(frozen=True)
class Reported:
    """A row of a table such as Table 3: beam search, no checkpoint averaging."""

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

# The base row's sizes: those that a base of another size scales with.
BASE_SIZES = {
    "model.num_layers": 6,
    "model.d_model": 512,
    "model.d_ff": 2048,
    "model.num_heads": 8,
    "model.d_k": 64,
    "model.d_v": 64,
    "train.num_steps": 100_000,
}


@dataclasses.dataclass(frozen=True)
class Translation:
    """A row of Table 2: tokenised BLEU on newstest2014, and training cost in FLOPs.

    The paper estimates the cost as time × GPUs × their sustained single-precision rate.
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
    sequential: str  # operations that cannot run at once
    sequential_power: int  # of n in them
    path: str  # the longest way between two positions through a network of such layers


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

# Its kinds, sizes and recipe; where Table 3 varies something, any of its values is the paper's.
RECIPE: dict[str, tuple[object, ...]] = {
    "model.architecture": ("transformer",),
    "model.num_layers": (6, 2, 4, 8),
    "model.d_model": (512, 256, 1024),
    "model.d_ff": (2048, 1024, 4096),
    "model.num_heads": (8, 1, 4, 16, 32),
    "model.d_k": (64, 16, 32, 128, 512),
    "model.d_v": (64, 16, 32, 128, 512),
    "model.dropout_rate": (0.1, 0.0, 0.2, 0.3),
    "model.attention_dropout_rate": (0,),
    "model.feed_forward_dropout_rate": (0,),
    "model.position": ("sinusoidal", "learned"),  # learned: row E
    "model.norm": ("layer_norm",),
    "model.norm_placement": ("post",),
    "model.embedding_norm": (False,),
    "model.feed_forward": ("relu",),
    "model.attention_pattern": ("window",),
    "model.window": (0,),
    "model.share_stacks": (False,),
    "train.num_steps": (100_000, 300_000),
    "train.label_smoothing": (0.1, 0.0, 0.2),
    "train.batch_tokens": (24_576, 25_000),  # "approximately 25000"
    "train.warmup_steps": (4000,),
    "train.learning_rate_scale": (1,),
    "train.adam_beta2": (0.98,),
    "train.objective": ("none",),
    "train.start_from": ("",),
    "train.teacher_layers": (0,),
    "data.directions": ("",),
    "data.vocabulary": ("bpe",),
    "data.train_max_tokens": (0,),
    "decode.beam_size": (4, 21),  # 21, and what follows it: Table 4
    "decode.alpha": (0.6, 0.3),
    "decode.penalty": ("gnmt",),
    "decode.extra_tokens": (50, 300),
}


def deviations(config: config_lib.Config) -> list[str]:
    """A line for each field of the recipe in which a run departs from the paper's."""
    found = [
        f"{name}={config_lib.get(config, name)}, where the paper has "
        f"{' or '.join(map(str, allowed))}"
        for name, allowed in RECIPE.items()
        if config_lib.get(config, name) not in allowed
    ]
    if config.model.key_value_heads != config.model.num_heads:
        found.append(
            f"model.num_kv_heads={config.model.num_kv_heads}, where the paper has as many as heads"
        )
    return found
