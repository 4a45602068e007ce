"""Products of two arrays, in the form that each kind of device computes fastest.

Everything that a model multiplies goes through `einsum`. Products are summed in float32 and their
gradients are products of the same kind: left to itself, JAX multiplies the float32 gradient of a
bfloat16 product in float32, which costs an accelerator many times as much.

On CPUs, XLA's bfloat16 kernels (AMX, AVX-512) take only operands that lie in memory row by row, and
only if a float32 result is asked for; anything else is widened to float32 first. There, operands
are written down in that order before they are multiplied.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import layout
from jaxtyping import Array, Float


def einsum(
    spec: str, a: Float[Array, "..."], b: Float[Array, "..."], dtype: Any = None
) -> Float[Array, "..."]:
    """As `jnp.einsum` of two arrays of one type.

    Args:
      spec: "BTI,IO->BTO"; each letter stands in two of the three parts, or in all.
      a: the first operand.
      b: the second.
      dtype: of the result; None: that of the operands.
    """
    return _einsum(spec, jnp.dtype(dtype or a.dtype), on_several_devices(), a, b)


def on_several_devices() -> bool:
    """Whether what is being traced will be shared out (`sharding.of_activations`).

    Asked when the forward pass is traced: gradients are traced later, and elsewhere.
    """
    return not jax.sharding.get_abstract_mesh().empty


def multiply(
    spec: str,
    a: Float[Array, "..."],
    b: Float[Array, "..."],
    several: bool,
    dtype: Any = jnp.float32,
) -> Float[Array, "..."]:
    """The product alone, for those who write their gradient down themselves.

    Args:
      spec: as in `einsum`, as the operands.
      a: the first operand.
      b: the second.
      several: whether there are several devices; memory layouts, which are settled before a
        program is shared out over them, would keep it from being shared out.
      dtype: of the result; the sum itself is in float32.
    """
    if a.dtype != jnp.bfloat16 or several:
        return _plain(spec, dtype, a, b)
    forms = {"cpu": _written, "default": _plain}
    return jax.lax.platform_dependent(
        a, b, **{name: functools.partial(form, spec, dtype) for name, form in forms.items()}
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _einsum(spec: str, dtype: Any, several: bool, a: Array, b: Array) -> Array:
    return multiply(spec, a, b, several, dtype)


def _forward(
    spec: str, dtype: Any, several: bool, a: Array, b: Array
) -> tuple[Array, tuple[Array, Array]]:
    return _einsum(spec, dtype, several, a, b), (a, b)


def _backward(
    spec: str, dtype: Any, several: bool, saved: tuple[Array, Array], dy: Array
) -> tuple[Array, Array]:
    del dtype
    a, b = saved
    of_a, of_b, of_y = _parts(spec)
    dy = dy.astype(a.dtype)
    da = multiply(f"{of_y},{of_b}->{of_a}", dy, b, several, a.dtype)
    return da, multiply(f"{of_a},{of_y}->{of_b}", a, dy, several, b.dtype)


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


def _written(spec: str, dtype: Any, a: Array, b: Array) -> Float[Array, "..."]:
    """The same as one (batched) product of matrices that lie row by row."""
    of_a, of_b, of_y = _parts(spec)
    sizes = {**dict(zip(of_a, a.shape, strict=True)), **dict(zip(of_b, b.shape, strict=True))}
    batch = [letter for letter in of_y if letter in of_a and letter in of_b]
    # The kernels gain nothing for batches of small matrices, and lose by the writing down.
    if batch:
        return _plain(spec, jnp.float32, a.astype(jnp.float32), b.astype(jnp.float32)).astype(dtype)
    rows = [letter for letter in of_y if letter not in of_b]
    columns = [letter for letter in of_y if letter not in of_a]
    summed = [letter for letter in of_a if letter not in of_y]

    def matrices(x: Array, letters: str, *groups: list[str]) -> Array:
        order = [letters.index(letter) for group in groups for letter in group]
        shape = [math.prod(sizes[letter] for letter in group) for group in groups]
        return _by_rows(x.transpose(order).reshape(shape if batch else shape[1:]))

    y = jnp.matmul(
        matrices(a, of_a, batch, rows, summed),
        matrices(b, of_b, batch, summed, columns),
        preferred_element_type=jnp.float32,
    )
    found = [*batch, *rows, *columns]
    y = _by_rows(y).reshape([sizes[letter] for letter in found])
    return y.transpose([found.index(letter) for letter in of_y]).astype(dtype)


def _by_rows(x: Array) -> Array:
    """x, which the compiler may neither leave transposed nor transpose later."""
    return layout.with_layout_constraint(x, layout.Layout(major_to_minor=tuple(range(x.ndim))))
