"""A page on which a person corrects the clusters of a run and names them.

`edits` holds what can be changed, as pure functions; `storage` keeps it in a file; `samples` draws
samples and finds similar ones; `reviewer` answers what the page asks; `server` serves the page on
this machine alone; `formats` writes labels for other programs.
You need it to turn clusters into labels: `diffclust review RUN` serves the page.
"""

from diffclust.review.edits import Labelling, Review
from diffclust.review.reviewer import Reviewer
from diffclust.review.samples import ReviewSamples
from diffclust.review.server import ReviewServer
from diffclust.review.storage import ReviewFile

__all__ = ["Labelling", "Review", "ReviewFile", "ReviewSamples", "ReviewServer", "Reviewer"]
