"""The paper's kinds, sizes and recipe, for saying where a run departs from them.

Where the paper's own Table 3 varies something, any of its values is the paper's.
"""

from transformer_jax import config as config_lib

PAPER: dict[str, tuple[object, ...]] = {
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
    "model.feed_forward": ("relu",),
    "model.attention_pattern": ("window",),
    "model.window": (0,),
    "train.num_steps": (100_000, 300_000),
    "train.label_smoothing": (0.1, 0.0, 0.2),
    "train.batch_tokens": (24_576, 25_000),  # "approximately 25000"
    "train.warmup_steps": (4000,),
    "train.learning_rate_scale": (1,),
    "train.adam_beta2": (0.98,),
    "train.scheduled_sampling": (0,),
    "data.train_max_tokens": (0,),
    "decode.beam_size": (4,),
    "decode.alpha": (0.6,),
    "decode.penalty": ("gnmt",),
    "decode.extra_tokens": (50,),
}


def deviations(config: config_lib.Config) -> list[str]:
    """One line for each field in which a run departs from the paper; none for the paper's own."""
    found = [
        f"{name}={config_lib.get(config, name)}, where the paper has "
        f"{' or '.join(map(str, allowed))}"
        for name, allowed in PAPER.items()
        if config_lib.get(config, name) not in allowed
    ]
    if config.model.key_value_heads != config.model.num_heads:
        found.append(
            f"model.num_kv_heads={config.model.num_kv_heads}, where the paper has as many as heads"
        )
    return found
