"""Products of two arrays, in the form that each kind of device computes fastest.

A model's large products go through `einsum`. They are summed in float32, and their gradients are
products in the type of the operands: by default, JAX multiplies the float32 gradient of a bfloat16
product in float32, which is many times slower on an accelerator.

On CPUs, XLA's bfloat16 kernels (AMX, AVX-512) need row-major operands and a float32 result; XLA
converts the operands of any other product to float32. Operands are therefore made row-major there.
"""

import functools
import math
import re
from typing import Any, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental import layout
from jaxtyping import Array, Float, Int

from transformer_jax.models import initializers


def einsum(
    spec: str, a: Float[Array, "..."], b: Float[Array, "..."], dtype: Any = None
) -> Float[Array, "..."]:
    """Computes `jnp.einsum` of two arrays of the same type.

    Args:
      spec: such as "BTI,IO->BTO"; each letter is in at least two of the three parts.
      a: the first array.
      b: the second array.
      dtype: of the result; None: that of the arrays.
    """
    return _einsum(spec, a, b, is_sharded(), jnp.dtype(dtype or a.dtype))


def is_sharded() -> bool:
    """Returns whether the program being traced will be sharded (`sharding.activation_rules`).

    Call it while the forward pass is traced; gradients are traced later, outside of those rules.
    """
    return not jax.sharding.get_abstract_mesh().empty


def multiply(
    spec: str,
    a: Float[Array, "..."],
    b: Float[Array, "..."],
    sharded: bool,
    dtype: Any = jnp.float32,
) -> Float[Array, "..."]:
    """Computes a product, summed in float32, for functions that define their own gradient.

    Args:
      spec: as in `einsum`.
      a: the first array.
      b: the second array.
      sharded: `is_sharded()` of the forward pass. XLA fixes memory layouts before it shards a
        program, so that a product with constrained layouts would not be sharded.
      dtype: of the result.
    """
    if a.dtype != jnp.bfloat16 or sharded:
        return _plain(spec, dtype, a, b)
    row_major, plain = (functools.partial(form, spec, dtype) for form in (_row_major, _plain))
    return jax.lax.platform_dependent(a, b, cpu=row_major, default=plain)


def pick(x: Float[Array, "B H T U"], buckets: Int[Array, "#B T S"]) -> Float[Array, "B H T S"]:
    """Returns, for each query and key, the element of x at their bucket, in float32.

    A TPU computes a product with one-hot vectors; elsewhere a gather is faster and takes less
    memory.
    """
    return jax.lax.platform_dependent(x, buckets, tpu=_pick_by_product, default=_gather)


def collect(
    x: Float[Array, "B H T S"], buckets: Int[Array, "#B T S"], number: int
) -> Float[Array, "B H T U"]:
    """Returns, for each query and bucket, the sum of x over the keys in that bucket.

    It is the transpose of `pick`.

    The sum is computed in float32; the result has the type of x.
    """
    like = jnp.zeros((*x.shape[:-1], number), x.dtype)
    (sums,) = jax.vjp(lambda y: pick(y, buckets), like)[1](x.astype(jnp.float32))
    return sums


def _pick_by_product(x: Array, buckets: Array) -> Array:
    whole = jnp.broadcast_to(buckets, (len(x), *buckets.shape[1:]))
    chosen = jax.nn.one_hot(whole, x.shape[-1], dtype=x.dtype)
    return einsum("BHTU,BTSU->BHTS", x, chosen, jnp.float32)


def _gather(x: Array, buckets: Array) -> Array:
    # Converted first, so that the gradient is summed in float32.
    return jnp.take_along_axis(x.astype(jnp.float32), buckets[:, None], axis=-1)


def _backward(
    spec: str, sharded: bool, dtype: Any, saved: tuple[Array, Array], dy: Array
) -> tuple[Array, Array]:
    a, b = saved
    of_a, of_b, of_y = re.split(",|->", spec)
    dy = dy.astype(a.dtype)
    da = multiply(f"{of_y},{of_b}->{of_a}", dy, b, sharded, a.dtype)
    return da, multiply(f"{of_a},{of_y}->{of_b}", a, dy, sharded, b.dtype)


def _forward(
    spec: str, a: Array, b: Array, sharded: bool, dtype: Any
) -> tuple[Array, tuple[Array, Array]]:
    return _einsum(spec, a, b, sharded, dtype), (a, b)


_einsum = jax.custom_vjp(multiply, nondiff_argnums=(0, 3, 4))
_einsum.defvjp(_forward, _backward)


def _plain(spec: str, dtype: Any, a: Array, b: Array) -> Float[Array, "..."]:
    # With preferred_element_type a GPU stores no float32 result before converting it to dtype.
    return jnp.einsum(spec, a, b, preferred_element_type=dtype)


def _row_major(spec: str, dtype: Any, a: Array, b: Array) -> Float[Array, "..."]:
    """Computes `_plain` as one product of row-major matrices."""
    of_a, of_b, of_y = re.split(",|->", spec)
    # For batches of small matrices the kernels are no faster, and copying costs time.
    if set(of_a) & set(of_b) & set(of_y):
        return _plain(spec, jnp.float32, a.astype(jnp.float32), b.astype(jnp.float32)).astype(dtype)
    sizes = {**dict(zip(of_a, a.shape, strict=True)), **dict(zip(of_b, b.shape, strict=True))}
    rows = [letter for letter in of_y if letter not in of_b]
    columns = [letter for letter in of_y if letter not in of_a]
    summed = [letter for letter in of_a if letter not in of_y]

    def matrix(x: Array, letters: str, *groups: list[str]) -> Array:
        order = [letters.index(letter) for group in groups for letter in group]
        shape = [math.prod(sizes[letter] for letter in group) for group in groups]
        return _row_major_layout(x.transpose(order).reshape(shape))

    left, right = matrix(a, of_a, rows, summed), matrix(b, of_b, summed, columns)
    y = _row_major_layout(jnp.matmul(left, right, preferred_element_type=jnp.float32))
    letters = [*rows, *columns]
    y = y.reshape([sizes[letter] for letter in letters])
    return y.transpose([letters.index(letter) for letter in of_y]).astype(dtype)


def _row_major_layout(x: Array) -> Array:
    """Returns x in row-major memory, which the compiler may not transpose."""
    return layout.with_layout_constraint(x, layout.Layout(major_to_minor=tuple(range(x.ndim))))


@final
class Dense(nn.Module):
    """A dense layer, x W + b, whose parameters have the same names as those of `nn.Dense`.

    Parameters are float32; the result is computed in `dtype`.
    """

    features: int  # O
    use_bias: bool = True
    dtype: Any = jnp.float32
    kernel_init: nn.initializers.Initializer = initializers.glorot_uniform
    axes: tuple[str | None, str | None] = (None, None)  # logical names of I and O

    @nn.compact
    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        kernel = self._param("kernel", self.kernel_init, (x.shape[-1], self.features), self.axes)
        leading = "ABCDE"[: x.ndim - 1]
        spec = f"{leading}I,IO->{leading}O"
        y = einsum(spec, x.astype(self.dtype), jnp.asarray(kernel, self.dtype))
        if not self.use_bias:
            return y
        zeros = nn.initializers.zeros_init()
        bias = jnp.asarray(self._param("bias", zeros, (self.features,), self.axes[1:]))
        # Added in float32, so that its gradient is summed in float32.
        return (y + bias).astype(self.dtype)

    def _param(self, name: str, initialiser: Any, shape: Any, axes: Any) -> Any:
        if any(axes):
            initialiser = nn.with_logical_partitioning(initialiser, axes)
        return self.param(name, initialiser, shape)
