"""Where images come from: folders, arrays and `.npz` files, bundled and generated digits.

`load` takes any source that the command line takes; the other names load one kind.
You need it before a fit, to turn what you have into `[n, height, width, channels]` in [0, 1].
"""

from diffclust.data.arrays import as_images, load_array
from diffclust.data.dataset import DataError, Dataset
from diffclust.data.digits import load_digits
from diffclust.data.folder import load_folder
from diffclust.data.generated import affine_mnist, diffeo_mnist
from diffclust.data.mnist_variants import affnist_like, mnist_color
from diffclust.data.source import load

__all__ = [
    "DataError",
    "Dataset",
    "affine_mnist",
    "affnist_like",
    "as_images",
    "diffeo_mnist",
    "load",
    "load_array",
    "load_digits",
    "load_folder",
    "mnist_color",
]
