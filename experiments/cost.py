"""What a run will cost: its parameters and its floating-point operations, without running it."""

import jax

from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.training import sharding
from transformer_jax.training import step as step_lib


def parameters(config: config_lib.Config) -> int:
    """Number of the model's parameters."""
    mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
    model = models.build(config.model, config.data.vocab_size)
    shapes, _ = step_lib.state_shapes_and_shardings(model, config, mesh)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes.params))


def training_flops(config: config_lib.Config) -> float:
    """Matrix-product operations of a whole training, padding included.

    A product of (m × k) with (k × n) counts 2 m k n; the backward pass counts twice the forward
    pass. Attention counts whole packed rows, as it is computed.
    """
    m, data = config.model, config.data
    source, target = data.source_length, data.target_length
    queries = m.num_heads * m.d_k + m.num_heads * m.d_v  # W_Q and W_O columns
    keys_values = m.key_value_heads * (m.d_k + m.d_v)  # W_K and W_V columns
    feed_forward = 2 * m.d_ff
    reach = m.num_heads * (m.d_k + m.d_v)  # one query's work for one key
    encoder = source * (m.d_model * (queries + keys_values + feed_forward) + source * reach)
    decoder = (
        target * (m.d_model * (2 * queries + keys_values + feed_forward) + target * reach)
        + target * source * reach
        + source * m.d_model * keys_values
    )
    logits = target * m.d_model * data.vocab_size
    rows = config.train.batch_tokens // target * config.train.num_steps
    return 3 * 2.0 * rows * (m.num_layers * (encoder + decoder) + logits)
