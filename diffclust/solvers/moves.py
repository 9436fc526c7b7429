"""Split-and-merge moves: out of the optima where two classes share one cluster.

Most errors of a plain run are two classes in one cluster while another class holds two. Removing
a cluster costs its samples' margins, which every pass knows; splitting one gains what two
prototypes save on its samples, which a small run on those samples tells.
"""

import dataclasses
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust.prototypes import Clusters
from diffclust.solvers.chunks import Chunks
from diffclust.solvers.lloyd import Lloyd
from diffclust.solvers.principal import leading_direction
from diffclust.solvers.run import Going, Report, Run, Stopping, run_lloyd
from diffclust.solvers.standing import KeepTrying, Split, Trying, attempt


@dataclasses.dataclass(frozen=True)
class Moves:
    """How hard to try.

    Attributes:
        rounds: Most moves that are accepted in one run; 0 switches them off.
        attempts: Proposals tried before giving up.
        split_passes: Passes of the trial run on the samples of one cluster.
        split_samples: Most samples of a cluster that its trial split looks at.
    """

    rounds: int = 20
    attempts: int = 3
    split_passes: int = 4
    split_samples: int = 1024


def _halves(aligned: PyTree, weight: Array) -> PyTree:
    """Two prototypes: means on either side of the mean along the leading principal direction."""
    leaves, structure = jax.tree.flatten(aligned)
    rows = jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)
    mean = (weight @ rows) / jnp.sum(weight)
    centred = (rows - mean[None]) * jnp.sqrt(weight)[:, None]
    direction = leading_direction(centred, iterations=12)
    side = ((rows - mean[None]) @ direction > 0).astype(rows.dtype)
    membership = jnp.stack([1.0 - side, side]) * weight[None]
    share = membership / jnp.maximum(jnp.sum(membership, axis=1, keepdims=True), 1e-30)
    means = [
        (share @ leaf.reshape(leaf.shape[0], -1)).reshape(2, *leaf.shape[1:]) for leaf in leaves
    ]
    return jax.tree.unflatten(structure, means)


@eqx.filter_jit
def _children(
    solver: Lloyd, samples: PyTree, params: Array, weight: Array, parent: Clusters
) -> Clusters:
    aligned = jax.vmap(solver.energy.aligned)(params, samples)
    prototype = jax.vmap(solver.family.normalise)(_halves(aligned, weight))
    twins = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), parent)
    return eqx.tree_at(lambda c: c.prototype, twins, prototype)


def _try_split(
    solver: Lloyd, chunks: Chunks, run: Run, cluster: int, moves: Moves, rng: np.random.Generator
) -> Split | None:
    """What two prototypes would save on one cluster's samples."""
    weight = chunks.weights[: chunks.num_samples]
    members = np.flatnonzero((_assignment(chunks, run) == cluster) & (weight > 0))
    if members.size < 4:
        return None
    some = members
    if members.size > moves.split_samples:
        some = np.sort(rng.choice(members, moves.split_samples, replace=False))
    # One size for the trials of all clusters: each compiles once, and little is padded.
    typical = chunks.num_samples / len(run.learned.clusters)
    size = min(chunks.size, 2 ** math.ceil(math.log2(max(16.0, min(typical, moves.split_samples)))))
    part = chunks.subset(some, size=size)
    past = chunks.recall(run.memory, some)
    params = past.params[:, 0]
    padded = np.zeros((part.count * part.size, params.shape[1]), params.dtype)
    padded[: some.size] = params
    samples = part.gather(np.arange(part.count * part.size))
    parent = run.learned.clusters.take(jnp.asarray(cluster))
    children = _children(solver, samples, jnp.asarray(padded), jnp.asarray(part.weights), parent)
    dtype = params.dtype
    memory = tuple(solver.remember(part.own_size, 2, dtype) for _ in range(part.count))
    trial = run_lloyd(
        solver, part, solver.init(children), memory, Stopping(moves.split_passes, 1e-3)
    )
    before = float(np.sum(past.energy[:, 0] * weight[some]))
    scale = float(weight[members].sum() / weight[some].sum())
    return Split((before - trial.loss) * scale, trial.learned.clusters)


def _replaced(clusters: Clusters, split: int, removed: int, children: Clusters) -> Clusters:
    """The clusters with one split in two, the second half in the place of the removed one."""
    return jax.tree.map(
        lambda all_, new: all_.at[jnp.asarray([split, removed])].set(new), clusters, children
    )


def improve(
    solver: Lloyd,
    chunks: Chunks,
    run: Run,
    stopping: Stopping,
    moves: Moves,
    *,
    seed: int,
    report: Report | None = None,
    split_report: Callable[[int, int], None] | None = None,
    begin: Trying | None = None,
    keep: KeepTrying | None = None,
) -> Run:
    """Splits one cluster and removes another while that lowers the loss.

    Args:
        solver: The solver.
        chunks: The data.
        run: A run that has come to rest.
        stopping: When a run stops.
        moves: How hard to try.
        seed: Seed of the subsamples that trial splits look at.
        report: Called after every chunk of a run, or None.
        split_report: Called with the trial splits done and in all, or None.
        begin: Where to go on, as `keep` was told it; None to begin with `run`.
        keep: Called after every trial split, pass and attempt, or None.

    Returns:
        A run of no greater loss; its history holds the accepted runs' passes.
    """
    rng = np.random.default_rng(seed)
    at = Trying(run) if begin is None else begin
    if at.rng is not None:
        rng.bit_generator.state = at.rng
    del run, begin
    count = len(at.run.learned.clusters)
    for number in range(at.round, moves.rounds if count > 2 else 0):
        for cluster in range(count):
            if cluster not in at.splits:
                found = _try_split(solver, chunks, at.run, cluster, moves, rng)
                splits = {**at.splits, cluster: found}
                at = dataclasses.replace(at, splits=splits, rng=dict(rng.bit_generator.state))
                if keep is not None:
                    keep(at)
            if split_report is not None:
                split_report(cluster + 1, count)
        accepted = _best_move(solver, chunks, at, stopping, moves, report, keep)
        if accepted is None:
            return at.run
        moved, changed = accepted
        # Trials of clusters whose samples hardly changed still stand.
        splits = {k: v for k, v in at.splits.items() if k not in changed}
        at = Trying(moved, number + 1, splits=splits, rng=at.rng)
        if keep is not None:
            keep(at)
    return at.run


def _best_move(
    solver: Lloyd,
    chunks: Chunks,
    at: Trying,
    stopping: Stopping,
    moves: Moves,
    report: Report | None,
    keep: KeepTrying | None,
) -> tuple[Run, set[int]] | None:
    """The first promising move that lowers the loss, and the clusters that it changed."""
    run = at.run
    removal = np.asarray(run.tally.margin)
    proposals = sorted(
        (
            (float(removal[gone]) - split.gain, cut, gone)
            for cut, split in at.splits.items()
            if split is not None
            for gone in range(removal.size)
            if gone != cut
        ),
    )[: moves.attempts]
    while at.attempt < len(proposals):
        estimate, cut, gone = proposals[at.attempt]
        split = at.splits[cut]
        # Margins overstate what a removal costs, since the others adapt; but not twice over.
        if split is None or estimate > 0.5 * split.gain:
            return None
        going = at.going
        if going is None:
            clusters = _replaced(run.learned.clusters, cut, gone, split.children)
            going = Going(solver.init(clusters), run.memory)
        trial = attempt(solver, chunks, at, going, stopping, report=report, keep=keep)
        if trial.loss < run.loss * (1.0 - 1e-4):
            history = run.history + trial.history
            changed = {cut, gone} | _changed(chunks, run, trial)
            return dataclasses.replace(trial, history=history), changed
        at = dataclasses.replace(at, going=None, attempt=at.attempt + 1)
        if keep is not None:
            keep(at)
    return None


def _assignment(chunks: Chunks, run: Run) -> np.ndarray:
    return chunks.collect(run.memory, lambda past: past.cluster[:, 0])


def _changed(chunks: Chunks, run: Run, trial: Run) -> set[int]:
    """Clusters of which more than a tenth of the samples came or went."""
    before, after = (_assignment(chunks, each) for each in (run, trial))
    changed = set()
    for cluster in range(len(run.learned.clusters)):
        was, now = before == cluster, after == cluster
        if np.sum(was != now) > 0.1 * max(1, np.sum(was)):
            changed.add(cluster)
    return changed
