"""Where images come from: folders of pictures or recordings, files, TFDS, generated digits.

`load` takes any source that the command line takes; the other names load one kind.
You need it before a fit, to turn what you have into `[n, height, width, channels]` in [0, 1].
For shapes, `load_landmarks` reads `[n, landmarks, dims]`, and `simulated_shapes` draws them; for
series, `load_series` reads `[n, length, channels]`.
"""

from diffclust.data.arrays import LoadSettings, PaddedSize, as_images
from diffclust.data.audio import load_recordings, spectrogram
from diffclust.data.dataset import (
    Collection,
    DataError,
    Dataset,
    LandmarkSet,
    Recordings,
    SeriesSet,
)
from diffclust.data.files import load_array, load_mask, load_weights
from diffclust.data.folder import load_folder
from diffclust.data.generated import affine_mnist, affnist_like, diffeo_mnist, mnist_color
from diffclust.data.landmarks import check_landmarks, load_landmarks
from diffclust.data.series import check_series, load_series
from diffclust.data.simulated import simulated_shapes
from diffclust.data.source import load, load_digits
from diffclust.data.stream import (
    FittedImages,
    FolderImages,
    RawImages,
    RecordImages,
    open_stream,
    outgrows_memory,
    write_stream,
)
from diffclust.data.tfds import load_tfds
from diffclust.image_source import ImageSource

__all__ = [
    "Collection",
    "DataError",
    "Dataset",
    "FittedImages",
    "FolderImages",
    "ImageSource",
    "LandmarkSet",
    "LoadSettings",
    "PaddedSize",
    "RawImages",
    "RecordImages",
    "Recordings",
    "SeriesSet",
    "affine_mnist",
    "affnist_like",
    "as_images",
    "check_landmarks",
    "check_series",
    "diffeo_mnist",
    "load",
    "load_array",
    "load_digits",
    "load_folder",
    "load_landmarks",
    "load_mask",
    "load_recordings",
    "load_series",
    "load_tfds",
    "load_weights",
    "mnist_color",
    "open_stream",
    "outgrows_memory",
    "simulated_shapes",
    "spectrogram",
    "write_stream",
]
