"""The paper's kinds and recipe, for saying where a run departs from them.

Sizes (N, d_model, d_ff, h, d_k, d_v), P_drop, eps_ls and steps are not here: varying them is what
the paper's own Table 3 does.
"""

from transformer_jax import config as config_lib

PAPER: dict[str, tuple[object, ...]] = {
    "model.architecture": ("transformer",),
    "model.attention_dropout_rate": (0,),
    "model.feed_forward_dropout_rate": (0,),
    "model.position": ("sinusoidal", "learned"),  # learned: row E
    "model.norm": ("layer_norm",),
    "model.norm_placement": ("post",),
    "model.feed_forward": ("relu",),
    "model.window": (0,),
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
