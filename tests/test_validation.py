"""Checks of numbers that users pass in."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from diffclust import KMeans, _validation
from diffclust.data import load
from diffclust.masks import as_mask


@pytest.mark.parametrize(
    "check",
    [
        _validation.images,
        _validation.samples,
        _validation.landmarks,
        lambda value: _validation.weights(value, 4),
    ],
)
def test_masked_values_are_refused(check: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="has masked values; give an array without them"):
        check(np.ma.masked_equal(np.arange(4.0 * 5 * 5).reshape(4, 5, 5), 7))


def test_a_number_that_64_bits_cannot_hold() -> None:
    with pytest.raises(ValueError, match="n must be a number that 64 bits hold, not 1000"):
        _validation.count(10**20, "n")


@pytest.mark.parametrize("value", [1, 7, np.int32(3)])
def test_counts(value: Any) -> None:
    _validation.count(value, "num_clusters")


@pytest.mark.parametrize("value", [True, 2.0, "3", None, np.float32(2)])
def test_what_is_not_whole_is_no_count(value: Any) -> None:
    with pytest.raises(ValueError, match="num_clusters must be a whole number, not "):
        _validation.count(value, "num_clusters")


def test_counts_that_are_too_small() -> None:
    _validation.count(0, "steps", least=0)
    with pytest.raises(ValueError, match="steps must be at least 0, not -1"):
        _validation.count(-1, "steps", least=0)
    with pytest.raises(ValueError, match="num_clusters must be at least 1, not 0"):
        _validation.count(0, "num_clusters")


def test_choices() -> None:
    _validation.one_of("mean", ("mean", "max"), "symmetrise")
    with pytest.raises(ValueError, match="symmetrise must be one of .*'max'.*, not 'min'"):
        _validation.one_of("min", ("mean", "max"), "symmetrise")


def test_some_names_a_few_and_counts_the_rest() -> None:
    assert _validation.some([1, 2]) == "1, 2"
    assert _validation.some(np.arange(8)) == "0, 1, 2, 3, 4 and 3 more"
    assert _validation.some(iter("abc"), most=2) == "a, b and 1 more"


def test_channels_come_last() -> None:
    with pytest.raises(ValueError, match=r"moveaxis\(images, 1, -1\), of shape"):
        _validation.images(np.zeros((4, 3, 32, 30)))
    for shape in ((4, 3, 3, 5), (4, 3, 32, 3), (4, 1, 9, 1), (4, 30, 32, 12), (4, 1, 16, 6)):
        assert _validation.images(np.zeros(shape)).shape == shape


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: _validation.images([np.ones((3, 3)), np.ones((4, 4))]), "images of one size"),
        (lambda: _validation.samples([[1.0, 2.0], [3.0]]), "samples must hold rows of one length"),
        (lambda: _validation.groups([[0], [1, 2]], 2, 2), "assignments must hold numbers"),
        (lambda: _validation.groups(np.ma.array([0, 1], mask=[0, 1]), 2, 2), "masked values"),
        (lambda: as_mask([[1], [1, 0]]), "mask must hold numbers"),
        (lambda: as_mask(np.ma.array(np.ones((3, 3)), mask=np.eye(3))), "mask has masked values"),
        (lambda: _validation.positive("a", "x"), "x must be a number"),
        (lambda: _validation.samples(np.full((3, 2), 1e300)), "samples holds NaN or infinity"),
        (lambda: _validation.samples(load("digits", limit=3)), "not a Dataset; give its samples"),
        (lambda: _validation.weights(["a", "b"], 2), "sample_weight must hold numbers"),
        (lambda: _validation.weights(np.full(60, 1e37), 60), "too large for all images"),
        (lambda: _validation.weights(np.full(60, 1e-40), 60), "too small for all images"),
    ],
)
def test_what_cannot_be_an_argument_is_refused_in_a_line(
    check: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        check()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_words_are_scaled_in_either_order_of_bytes(dtype: str) -> None:
    levels = np.array([0, 1, 65535], dtype).reshape(1, 1, 3)
    np.testing.assert_allclose(_validation.images(levels).ravel(), [0, 1 / 65535, 1], rtol=1e-6)


def test_whole_numbers_are_refused_where_fractions_are_computed() -> None:
    for dtype in (np.float16, np.float64, jax.numpy.bfloat16):
        _validation.floating(jax.ShapeDtypeStruct((2, 2, 1), dtype), "image")
    for dtype, message in (
        (np.uint8, "image must be floating numbers, not uint8; divide images of 8 bits by 255"),
        (np.int32, r"image must be floating numbers, not int32; use astype\(float\)"),
    ):
        with pytest.raises(ValueError, match=message):
            _validation.floating(np.zeros((2, 2, 1), dtype), "image")


def test_fits_are_not_traced() -> None:
    model, images = KMeans(2), np.ones((4, 3, 3), np.float32)
    with pytest.raises(ValueError, match="compiled_lloyd works under jax.jit"):
        jax.jit(lambda key: model.fit(images, key=key))(jax.random.key(0))
    with pytest.raises(ValueError, match="key is traced"):
        jax.vmap(lambda key: model.fit(images, key=key))(jax.random.split(jax.random.key(0)))
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="images is traced"):
        jax.jit(lambda x: model.fit(x, key=key))(images)
