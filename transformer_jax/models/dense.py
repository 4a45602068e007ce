"""A dense layer over our products."""

from typing import Any, final

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from transformer_jax.models import products


@final
class Dense(nn.Module):
    """X W + b, with Linen's names and defaults.

    Attributes:
      features: O.
      use_bias: whether b is added.
      dtype: that X W + b is computed in; the parameters are float32.
      kernel_init: of W.
      bias_init: of b.
    """

    features: int
    use_bias: bool = True
    dtype: Any = jnp.float32
    kernel_init: nn.initializers.Initializer = nn.initializers.glorot_uniform()
    bias_init: nn.initializers.Initializer = nn.initializers.zeros_init()

    @nn.compact
    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features))
        leading = "ABCDE"[: x.ndim - 1]
        spec = f"{leading}I,IO->{leading}O"
        y = products.einsum(spec, x.astype(self.dtype), jnp.asarray(kernel, self.dtype))
        if not self.use_bias:
            return y
        bias = jnp.asarray(self.param("bias", self.bias_init, (self.features,)))
        # Added in float32, so that its gradient is summed in float32.
        return (y + bias).astype(self.dtype)
