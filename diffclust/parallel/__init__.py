"""Several devices and processes: samples shared out among them, what is learned alike on each.

Take `data_mesh` for `fit(mesh=...)`; `shard_batch`, `replicate` and `sharded` to run a solver's
pure steps yourself; `Data` for samples with the devices, processes and chunks that share them.
"""

from diffclust.parallel.chunks import Batch, Chunks, default_chunk_size
from diffclust.parallel.data import Data, Description
from diffclust.parallel.exported import keep_programs
from diffclust.parallel.mesh import (
    AXIS,
    check_batch_size,
    check_mesh,
    data_mesh,
    map_rows,
    map_rows_on_host,
    own_mesh,
    own_part,
    own_size,
    ready_on_cpu,
    replicate,
    shard_batch,
    shard_rows,
    sharded,
    share,
    unreplicated,
)
from diffclust.parallel.processes import (
    num_processes,
    own_share,
    raise_everywhere,
    spans,
    start_processes,
)

__all__ = [
    "AXIS",
    "Batch",
    "Chunks",
    "Data",
    "Description",
    "check_batch_size",
    "check_mesh",
    "data_mesh",
    "default_chunk_size",
    "keep_programs",
    "map_rows",
    "map_rows_on_host",
    "num_processes",
    "own_mesh",
    "own_part",
    "own_share",
    "own_size",
    "raise_everywhere",
    "ready_on_cpu",
    "replicate",
    "shard_batch",
    "shard_rows",
    "sharded",
    "share",
    "spans",
    "start_processes",
    "unreplicated",
]
