"""Public names of version 0.1 that have moved can still be imported, with a warning."""

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import diffclust
from diffclust import sklearn
from diffclust._renamed import table
from diffclust.alignment import Prediction
from diffclust.data import diffeo_mnist
from diffclust.models import AbstractModel
from diffclust.prototypes import MeanShapes
from diffclust.storage import SnapshotFolder

PAGE = Path(__file__).parents[1] / "docs" / "renamed.md"
TITLE = """# Names of version 0.1

These names could be imported in 0.1 and have since been moved or renamed. They go in 0.3; until
then they work and warn, except those for which the table says what to use instead. Internal names
without a successor are not listed. Renamed settings, keywords and options of the command line are
in the changelog.

| in 0.1 | now |
|---|---|
"""


def page() -> str:
    """The page of the documentation that lists the former names."""
    places = [
        (f"{module}.{name}", place)
        for module, names in sorted(table().items())
        for name, place in sorted(names.items())
        if place is not None and not (name.startswith("_") or "._" in module)
    ]
    now = [
        place if place.startswith("use ") else f"`{place.replace(':', '.')}`" for _, place in places
    ]
    rows = (f"| `{former}` | {new} |" for (former, _), new in zip(places, now, strict=True))
    return TITLE + "\n".join(rows) + "\n"


def test_the_page_lists_all_former_names() -> None:
    message = f"write it anew: python -c 'import {__name__} as t; t.PAGE.write_text(t.page())'"
    assert PAGE.read_text("utf-8") == page(), message


@pytest.mark.parametrize("module", table())
def test_former_names_are_their_successors(module: str) -> None:
    for name, place in table()[module].items():
        result = importlib.import_module(module)
        if place is None:
            with pytest.raises(AttributeError, match="of diffclust 0.1 is gone"):
                getattr(result, name)
            continue
        if place.startswith("use "):
            with pytest.raises(ImportError, match=f"of diffclust 0.1 is gone; {place}"):
                exec(f"from {module} import {name}")
            continue
        target, new = place.split(":")
        with pytest.warns(DeprecationWarning, match=f"{name} is now {target}.{new}"):
            former = getattr(result, name)
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


def test_every_public_name_of_version_0_1_is_there_or_accounted_for() -> None:
    """`names_0_1.json` has what modules of 0.1 defined: `__all__`, or what had no underscore."""
    names = json.loads(Path(__file__).with_name("names_0_1.json").read_text("utf-8"))
    for module, own in names.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            result = importlib.import_module(module)
        missing = set(own) - set(table().get(module, {}))
        assert not [name for name in missing if not hasattr(result, name)], module


def test_former_keywords_warn(tmp_path: Path) -> None:
    lines: list[str] = []
    with (
        pytest.warns(DeprecationWarning, match="tell= is now log="),
        SnapshotFolder(tmp_path, run={}, tell=lines.append) as folder,  # pyright: ignore
    ):
        assert folder.latest(lambda _: None) is None
    with (
        pytest.warns(DeprecationWarning, match="kept= is now max_to_keep="),
        pytest.raises(ValueError, match="max_to_keep must be at least 1, not 0"),
    ):
        SnapshotFolder(tmp_path, run={}, kept=0)  # pyright: ignore
    with (
        pytest.warns(DeprecationWarning, match="bend= is now displacement="),
        pytest.raises(ValueError, match="displacement at least 0: got 100, 1.0 and -1"),
    ):
        diffeo_mnist([[[0.0, 1.0], [0.0, 1.0]]] * 2, [0, 1], bend=-1.0)  # pyright: ignore
    with pytest.warns(DeprecationWarning, match="judge= is now screening="):
        assert Prediction(judge=None, candidates=1) == Prediction(candidates=1)  # pyright: ignore


FORMER = [
    ("DeformationInvariantKMeans", "weight_rounds", 2, "penalty_rounds", 2),
    ("DTIKMeans", "backbone", "quick", "backbone", "strided"),
    ("ShapeKMeans", "variances", "round", "variances", "isotropic"),
]


@pytest.mark.parametrize(("model", "name", "value", "new", "now"), FORMER)
def test_former_settings_warn(model: str, name: str, value: Any, new: str, now: Any) -> None:
    kind: type[AbstractModel] = getattr(diffclust, model)
    message = f"{name}={value!r} is now {new}={now!r}"
    with pytest.warns(DeprecationWarning, match=message):
        made = kind(3, **{name: value})  # pyright: ignore
    expected = kind(3, **{new: now})  # pyright: ignore
    assert made == expected
    # Files are read for ever, without a word.
    assert kind.from_settings({"num_clusters": 3, name: value}) == expected
    with pytest.warns(DeprecationWarning, match=message):
        estimator = getattr(sklearn, model)(**{name: value})
    assert estimator.get_params()[new] == now


def test_former_values_of_parts_warn() -> None:
    parts = jnp.zeros((3, 2)), jnp.ones((3, 2)), jnp.float32(0.1)
    with pytest.warns(DeprecationWarning, match="variances='round' is now"):
        assert MeanShapes(*parts, variances="round").variances == "isotropic"  # pyright: ignore
