import re

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from diffclust.networks import Head, make_heads

K, F, P = 4, 20, 6


def features(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), dtype=jnp.result_type(float))


def filled(heads: Head) -> Head:
    """Heads whose last layer is not zero."""
    noise = features(*heads.weights[-1].shape)
    return eqx.tree_at(lambda made: made.weights[-1], heads, noise)


@jax.jit
def apply(heads: Head, given: jax.Array) -> jax.Array:
    return jax.vmap(lambda head: head(given))(heads)


def test_zero_at_the_start_exactly(key) -> None:
    heads = make_heads(K, F, P, key=key)
    result = apply(heads, 100 * features(F))
    np.testing.assert_array_equal(result, np.zeros((K, P)))


def test_hidden_layers_against_numpy(key) -> None:
    head = filled(Head(F, P, key=key))
    given = features(F)
    hidden = np.maximum(given @ head.weights[0], 0)
    hidden = np.maximum(hidden @ head.weights[1], 0)
    np.testing.assert_allclose(head(given), hidden @ head.weights[2], rtol=1e-4, atol=1e-4)
    assert [weight.shape for weight in head.weights] == [(F, 128), (128, 128), (128, P)]


def test_every_leaf_has_a_leading_cluster_axis_and_heads_differ(key) -> None:
    heads = make_heads(K, F, P, key=key)
    assert all(leaf.shape[0] == K for leaf in jax.tree.leaves(heads))
    assert len(np.unique(np.asarray(heads.weights[0])[:, 0, 0])) == K
    again = make_heads(K, F, P, key=key)
    chex.assert_trees_all_equal(heads, again)


def test_stacked_heads_equal_a_loop_over_heads(key) -> None:
    heads, given = filled(make_heads(K, F, P, key=key)), features(5, F)
    result = jax.vmap(lambda one: apply(heads, one))(given)
    for k in range(K):
        head = jax.tree.map(lambda leaf, k=k: leaf[k], heads)
        for n in range(5):
            np.testing.assert_allclose(result[n, k], head(given[n]), rtol=1e-4, atol=1e-3)


def test_the_zero_last_layer_is_learned_from_the_start(key) -> None:
    heads, given = make_heads(K, F, P, key=key), features(F)

    def loss(heads: Head) -> jax.Array:
        return jnp.sum((apply(heads, given) - 1) ** 2)

    gradient = eqx.filter_grad(loss)(heads)
    chex.assert_tree_all_finite(gradient)
    assert bool((jnp.abs(gradient.weights[-1]).sum(axis=(1, 2)) > 0).all())


def test_many_samples_and_clusters_are_three_products(key) -> None:
    heads = make_heads(K, F, P, key=key)
    text = jax.jit(jax.vmap(apply, in_axes=(None, 0))).lower(heads, features(7, F)).as_text()
    assert text.count("stablehlo.dot_general") == 3
    assert "gather" not in text
    # No product sees a copy of the weights for every sample: none has 7 × K × 128 × 128 entries.
    shapes = re.findall(r"tensor<([\dx]+)xf32>", text)
    assert max(np.prod([int(n) for n in shape.split("x")]) for shape in shapes) <= K * 128 * 128


def test_double_precision_and_no_params(key) -> None:
    with jax.enable_x64(True):
        heads = make_heads(K, F, P, key=key)
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(heads))
        assert apply(heads, features(F)).dtype == jnp.float64
    assert apply(make_heads(K, F, 0, key=key), features(F)).shape == (K, 0)


def test_layers_may_start_as_pytorch_s_do(key) -> None:
    heads = make_heads(K, F, P, initial="uniform", key=key)
    for weight, bias, fan_in in zip(heads.weights[:2], heads.biases[:2], (F, 128), strict=True):
        for drawn in (weight, bias):
            # Uniform between -1 / √fan_in and 1 / √fan_in, by Kolmogorov and Smirnov.
            test = scipy.stats.kstest(np.ravel(drawn) * np.sqrt(fan_in), "uniform", args=(-1, 2))
            assert test.pvalue > 1e-3
    np.testing.assert_array_equal(apply(heads, features(F)), np.zeros((K, P)))


def test_bad_arguments_are_refused(key) -> None:
    with pytest.raises(ValueError, match="num_clusters must be at least 1, not 0"):
        make_heads(0, F, P, key=key)
    with pytest.raises(ValueError, match="num_params must be at least 0, not -1"):
        make_heads(K, F, -1, key=key)
