"""Products of two arrays, in the form that each kind of device computes fastest.

Everything that a model multiplies goes through `einsum`. Products are summed in float32 and their
gradients are products of the same kind: left to itself, JAX multiplies the float32 gradient of a
bfloat16 product in float32, which costs an accelerator many times as much.

On CPUs, XLA's bfloat16 kernels (AMX, AVX-512) take only row-major operands, and only if a float32
result is asked for; anything else is widened to float32 first. There, operands are written in that
order before they are multiplied.
"""

import functools
import math
from typing import Any, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental import layout
from jaxtyping import Array, Float, Int


def einsum(
    spec: str, a: Float[Array, "..."], b: Float[Array, "..."], dtype: Any = None
) -> Float[Array, "..."]:
    """As `jnp.einsum` of two arrays of one type; the result's is dtype, or else theirs.

    Each letter of "BTI,IO->BTO" stands in two of the three parts, or in all.
    """
    return _einsum(spec, jnp.dtype(dtype or a.dtype), is_sharded(), a, b)


def is_sharded() -> bool:
    """Whether what is being traced will be sharded (`sharding.activation_rules`).

    Asked when the forward pass is traced: gradients are traced later, and elsewhere.
    """
    return not jax.sharding.get_abstract_mesh().empty


def multiply(
    spec: str,
    a: Float[Array, "..."],
    b: Float[Array, "..."],
    sharded: bool,
    dtype: Any = jnp.float32,
) -> Float[Array, "..."]:
    """The product alone, summed in float32, for those who write their gradient down themselves.

    A sharded one asks for no memory layout: layouts are settled before a program is sharded, and
    would keep it from being so.
    """
    if a.dtype != jnp.bfloat16 or sharded:
        return _plain(spec, dtype, a, b)
    row_major, plain = (functools.partial(form, spec, dtype) for form in (_row_major, _plain))
    return jax.lax.platform_dependent(a, b, cpu=row_major, default=plain)


def pick(x: Float[Array, "B H T U"], buckets: Int[Array, "#B T S"]) -> Float[Array, "B H T S"]:
    """For each query and key the number at their bucket, in float32.

    That is a product with one-hot vectors. A TPU computes it as such; elsewhere a gather is faster,
    and writes no vectors down.
    """
    return jax.lax.platform_dependent(x, buckets, tpu=_pick_by_product, default=_gather)


def collect(
    x: Float[Array, "B H T S"], buckets: Int[Array, "#B T S"], number: int
) -> Float[Array, "B H T U"]:
    """For each query and each of so many buckets the sum of its keys' numbers, in float32.

    It is `pick` transposed.
    """
    product, scatter = (functools.partial(f, number) for f in (_collect_by_product, _scatter))
    return jax.lax.platform_dependent(x, buckets, tpu=product, default=scatter)


def _pick_by_product(x: Array, buckets: Array) -> Array:
    return einsum("BHTU,BTSU->BHTS", x, _one_hot(buckets, x.shape[-1], x), jnp.float32)


def _collect_by_product(number: int, x: Array, buckets: Array) -> Array:
    return einsum("BHTS,BTSU->BHTU", x, _one_hot(buckets, number, x), jnp.float32)


def _one_hot(buckets: Array, number: int, like: Array) -> Array:
    whole = jnp.broadcast_to(buckets, (len(like), *buckets.shape[1:]))
    return jax.nn.one_hot(whole, number, dtype=like.dtype)


def _gather(x: Array, buckets: Array) -> Array:
    """Widened first, so that its gradient is summed in float32."""
    return jnp.take_along_axis(x.astype(jnp.float32), buckets[:, None], axis=-1)


def _scatter(number: int, x: Array, buckets: Array) -> Array:
    like = jax.ShapeDtypeStruct((*x.shape[:-1], number), jnp.float32)
    (sums,) = jax.linear_transpose(lambda y: _gather(y, buckets), like)(x.astype(jnp.float32))
    return sums


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _einsum(spec: str, dtype: Any, sharded: bool, a: Array, b: Array) -> Array:
    return multiply(spec, a, b, sharded, dtype)


def _forward(
    spec: str, dtype: Any, sharded: bool, a: Array, b: Array
) -> tuple[Array, tuple[Array, Array]]:
    return _einsum(spec, dtype, sharded, a, b), (a, b)


def _backward(
    spec: str, dtype: Any, sharded: bool, saved: tuple[Array, Array], dy: Array
) -> tuple[Array, Array]:
    del dtype
    a, b = saved
    of_a, of_b, of_y = _parts(spec)
    dy = dy.astype(a.dtype)
    da = multiply(f"{of_y},{of_b}->{of_a}", dy, b, sharded, a.dtype)
    return da, multiply(f"{of_a},{of_y}->{of_b}", a, dy, sharded, b.dtype)


_einsum.defvjp(_forward, _backward)


def _parts(spec: str) -> tuple[str, str, str]:
    operands, of_y = spec.split("->")
    of_a, of_b = operands.split(",")
    return of_a, of_b, of_y


def _plain(spec: str, dtype: Any, a: Array, b: Array) -> Float[Array, "..."]:
    """One product of whatever form the compiler likes.

    Its type is asked for at once: a GPU writes a float32 result down before it is made bfloat16.
    """
    return jnp.einsum(spec, a, b, preferred_element_type=dtype)


def _row_major(spec: str, dtype: Any, a: Array, b: Array) -> Float[Array, "..."]:
    """The same as one product of row-major matrices."""
    of_a, of_b, of_y = _parts(spec)
    # The kernels gain nothing for batches of small matrices, and lose by the writing.
    if set(of_a) & set(of_b) & set(of_y):
        return _plain(spec, jnp.float32, a.astype(jnp.float32), b.astype(jnp.float32)).astype(dtype)
    sizes = {**dict(zip(of_a, a.shape, strict=True)), **dict(zip(of_b, b.shape, strict=True))}
    rows = [letter for letter in of_y if letter not in of_b]
    columns = [letter for letter in of_y if letter not in of_a]
    summed = [letter for letter in of_a if letter not in of_y]

    def matrix(x: Array, letters: str, *groups: list[str]) -> Array:
        order = [letters.index(letter) for group in groups for letter in group]
        shape = [math.prod(sizes[letter] for letter in group) for group in groups]
        return _written(x.transpose(order).reshape(shape))

    left, right = matrix(a, of_a, rows, summed), matrix(b, of_b, summed, columns)
    y = _written(jnp.matmul(left, right, preferred_element_type=jnp.float32))
    found = [*rows, *columns]
    y = y.reshape([sizes[letter] for letter in found])
    return y.transpose([found.index(letter) for letter in of_y]).astype(dtype)


def _written(x: Array) -> Array:
    """x, which the compiler may neither leave transposed nor transpose later."""
    return layout.with_layout_constraint(x, layout.Layout(major_to_minor=tuple(range(x.ndim))))


@final
class Dense(nn.Module):
    """X W + b, with Linen's names; computed in dtype, its parameters float32."""

    features: int  # O
    use_bias: bool = True
    dtype: Any = jnp.float32
    kernel_init: nn.initializers.Initializer = nn.initializers.glorot_uniform()
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
