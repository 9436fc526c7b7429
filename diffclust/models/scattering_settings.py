"""Settings of models in scattering space, checked."""

from typing import get_args

from diffclust import _validation
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.models.scattering import AbstractScatteringModel


def check_scattering_settings(model: AbstractScatteringModel) -> None:
    """Refuses settings of the features that mean nothing.

    Args:
        model: The model.

    Raises:
        ValueError: With what came and what would do.
    """
    for name in ("num_clusters", "num_dimensions", "num_angles"):
        _validation.count(getattr(model, name), name)
    if model.num_scales is not None:
        _validation.count(model.num_scales, "num_scales")
    if model.normalisation not in get_args(Normalisation):
        raise ValueError(
            f"normalisation must be one of {get_args(Normalisation)}, not {model.normalisation!r}"
        )


def check_whole_numbers(values: tuple[int, ...], name: str, least: int) -> None:
    """Refuses settings that are not a few whole numbers.

    Args:
        values: The setting.
        name: Its name in messages.
        least: The least number allowed.

    Raises:
        ValueError: With what came.
    """
    if not values:
        raise ValueError(f"{name} is empty; give at least one whole number")
    for value in values:
        _validation.count(value, name, least=least)
