"""Files: saved models, snapshots of interrupted fits, and folders that are complete or absent.

Take `save` and `load` for results, `SnapshotFolder` to make a long fit go on where it stopped.
"""

from diffclust.storage.checkpoint import load, save
from diffclust.storage.snapshots import SharedSnapshots, SnapshotFolder

__all__ = ["SharedSnapshots", "SnapshotFolder", "load", "save"]
