"""Where images come from: folders, arrays and `.npz` files, bundled and generated digits.

`load` takes any source that the command line takes; the other names load one kind.
You need it before a fit, to turn what you have into `[n, height, width, channels]` in [0, 1].
For shapes, `load_landmarks` reads `[n, landmarks, dims]`, and `simulated_shapes` draws them.
"""

from diffclust.data.arrays import as_images, load_array
from diffclust.data.dataset import DataError, Dataset
from diffclust.data.digits import load_digits
from diffclust.data.folder import load_folder
from diffclust.data.generated import affine_mnist, diffeo_mnist
from diffclust.data.landmarks import LandmarkSet, check_landmarks, load_landmarks
from diffclust.data.mnist_variants import affnist_like, mnist_color
from diffclust.data.simulated import simulated_shapes
from diffclust.data.source import load

Collection = Dataset | LandmarkSet
"""What can be clustered, with what is known about it."""

__all__ = [
    "Collection",
    "DataError",
    "Dataset",
    "LandmarkSet",
    "affine_mnist",
    "affnist_like",
    "as_images",
    "check_landmarks",
    "diffeo_mnist",
    "load",
    "load_array",
    "load_digits",
    "load_folder",
    "load_landmarks",
    "mnist_color",
    "simulated_shapes",
]
