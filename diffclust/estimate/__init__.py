"""Before a long fit: how long it will take, and how much memory.

`estimate(model, samples, key=key)` times the parts of a fit with a few samples. You need it to
choose settings, to book a machine, or to announce to a user what is coming.
"""

from diffclust.estimate.result import Estimate, StageCost
from diffclust.estimate.stages import estimate

__all__ = ["Estimate", "StageCost", "estimate"]
