"""The data set: what it checks, takes and draws."""

import dataclasses

import jaxtyping
import numpy as np
import pytest

from diffclust.data import DataError, Dataset


def make(n=10):
    images = np.linspace(0, 1, n, dtype=np.float32)[:, None, None, None] * np.ones((1, 2, 3, 1))
    return Dataset(
        images=images.astype(np.float32),
        labels=np.arange(n) % 2,
        label_names=("even", "odd"),
        paths=tuple(f"{i}.png" for i in range(n)),
    )


def test_take_keeps_everything_together():
    taken = make().take([7, 2])
    assert len(taken) == 2
    assert taken.paths == ("7.png", "2.png")
    np.testing.assert_array_equal(taken.labels, [1, 0])
    np.testing.assert_array_equal(taken.indices, [7, 2])
    np.testing.assert_array_equal(taken.images, make().images[[7, 2]])
    np.testing.assert_array_equal(taken.take(np.array([False, True])).indices, [2])


def test_take_refuses_what_is_not_there():
    with pytest.raises(IndexError):
        make().take([10])


def test_limit_is_seeded_and_keeps_the_order():
    first, again, other = (make(100).limit(20, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.indices, again.indices)
    assert not np.array_equal(first.indices, other.indices)
    assert (np.diff(first.indices) > 0).all()
    assert len(make().limit(None)) == len(make().limit(99)) == 10
    # Under test, the import hook's own check of the type comes first.
    with pytest.raises((DataError, jaxtyping.TypeCheckError), match="limit"):
        make().limit(2.5)
    with pytest.raises(DataError, match=r"limit must be at least 1: got 0"):
        make().limit(0)


def test_is_frozen_and_checks_itself():
    dataset = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "other"
    with pytest.raises(DataError, match=r"labels must have one entry for each image: got 3 for 10"):
        dataclasses.replace(dataset, labels=np.zeros(3, np.int64))
    with pytest.raises(DataError, match=r"images must be float32"):
        Dataset(images=np.zeros((2, 3, 3)))
