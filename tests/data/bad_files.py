"""What holds of every folder in which one file cannot be read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from diffclust.data import DataError, Dataset


def check_refused_or_skipped(
    load: Callable[..., Dataset], folder: Path, bad: str, *, noun: str, reason: str
) -> Dataset:
    """Checks a folder of three good files and a bad one; gives what is loaded without that."""
    reported = rf"1 of 4 {noun} in folder .* '{bad}' \(.*{reason}.*--skip-bad"
    with pytest.raises(DataError, match=reported) as raised:
        load(folder)
    assert "\n" not in str(raised.value)
    result = load(folder, skip_bad=True)
    assert result.skipped == (str(folder / bad),)
    assert len(result) == 3
    return result
