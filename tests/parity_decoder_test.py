"""The decoder alone against Hugging Face's GPT-2: logits, loss and every parameter's gradient."""

import math

import pytest

from tests import parity
from transformer_jax import models

torch, transformers = parity.torch, parity.transformers


class LanguageModel(torch.nn.Module):
    """GPT-2 over source, EOS, BOS and target in one row, read where the target stands."""

    def __init__(self, config):
        super().__init__()
        self.scale, self.full = math.sqrt(config.d_model), config.source_attention == "full"
        self.gpt2 = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=parity.VOCABULARY, n_positions=config.max_positions,
                n_embd=config.d_model, n_layer=config.num_layers, n_head=config.num_heads,
                n_inner=config.d_ff, activation_function="gelu", layer_norm_epsilon=1e-6,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager",
            )
        )  # fmt: skip

    def forward(self, source, target):
        """One sentence pair after another, without padding; 0 is padding in what is given."""
        logits = torch.zeros(*target.shape, parity.VOCABULARY)
        for row in range(len(source)):
            read, written = (tokens[row][tokens[row] > 0] for tokens in (source, target))
            tokens = torch.cat([read, written])[None]
            length, prefix = tokens.shape[1], len(read) if self.full else 0
            hidden = torch.ones(length, length).triu(1)
            hidden[:prefix, :prefix] = 0
            # Ours multiplies embeddings by sqrt(d_model), theirs does not.
            found = self.gpt2(
                inputs_embeds=self.scale * self.gpt2.transformer.wte(tokens),
                attention_mask=(hidden * torch.finfo(torch.float).min)[None, None],
            )
            logits[row, : len(written)] = found.logits[0, len(read) :]
        return logits


def pairs(config):
    width = config.d_model
    yield parity.Pair("embedding", "gpt2.transformer.wte.weight")
    yield parity.Pair("position/table", "gpt2.transformer.wpe.weight")
    for layer in range(config.num_layers):
        ours, theirs = f"decoder_{layer}", f"gpt2.transformer.h.{layer}"
        for place, name in enumerate(("query", "key", "value")):
            columns = slice(place * width, (place + 1) * width)
            yield kernel(f"{ours}/self_attention/{name}", f"{theirs}.attn.c_attn", columns)
        yield kernel(f"{ours}/self_attention/output", f"{theirs}.attn.c_proj")
        for name, norm in (("self_attention", "ln_1"), ("feed_forward", "ln_2")):
            yield from norm_pairs(f"{ours}/{name}_residual/norm", f"{theirs}.{norm}")
        for name, linear in (("inner", "c_fc"), ("outer", "c_proj")):
            at = f"{ours}/feed_forward/{name}"
            yield kernel(at, f"{theirs}.mlp.{linear}")
            yield parity.Pair(f"{at}/bias", f"{theirs}.mlp.{linear}.bias")
    yield from norm_pairs("decoder_end", "gpt2.transformer.ln_f")


def norm_pairs(ours, theirs):
    yield parity.Pair(f"{ours}/scale", f"{theirs}.weight")
    yield parity.Pair(f"{ours}/bias", f"{theirs}.bias")


def kernel(ours, theirs, columns=slice(None)):
    """Their Conv1D's matrix is (in, out), as ours."""
    part = (slice(None), columns)
    return parity.Pair(f"{ours}/kernel", f"{theirs}.weight", part, turned=False)


@pytest.mark.parametrize("source_attention", ["causal", "full"])
def test_is_hugging_faces_gpt2(make_config, source_attention):
    config = make_config(
        {
            "model.architecture": "decoder",
            "model.source_attention": source_attention,
            "model.position": "learned",
            "model.norm_placement": "pre",
            "model.feed_forward": "gelu",
            "model.d_k": 4,  # GPT-2 has no other than d_model / h
            "model.d_v": 4,
        }
    ).model
    model = models.build(config, parity.VOCABULARY)
    params = parity.model_parameters(model)
    theirs = LanguageModel(config)
    names = [name for name, _ in theirs.named_parameters()]
    # Our attention has no biases.
    biases = [name for name in names if ".attn." in name and name.endswith("bias")]
    found = list(pairs(config))
    parity.copy(params, theirs, found, dict.fromkeys(biases, 0.0))
    parity.assert_models_agree(model, params, theirs, found)
