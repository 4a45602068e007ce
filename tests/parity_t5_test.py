"""T5, as first published, against Hugging Face's: logits, loss and every parameter's gradient.

Both end each stack in a norm, and have one table of position biases for all layers of a stack, none
where the decoder attends to the source. T5 has three habits of its own:
- It does not divide queries · keys: its query matrices are ours divided by sqrt(d_k).
- It reads its embeddings as they are, and divides the decoder's output by sqrt(d_model) instead:
  they are ours times sqrt(d_model).
- It has no biases. Ours are 0 here, and so are those that its feed-forwards are given, which change
  nothing but have a gradient.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from tests import parity
from transformer_jax import models
from transformer_jax.data import batching
from transformer_jax.models import embedding
from transformer_jax.training import losses

torch, transformers = parity.torch, parity.transformers

LENGTHS = [(150, 3), (4, 150), (2, 7), (90, 60), (1, 1)]  # beyond the farthest distance told apart


class T5(torch.nn.Module):
    """Theirs, over parameters that are ours: it reads products of them with factors."""

    def __init__(self, config):
        super().__init__()
        self.factors = {"shared": math.sqrt(config.d_model), "q": 1 / math.sqrt(config.d_k)}
        self.t5 = transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=parity.VOCABULARY, d_model=config.d_model, d_kv=config.d_k,
                d_ff=config.d_ff, num_layers=config.num_layers, num_heads=config.num_heads,
                relative_attention_num_buckets=32, relative_attention_max_distance=128,
                layer_norm_epsilon=1e-6, feed_forward_proj="relu", tie_word_embeddings=True,
                dropout_rate=0.0, attn_implementation="eager",
            )
        )  # fmt: skip
        for name, module in self.t5.named_modules():
            if name.endswith((".wi", ".wo")):
                module.bias = torch.nn.Parameter(torch.empty(module.out_features))

    def forward(self, **inputs):
        read = {
            name: self.factors.get(name.split(".")[-2], 1) * parameter
            for name, parameter in self.t5.named_parameters()
        }
        return torch.func.functional_call(self.t5, read, kwargs=inputs)


def pairs(config):
    yield parity.Pair("embedding", "t5.shared.weight")
    sublayers = {
        "encoder": {"attention": "SelfAttention", "feed_forward": None},
        "decoder": {
            "self_attention": "SelfAttention",
            "cross_attention": "EncDecAttention",
            "feed_forward": None,
        },
    }
    for stack, table in (("encoder", "position"), ("decoder", "decoder_position")):
        bias = f"t5.{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield parity.Pair(f"{table}/table", bias)
        yield parity.Pair(f"{stack}_end/scale", f"t5.{stack}.final_layer_norm.weight")
        for layer in range(config.num_layers):
            for place, (name, attention) in enumerate(sublayers[stack].items()):
                ours, theirs = f"{stack}_{layer}/{name}", f"t5.{stack}.block.{layer}.layer.{place}"
                yield parity.Pair(f"{ours}_residual/norm/scale", f"{theirs}.layer_norm.weight")
                if attention:
                    for part in ("query", "key", "value", "output"):
                        other = f"{theirs}.{attention}.{part[0]}.weight"
                        yield parity.Pair(f"{ours}/{part}/kernel", other)
                else:
                    for part, linear in (("inner", "wi"), ("outer", "wo")):
                        other = f"{theirs}.DenseReluDense.{linear}"
                        yield parity.Pair(f"{ours}/{part}/kernel", f"{other}.weight")
                        yield parity.Pair(f"{ours}/{part}/bias", f"{other}.bias")


def without_biases(params):
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if path[-1].key == "bias" else leaf, params
    )


def sentence_pairs():
    rng = np.random.default_rng(0)
    for lengths in LENGTHS:
        yield tuple(rng.integers(4, parity.VOCABULARY, length).tolist() for length in lengths)


def test_is_hugging_faces_t5(make_config):
    config = make_config(
        {
            "model.position": "t5",
            "model.norm": "rms_norm",
            "model.norm_placement": "pre",
            "model.feed_forward": "relu",
            "model.d_v": 6,  # T5 has no other than d_k
        }
    ).model
    model = models.build(config, parity.VOCABULARY)
    params = without_biases(parity.model_parameters(model))
    theirs, corresponding = T5(config), list(pairs(config))
    parity.copy(params, theirs, corresponding, {})
    sentences = list(sentence_pairs())
    packed = batching.fill([sentences[:2], sentences[2:]], 160, 160)
    padded = batching.fill([[pair] for pair in sentences], 152, 152)

    def loss(params, batch):
        outputs, matrix = models.outputs(model, params, batch), embedding.of(params)
        total = losses.cross_entropy(outputs, matrix, batch.labels, batch.target.segments, 0.0)
        return total.smoothed / total.tokens, embedding.logits(matrix, outputs)

    compare = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (found, logits), found_gradients = compare(params, packed)
    source, target = (
        [torch.tensor(x, dtype=torch.long) for x in (side.tokens, side.segments)]
        for side in (padded.source, padded.target)
    )
    labels = torch.tensor(np.where(padded.labels > 0, padded.labels, -100), dtype=torch.long)
    expected = theirs(
        input_ids=source[0],
        attention_mask=source[1],
        decoder_input_ids=target[0],
        decoder_attention_mask=target[1],
        labels=labels,
    )
    expected.loss.backward()
    real = np.asarray(logits)[packed.target.segments > 0]
    expected_logits = expected.logits.detach().numpy()[padded.target.segments > 0]
    parity.assert_close(real, expected_logits, "logits")
    parity.assert_close(found, expected.loss.item(), "loss")
    parity.assert_gradients_close(found_gradients, theirs, corresponding)

    gradients = parity.named(found_gradients)
    for name, unused in (("position/table", [16]), ("decoder_position/table", [])):
        # No key is after its query and 0 away; all other buckets are compared.
        assert np.flatnonzero(~gradients[name].any(axis=1)).tolist() == unused, name
