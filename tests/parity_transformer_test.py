"""The Transformer against torch.nn.Transformer: logits, loss and every parameter's gradient."""

import math

import numpy as np
import pytest

from tests import parity
from transformer_jax import models

torch = parity.torch


class Transformer(torch.nn.Module):
    """torch.nn.Transformer between one shared embedding and its transpose."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = torch.nn.Parameter(torch.empty(parity.VOCABULARY, config.d_model))
        is_pre = config.norm_placement == "pre"
        options = {
            "d_model": config.d_model,
            "nhead": config.num_heads,
            "dim_feedforward": config.d_ff,
            "dropout": 0.0,
            "activation": config.feed_forward,
            "layer_norm_eps": 1e-6,
            "batch_first": True,
            "norm_first": is_pre,
        }
        # By itself torch.nn.Transformer ends post-norm stacks in a norm too; the paper does not.
        ends = [torch.nn.LayerNorm(config.d_model, 1e-6) if is_pre else None for _ in range(2)]
        self.transformer = torch.nn.Transformer(
            custom_encoder=torch.nn.TransformerEncoder(
                torch.nn.TransformerEncoderLayer(**options),
                config.num_layers,
                norm=ends[0],
                enable_nested_tensor=False,
            ),
            custom_decoder=torch.nn.TransformerDecoder(
                torch.nn.TransformerDecoderLayer(**options), config.num_layers, norm=ends[1]
            ),
            d_model=config.d_model,
            nhead=config.num_heads,
            batch_first=True,
        )

    def embed(self, tokens):
        d_model = self.config.d_model
        pos, i = np.mgrid[: tokens.shape[1], : d_model // 2]
        angles = pos / 10000 ** (2 * i / d_model)
        table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(-1, d_model)
        return self.embedding[tokens] * math.sqrt(d_model) + torch.tensor(table, dtype=torch.float)

    def forward(self, source, target):
        length = target.shape[1]
        x = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=torch.ones(length, length).triu(1).bool(),
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=target == 0,
            memory_key_padding_mask=source == 0,
        )
        return x @ self.embedding.T


def pairs(config):
    found = [parity.Pair("embedding", "embedding")]
    sublayers = {
        "encoder": {"attention": "self_attn", "feed_forward": None},
        "decoder": {
            "self_attention": "self_attn",
            "cross_attention": "multihead_attn",
            "feed_forward": None,
        },
    }
    for stack, names in sublayers.items():
        for layer in range(config.num_layers):
            ours, theirs = f"{stack}_{layer}", f"transformer.{stack}.layers.{layer}"
            for place, (name, attention) in enumerate(names.items(), start=1):
                if attention:
                    found += attention_pairs(f"{ours}/{name}", f"{theirs}.{attention}", config)
                norm = f"{ours}/{name}_residual/norm"
                found += norm_pairs(norm, f"{theirs}.norm{place}")
            for name, linear in (("inner", "linear1"), ("outer", "linear2")):
                at = f"{ours}/feed_forward/{name}"
                found.append(parity.Pair(f"{at}/kernel", f"{theirs}.{linear}.weight"))
                found.append(parity.Pair(f"{at}/bias", f"{theirs}.{linear}.bias"))
        if config.norm_placement == "pre":
            found += norm_pairs(f"{stack}_end", f"transformer.{stack}.norm")
    return found


def attention_pairs(ours, theirs, config):
    d_model = config.d_model
    for place, name in enumerate(("query", "key", "value")):
        rows = slice(place * d_model, (place + 1) * d_model)
        yield parity.Pair(f"{ours}/{name}/kernel", f"{theirs}.in_proj_weight", rows)
    yield parity.Pair(f"{ours}/output/kernel", f"{theirs}.out_proj.weight")


def norm_pairs(ours, theirs):
    yield parity.Pair(f"{ours}/scale", f"{theirs}.weight")
    yield parity.Pair(f"{ours}/bias", f"{theirs}.bias")


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("feed_forward", ["relu", "gelu"])
def test_is_pytorchs_transformer(make_config, placement, feed_forward):
    config = make_config(
        {
            "model.norm_placement": placement,
            "model.feed_forward": feed_forward,
            "model.d_k": 4,  # PyTorch has no other than d_model / h
            "model.d_v": 4,
        }
    ).model
    model = models.build(config, parity.VOCABULARY)
    params = parity.model_parameters(model)
    theirs = Transformer(config)
    names = [name for name, _ in theirs.named_parameters()]
    # Our attention has no biases, as the paper's code.
    biases = [name for name in names if "attn" in name and name.endswith("bias")]
    parity.copy(params, theirs, pairs(config), dict.fromkeys(biases, 0.0))
    parity.assert_models_agree(model, params, theirs, pairs(config))
