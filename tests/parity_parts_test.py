"""Norms, the loss and position kinds against PyTorch and Hugging Face transformers."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import parity
from transformer_jax import config as config_lib
from transformer_jax.models import attention, layers, masks, positions
from transformer_jax.training import losses

torch = parity.torch
gptj = parity.need("transformers.models.gptj.modeling_gptj")
t5 = parity.need("transformers.models.t5.modeling_t5")
bloom = parity.need("transformers.models.bloom.modeling_bloom")

LENGTH = 150  # beyond the farthest distance that T5 tells apart


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [("layer_norm", torch.nn.LayerNorm), ("rms_norm", torch.nn.RMSNorm)],
)
def test_norms_are_pytorchs(make_config, kind, theirs):
    config = make_config({"model.norm": kind}).model
    ours, module = layers.make_norm(config), theirs(config.d_model, eps=1e-6)
    x = np.random.default_rng(0).normal(size=(3, 5, config.d_model)).astype(np.float32)
    pairs = [parity.Pair("scale", "weight")]
    if kind == "layer_norm":
        pairs.append(parity.Pair("bias", "bias"))
    assert_layers_agree(ours, module, pairs, x, module)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_pytorchs_over_real_tokens(smoothing):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 6, 20)).astype(np.float32) * 3
    labels = rng.integers(1, 20, (3, 6))
    segments = np.array([[1, 1, 2, 2, 2, 3], [1, 1, 1, 1, 0, 0], [0] * 6])

    def loss(logits, smoothing):
        """The logits as those of themselves: by the matrix that changes nothing."""
        found = losses.cross_entropy(
            logits, jnp.eye(20), jnp.array(labels), jnp.array(segments), smoothing
        )
        return found.smoothed, found.true

    exact = {}
    for share in (0.0, smoothing):
        (found, exact[share]), gradient = jax.value_and_grad(loss, has_aux=True)(
            jnp.array(logits), share
        )
        theirs = torch.tensor(logits, requires_grad=True)
        expected = torch.nn.functional.cross_entropy(
            theirs.flatten(0, 1),
            torch.tensor(np.where(segments > 0, labels, -100)).flatten(),
            reduction="sum",
            label_smoothing=share,
        )
        expected.backward()
        parity.assert_close(found, expected.item(), f"loss with eps {share}")
        parity.assert_close(gradient, theirs.grad.numpy(), f"gradient with eps {share}")
        if not share:
            parity.assert_close(exact[share], expected.item(), "loss without smoothing")
    assert exact[smoothing] == exact[0.0]  # what perplexity counts knows no eps


class SelfAttention(nn.Module):
    """One self-attention with its position kind."""

    config: config_lib.ModelConfig
    causal: bool

    @nn.compact
    def __call__(self, x):
        kind = positions.KINDS[self.config.position](self.config, causal=self.causal)
        attend = attention.MultiHeadAttention(self.config, kind)
        places = jnp.arange(x.shape[1])[None]
        everywhere = masks.within_window(places, places, 0)
        mask = masks.causal(places, places) if self.causal else everywhere
        read = attention.Attended(attend.keys_values(x, places), mask, places)
        return attend(x, places, read)


@pytest.mark.parametrize("is_decoder", [False, True])
def test_t5_bias_is_hugging_faces(make_config, is_decoder):
    config = make_config({"model.position": "t5", "model.d_v": 6}).model
    sizes = parity.transformers.T5Config(
        d_model=config.d_model, d_kv=config.d_k, num_heads=config.num_heads,
        dropout_rate=0.0, is_decoder=is_decoder, attn_implementation="eager",
    )  # fmt: skip
    theirs = t5.T5Attention(sizes, has_relative_attention_bias=True, layer_idx=0)
    theirs.scaling = config.d_k**-0.5  # T5 scales by its initial weights instead
    pairs = projections("q", "k", "v", "o")
    pairs.append(parity.Pair("T5Bias_0/table", "relative_attention_bias.weight"))
    ours, mask = SelfAttention(config, is_decoder), triangle() if is_decoder else None
    assert_layers_agree(ours, theirs, pairs, inputs(config), lambda x: theirs(x, mask)[0])


def test_rotary_is_hugging_faces(make_config):
    config = make_config({"model.position": "rotary", "model.d_k": 4, "model.d_v": 4}).model
    sizes = parity.transformers.GPTJConfig(
        n_embd=config.d_model, n_head=config.num_heads, rotary_dim=config.d_k,
        n_positions=LENGTH, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    theirs = gptj.GPTJAttention(sizes, layer_idx=0)
    pairs = projections("q_proj", "k_proj", "v_proj", "out_proj")
    places = torch.arange(LENGTH).expand(2, -1)
    turned = gptj.GPTJRotaryEmbedding(sizes)
    assert_layers_agree(
        SelfAttention(config, True),
        theirs,
        pairs,
        inputs(config),
        lambda x: theirs(x, turned(x, places), attention_mask=triangle())[0],
    )


@pytest.mark.parametrize("heads", [1, 6, 8, 12, 16, 20])
def test_alibi_slopes_are_hugging_faces(heads):
    found = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float)[:, 0, 1]
    parity.assert_close(positions.alibi_slopes(heads), found.numpy(), "slopes")


def projections(*theirs):
    ours = ("query", "key", "value", "output")
    return [
        parity.Pair(f"MultiHeadAttention_0/{name}/kernel", f"{other}.weight")
        for name, other in zip(ours, theirs, strict=True)
    ]


def inputs(config):
    return np.random.default_rng(0).normal(size=(2, LENGTH, config.d_model)).astype(np.float32)


def triangle():
    """Added to logits: later positions are out of sight."""
    return torch.full((LENGTH, LENGTH), torch.finfo(torch.float).min).triu(1)[None, None]


def assert_layers_agree(ours, theirs, pairs, x, forward):
    """Outputs, and gradients of their product with a random array: of parameters and of x."""
    params = parity.random_parameters(ours, jnp.array(x))
    parity.copy(params, theirs, pairs, {})
    weights = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)

    def total(params, x):
        out = ours.apply(params, x)
        return (out * weights).sum(), out

    compare = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))
    (gradients, x_gradient), out = compare(params, jnp.array(x))
    their_x = torch.tensor(x, requires_grad=True)
    their_out = forward(their_x)
    (their_out * torch.tensor(weights)).sum().backward()
    parity.assert_close(out, their_out.detach().numpy(), "output")
    parity.assert_close(x_gradient, their_x.grad.numpy(), "gradient of the input")
    parity.assert_gradients_close(gradients, theirs, pairs)
