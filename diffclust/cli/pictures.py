"""What a command gathers for the report while and after it fits: a film, and other methods."""

from collections.abc import Mapping
from typing import Any

from diffclust.analysis.common_start import COMPARABLE, CommonStart, fit_from_common_start
from diffclust.cli.options import Fit, Predict
from diffclust.cli.progress_bar import ProgressBar
from diffclust.data import Collection
from diffclust.models import AbstractModel, Result
from diffclust.plotting import Film
from diffclust.report.maps import check_map_samples
from diffclust.solvers import Callback, Progress


class Pictures:
    """What a report shows beside the result."""

    def __init__(self, options: Fit | Predict, model: AbstractModel | None = None) -> None:
        """Looks what was asked for.

        Args:
            options: What was asked for.
            model: The model that is fitted; None for a prediction.

        Raises:
            ValueError: If something was asked for that cannot be shown.
        """
        check_map_samples(options.maps, "--maps")
        self._maps = options.maps
        self._film = Film() if model is not None and not options.no_report else None
        self._others: CommonStart | None = None
        self._methods = []
        if isinstance(options, Fit) and options.compare_with is not None:
            self._methods = _methods(options)

    def watching(self, callback: Callback) -> Callback:
        """A callback that also films.

        Args:
            callback: What is told first.

        Returns:
            The callback.
        """
        film = self._film
        if film is None:
            return callback

        def both(progress: Progress) -> None:
            callback(progress)
            film(progress)

        return both

    def compare(
        self, result: Result, dataset: Collection, settings: Mapping[str, Any], bar: ProgressBar
    ) -> None:
        """Fits the other methods, where there are any, from the same start.

        Args:
            result: The fit.
            dataset: What was fitted.
            settings: What the fit was given; its key and its weights are used.
            bar: Told of progress.

        Raises:
            FitError: If a fit breaks down.
        """
        if self._methods:
            self._others = fit_from_common_start(
                result,
                dataset.samples,
                self._methods,
                key=settings["key"],
                sample_weight=settings.get("sample_weight"),
                callback=bar,
            )

    def for_report(self) -> dict[str, Any]:
        """More arguments for `write_report`."""
        return {"film": self._film, "others": self._others, "map_samples": self._maps}


def _methods(options: Fit) -> list[str]:
    assert options.compare_with is not None
    methods = [name.strip() for name in options.compare_with.split(",")]
    if options.method not in COMPARABLE:
        raise ValueError(
            f"--compare-with is for {', '.join(COMPARABLE)}, not for {options.method}; leave it out"
        )
    if options.no_report:
        raise ValueError("--compare-with is shown in the report; leave out --no-report")
    others = [name for name in COMPARABLE if name != options.method]
    wrong = [name for name in methods if name not in others]
    if wrong or len(set(methods)) != len(methods):
        raise ValueError(
            f"--compare-with takes {' or '.join(others)} with {options.method}, once each, not "
            f"{options.compare_with!r}"
        )
    return methods
