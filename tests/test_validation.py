"""Checks of numbers that users pass in."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from diffclust import _validation


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
