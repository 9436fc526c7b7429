"""Writes scattering_kymatio.npz, the coefficients that kymatio 0.3.0 computes (NumPy backend).

    python make_scattering_kymatio.py

kymatio 0.3.0 does not import with SciPy 1.17 or newer, so this needs an environment of its own:
`pip install kymatio==0.3.0 "scipy<1.17"`. Only coefficients are stored; the tests draw the same
images with `images`.
"""

from pathlib import Path

import numpy as np

CASES = {
    "square": {"size": (32, 32), "scales": 3, "angles": 8, "order": 2, "count": 3},
    "small": {"size": (28, 28), "scales": 2, "angles": 6, "order": 2, "count": 1},
    "first": {"size": (30, 37), "scales": 3, "angles": 8, "order": 1, "count": 2},
}


def images(size: tuple[int, int], count: int) -> np.ndarray:
    """Noise, then strokes on black like digits, in [0, 1]."""
    height, width = size
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    drawn = [rng.uniform(size=size)]
    while len(drawn) < count:
        (y0, y1), (x0, x1) = rng.uniform(0.2, 0.8, size=(2, 2)) * [[height], [width]]
        along = np.linspace(0, 1, 50)[:, None, None]
        bent = 4 * np.sin(np.pi * along)
        away = np.hypot(y - y0 - along * (y1 - y0) - bent, x - x0 - along * (x1 - x0)).min(0)
        drawn.append(np.clip(2.5 - away, 0, 1))
    return np.stack(drawn[:count])


def main() -> None:
    from kymatio.numpy import Scattering2D

    coefficients = {}
    for name, case in CASES.items():
        transform = Scattering2D(
            J=case["scales"], shape=case["size"], L=case["angles"], max_order=case["order"]
        )
        result = transform(images(case["size"], case["count"]))
        coefficients[name] = result.astype(np.float32)
    np.savez_compressed(Path(__file__).with_name("scattering_kymatio.npz"), **coefficients)


if __name__ == "__main__":
    main()
