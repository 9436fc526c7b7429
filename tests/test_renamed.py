"""Public names of version 0.1 that have moved can still be imported, with a warning."""

import importlib

import pytest

from diffclust._renamed import table


@pytest.mark.parametrize("module", table())
def test_former_names_are_their_successors(module: str) -> None:
    for name, place in table()[module].items():
        found = importlib.import_module(module)
        if place is None:
            with pytest.raises(AttributeError, match="of diffclust 0.1 is gone"):
                getattr(found, name)
            continue
        target, new = place.split(":")
        with pytest.warns(DeprecationWarning, match=f"{name} is now {target}.{new}"):
            former = getattr(found, name)
        assert former is getattr(importlib.import_module(target), new)


def test_functions_named_as_former_modules_stay() -> None:
    from diffclust.data import audio

    with pytest.warns(DeprecationWarning, match="goes in diffclust 0.3"):
        former = importlib.import_module("diffclust.data.audio.spectrogram").spectrogram
    assert audio.spectrogram is former


def test_import_statements_work() -> None:
    with pytest.warns(DeprecationWarning, match="goes in diffclust 0.3"):
        from diffclust.solvers import Plan
    from diffclust import solvers

    assert Plan is solvers.LloydPlan
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = solvers.nothing
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("diffclust.never")
