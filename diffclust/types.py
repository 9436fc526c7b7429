"""The array types that signatures are written in, and nothing else."""

from jaxtyping import Array, Float, Int, PRNGKeyArray

Image = Float[Array, "height width channels"]
"""One image, channels last, intensities in [0, 1] unless it was scaled to unit norm."""

Images = Float[Array, "n height width channels"]
"""A batch of images."""

Series = Float[Array, "length channels"]
"""One series of values over time, a row for each moment."""

Sample = Float[Array, "*size channels"]
"""An image, a series, a volume: channels last."""

Points = Float[Array, "2 *grid"]
"""Points in [-1, 1]²: `points[0]` holds x (to the right), `points[1]` holds y (downwards)."""

Params = Float[Array, " params"]
"""A transform's flat parameter vector; zero is the identity."""

Landmarks = Float[Array, "landmarks dims"]
"""One shape: its landmarks, one a row, in any number of dimensions."""

Shapes = Float[Array, "n landmarks dims"]
"""A batch of shapes."""

LandmarkWeights = Float[Array, " landmarks"]
"""A weight for each landmark, at least 0 and positive somewhere."""

Scalar = Float[Array, ""]
Count = Int[Array, ""]
Key = PRNGKeyArray
