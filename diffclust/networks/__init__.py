"""Networks that read one image and predict a transform's params for every cluster.

A backbone turns an image into features once, and a small head per cluster turns them into params.
You need this where a network is to predict alignments (DTI clustering) instead of a search.
"""

from diffclust.networks.backbones import (
    AbstractBackbone,
    AbstractBatchBackbone,
    BatchFeatures,
    Head,
    ResidualBackbone,
    StridedBackbone,
    make_heads,
    residual_backbone,
)

__all__ = [
    "AbstractBackbone",
    "AbstractBatchBackbone",
    "BatchFeatures",
    "Head",
    "ResidualBackbone",
    "StridedBackbone",
    "make_heads",
    "residual_backbone",
]
