"""Shapes as landmarks: files of them, checks, and simulated ones.

`load_landmarks` reads `.npz`, `.csv` and `.tps`; `check_landmarks` is for arrays of your own.
All public names are in `diffclust.data` too.
"""

from diffclust.data.landmarks.landmark_set import LandmarkSet, check_landmarks
from diffclust.data.landmarks.loading import load_landmarks
from diffclust.data.landmarks.simulated import simulated_shapes

__all__ = ["LandmarkSet", "check_landmarks", "load_landmarks", "simulated_shapes"]
