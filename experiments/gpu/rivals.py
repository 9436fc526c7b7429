"""What other people's code takes for the same work on the same device, where it is installed.

    python -m experiments.gpu.rivals [--name scattering] [--authors DIR] [--seed 0] [--quick]

`scattering`, `kymatio-jax`, `kymatio-torch`: images that are scattered a second, by ours and by
kymatio's two backends. `authors-step`: a training step of the PyTorch code of DTI clustering, a
checkout of github.com/monniert/dti-clustering in DIR. Images are on the device already.
"""

import importlib.util
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

# `versions` asks JAX about the device, beside what PyTorch holds there.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

from experiments.gpu.measure import Figures, note, versions
from experiments.harness import arguments, finish

SIDE = 32


def seconds_of(run: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of the first call and of the others."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def ours() -> tuple[Callable[[Any], Any], Callable[[np.ndarray], Any], Callable[[Any], Any]]:
    """What transforms a batch, what brings one to the device, and what waits."""
    import jax

    from diffclust.features import Scattering

    transform = jax.jit(jax.vmap(Scattering(SIDE, SIDE, num_scales=3, num_angles=8)))
    return transform, lambda part: jax.device_put(part[..., None]), jax.block_until_ready


def need(name: str) -> None:
    if not importlib.util.find_spec(name):
        sys.exit(f"error: {name} is not installed")


def without_harmonics() -> None:
    """SciPy 1.17 has no `sph_harm`, which kymatio imports for its transform in 3-D."""
    import scipy.special

    need("kymatio")
    if not hasattr(scipy.special, "sph_harm"):
        scipy.special.sph_harm = None  # pyright: ignore[reportAttributeAccessIssue]


def kymatio_jax():
    import jax

    without_harmonics()
    from kymatio.jax import Scattering2D

    transform = jax.jit(Scattering2D(J=3, shape=(SIDE, SIDE), L=8).__call__)
    return transform, jax.device_put, jax.block_until_ready


def kymatio_torch():
    need("torch")
    import torch

    without_harmonics()
    from kymatio.torch import Scattering2D

    device = "cuda" if torch.cuda.is_available() else "cpu"
    transform = Scattering2D(J=3, shape=(SIDE, SIDE), L=8).to(device)

    def run(batch):
        with torch.no_grad():
            return transform(batch)

    def wait(result):
        if device == "cuda":
            torch.cuda.synchronize()
        return result

    return run, lambda part: torch.from_numpy(part).to(device), wait


def throughput(make: Callable[[], Any]) -> Callable[[int, bool, Path | None], Figures]:
    """Images a second by batch size; 32×32, J = 3, L = 8, order 2, float32."""

    def measured(seed: int, quick: bool, authors: Path | None) -> Figures:
        del authors
        count, batches = (64, (32,)) if quick else (16_384, (256, 1024, 4096))
        images = np.random.default_rng(seed).uniform(size=(count, SIDE, SIDE)).astype(np.float32)
        transform, place, wait = make()
        rows: Figures = {}
        for size in batches:
            parts = [place(images[at : at + size]) for at in range(0, count, size)]

            def sweep(parts: list[Any] = parts) -> None:
                for part in parts:
                    wait(transform(part))

            first, *others = seconds_of(sweep, 5)
            rows[str(size)] = {
                "images_a_second": [round(count / spent) for spent in others],
                "first_sweep_seconds": round(first, 2),
            }
            result = transform(parts[0])
            result = result.cpu() if hasattr(result, "cpu") else result
            # The same for all of them, up to rounding.
            rows["mean_sum"] = round(float(np.asarray(result, np.float64).sum()) / size, 3)
            note(rows)
        return rows

    return measured


class Digits:
    """What the authors' models ask of a data set."""

    n_channels, img_size = 1, (28, 28)

    def __init__(self, images: Any) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int):
        return self.images[index], 0


def authors_step(seed: int, quick: bool, authors: Path | None) -> Figures:
    """Their step with all transforms on: `Trainer.single_train_batch_run` without its logging."""
    if authors is None:
        sys.exit("error: give --authors DIR, a checkout of their code")
    need("torch")
    import torch

    from diffclust.data import load

    sys.path.insert(0, str(authors / "src"))
    if not importlib.util.find_spec("kornia"):
        # Imported for projective maps, which are not used here.
        sys.modules["kornia"] = types.ModuleType("kornia")
        sys.modules["kornia"].homography_warp = None  # pyright: ignore[reportAttributeAccessIssue]
    from model import get_model  # pyright: ignore[reportMissingImports]

    torch.manual_seed(seed)
    np.random.seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images = load("mnist", split="test", limit=128, seed=seed).images
    batch = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    figures: Figures = {"torch": torch.__version__, "device": device}
    for name in ("dtikmeans", "dtigmm"):
        model = get_model(name)(
            Digits(batch),
            10,
            encoder_name="resnet20",
            transformation_sequence="identity_affine_morpho_tps",
            curriculum_learning=False,
            grid_size=4,
            kernel_size=7,
        ).to(device)
        optimizer = torch.optim.Adam(
            [
                {"params": model.cluster_parameters()},
                {"params": list(model.transformer_parameters()), "weight_decay": 1e-6},
            ],
            lr=1e-3,
        )
        model.set_optimizer(optimizer)
        model.train()

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss, distances = model(batch.to(device))
            loss.backward()
            optimizer.step()
            return loss.item(), distances.min(1)[1].cpu()

        first, *others = seconds_of(step, 2 if quick else 50)
        figures[name] = {
            "first": round(first, 2),
            "least": round(min(others), 4),
            "median": round(float(np.median(others)), 4),
        }
        note(figures)
    if device == "cuda":
        figures["device_peak_mb_torch"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return figures


RIVALS = {
    "scattering": throughput(ours),
    "kymatio-jax": throughput(kymatio_jax),
    "kymatio-torch": throughput(kymatio_torch),
    "authors-step": authors_step,
}


def main() -> None:
    args = arguments(
        __doc__,
        name={"default": "scattering", "choices": list(RIVALS)},
        authors={"type": Path, "default": None, "help": "a checkout of the authors' code"},
    )
    figures = RIVALS[args.name](args.seed, args.quick, args.authors)
    finish(
        {"measurement": args.name, "seed": args.seed, "figures": figures, "versions": versions()}
    )


if __name__ == "__main__":
    main()
