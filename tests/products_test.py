"""Products against NumPy, in the forms of every device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.models import products

SPECS = ["NI,IO->NO", "BTI,IHC->BHTC", "BHTC,HCO->BTO", "BKNC,BKSC->BKNS", "BKNS,BKSC->BKNC"]
SIZES = dict(zip("NIOBTHCKS", (6, 5, 7, 2, 3, 4, 8, 2, 9), strict=True))


def operands(spec, dtype):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.normal(size=[SIZES[letter] for letter in part]), dtype)
        for part in spec.split("->")[0].split(",")
    ]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_product_and_gradients_are_numpys(spec, dtype):
    a, b = operands(spec, dtype)
    exact = [np.asarray(x, np.float64) for x in (a, b)]
    expected = np.einsum(spec, *exact)
    weights = np.asarray(jnp.asarray(np.random.default_rng(1).normal(size=expected.shape), dtype))

    def total(a, b):
        y = products.einsum(spec, a, b, jnp.float32)
        return jnp.sum(y * weights), y

    compare = jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))
    (_, found), gradients = compare(a, b)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    inputs, of_y = spec.split("->")
    of_a, of_b = inputs.split(",")
    weights = weights.astype(np.float64)
    tolerance = 1e-5 if dtype == "float32" else 2**-8
    for gradient, slope in zip(
        gradients,
        (
            np.einsum(f"{of_y},{of_b}->{of_a}", weights, exact[1]),
            np.einsum(f"{of_a},{of_y}->{of_b}", exact[0], weights),
        ),
        strict=True,
    ):
        assert gradient.dtype == dtype
        np.testing.assert_allclose(
            np.asarray(gradient, np.float64), slope, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("form", ["here", "product"])
def test_pick_and_collect_are_transposes(rows, form):
    """Both equal loops, and each is the gradient of the other, in the forms of every device."""
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=(2, 3, 4, n)), jnp.float32) for n in (5, 6))
    buckets = jnp.asarray(rng.integers(0, 5, (rows, 4, 6)))

    def by_product(y, buckets):
        return jax.vjp(lambda x: products._pick_by_product(x, buckets), x)[1](y)[0]

    pick, collect = {
        "here": (products.pick, lambda y, buckets: products.collect(y, buckets, 5)),
        "product": (products._pick_by_product, by_product),
    }[form]
    picked, collected = np.zeros(y.shape), np.zeros(x.shape)
    for b, h, t, s in np.ndindex(y.shape):
        bucket = buckets[b % rows, t, s]
        picked[b, h, t, s] = x[b, h, t, bucket]
        collected[b, h, t, bucket] += y[b, h, t, s]

    def gradient(function, at, weights):
        return jax.jit(jax.grad(lambda at: jnp.sum(function(at, buckets) * weights)))(at)

    np.testing.assert_allclose(pick(x, buckets), picked, rtol=1e-6)
    np.testing.assert_allclose(collect(y, buckets), collected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient(pick, x, y), collected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient(collect, y, x), picked, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 7, 16), (64, 1, 1), (5, 16, 100), (64, 2, 3)])
def test_bfloat16_products_of_any_shape_run(sizes):
    """The compiler has no other bfloat16 kernel than the one for rows."""
    rows, summed, columns = sizes
    a, b = jnp.ones((rows, summed), jnp.bfloat16), jnp.ones((summed, columns), jnp.bfloat16)

    @jax.jit
    def transposed(a, b):  # operands and results that the compiler would rather leave transposed
        return products.einsum("IN,OI->ON", a.T * 2, b.T + 1)

    np.testing.assert_array_equal(transposed(a, b), np.full((columns, rows), 4.0 * summed))


def test_matrices_lie_row_by_row_on_a_cpu_and_no_gradient_is_a_float32_product():
    a, b = operands("NI,IO->NO", "bfloat16")

    def total(a, b):
        return jnp.sum(products.einsum("NI,IO->NO", a, b, jnp.float32) ** 2)

    text = jax.jit(jax.grad(total, argnums=(0, 1))).lower(a, b).as_text()
    dots = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert len(dots) == 3
    for line in dots:
        assert "contracting_dims = [1] x [0]" in line
        assert line.count("xbf16>") == 2
        assert "-> tensor" in line
        assert line.rstrip().split("-> ")[-1].startswith("tensor<")
        assert "xf32>" in line.split("-> ")[-1]
