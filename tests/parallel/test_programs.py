from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from diffclust.parallel import programs


def test_programs_are_forgotten_only_where_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = jax.jit(lambda x: 2 * x)
    double(jnp.ones(3))
    most = tmp_path / "most"
    monkeypatch.setattr(programs, "_MOST_MAPS", most)
    programs.forget_programs()
    most.write_text("1000000000\n")
    programs.forget_programs()
    assert double._cache_size() == 1
    monkeypatch.setattr(programs, "_MAPS", tmp_path / "maps")
    (tmp_path / "maps").write_text("a piece\n" * 40)
    most.write_text("50\n")
    programs.forget_programs()
    assert double._cache_size() == 0
    assert double(jnp.ones(3))[0] == 2
