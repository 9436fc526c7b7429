"""Saving and loading of results with orbax: arrays and JSON, no pickle."""

import dataclasses
import glob
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from diffclust._signals import signals_deferred
from diffclust._validation import reason_of
from diffclust._version import __version__
from diffclust.image_source import checksum
from diffclust.methods import OWN
from diffclust.models import MODELS, AbstractModel, Result
from diffclust.models.base import shape_of
from diffclust.models.identity import (
    LATER,
    composition_values,
    own_settings,
    parts_outside_files,
)
from diffclust.models.images import AbstractImageModel
from diffclust.models.own import AbstractOwnModel
from diffclust.parallel.processes import saving_alone
from diffclust.solvers import Assignment, Outcome, Status
from diffclust.solvers.driver import as_tuples
from diffclust.storage.arrays import leaf_name, named_leaves
from diffclust.storage.orbax_errors import save_reason, silence_orbax
from diffclust.storage.staging import check_target, read_object, refuse_patterns, staged, write_json

FORMAT = 2
"""To be raised when this version could no longer read what the next one writes."""

_DESCRIPTION = "model.json"
_ARRAYS = "arrays"
_EXTRA = "extra_"

_OLD_LEAF_NAMES = {"prototype.covariance": "prototype.spread"}
"""What leaves were called in files of diffclust 0.1."""

_BEFORE = {"register": "none", "contrast": "none", **LATER}
"""What models did that were saved before there were these settings."""

_OLD_FIGURE_NAMES = {"floored": "num_clipped"}
"""What figures are called now that had another name there."""


@signals_deferred()
def save(path: str | Path, result: Result, *, overwrite: bool = False) -> None:
    """Saves a result in a folder: `model.json` and, with orbax, its arrays.

    The folder is written beside its place and then renamed, so that it is complete or not there.

    Args:
        path: The folder, new or empty.
        result: What `model.fit` returned.
        overwrite: Whether a result that is saved there already is replaced.

    Raises:
        ValueError: If something else is there, or the path has `[`, `*` or a backslash in it.
        OSError: If the folder cannot be written.
    """
    import orbax.checkpoint as ocp

    refuse_patterns(path)
    target = check_target(path, kind="model", is_one=_is_own, overwrite=overwrite)
    arrays = _arrays(result)
    with staged(target, replace=overwrite) as folder:
        # Orbax refuses arrays without elements, such as the params of a method that moves nothing.
        tree = {name: array for name, array in arrays.items() if array.size}
        quiet = silence_orbax()
        try:
            with _checkpointer() as checkpointer:
                checkpointer.save((folder / _ARRAYS).absolute(), args=ocp.args.PyTreeSave(tree))
        # Orbax and tensorstore raise whatever they like. What they still print stays unprinted.
        except Exception as error:
            raise OSError(
                f"no model can be saved in {str(path)!r} ({save_reason(error)})"
            ) from error
        quiet.close()
        write_json(folder / _DESCRIPTION, _describe(result, arrays))


def load(path: str | Path, *, like: AbstractModel | None = None, sample: Any = None) -> Result:
    """Loads what `save` wrote; it predicts what the original predicts, bit for bit.

    Args:
        path: The folder, or that of a run of `diffclust fit`, whose `model` is taken.
        like: The model that was fitted, if it is none of the named ones (a `Clustering`, one with
            an objective or a class of one's own), whose parts a file cannot hold.
        sample: One sample of it, where samples are trees of arrays.

    Returns:
        The result.

    Raises:
        ValueError: If there is no such folder, it holds no model, the model is of a newer format
            or damaged, or it is in double precision while JAX's is off.
    """
    folder = _model_folder(Path(path))
    refuse_patterns(folder)
    try:
        description = json.loads((folder / _DESCRIPTION).read_text("utf-8"))
        written, version = int(description["format"]), str(description["diffclust"])
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise _damage_error(folder, error) from error
    if written > FORMAT:
        raise ValueError(
            f"the model in {str(folder)!r} is of format {written}, written by diffclust {version}; "
            f"this is {__version__}, which reads up to format {FORMAT}: install a newer one"
        )
    composition = description.get("composition", "")
    own = bool(composition) or description.get("method") == OWN.name
    if own != (like is not None):
        remedy = "is one of the user's own; give the model as like=" if own else "takes no like="
        raise ValueError(f"the model in {str(folder)!r} {remedy}")
    if like is not None and composition and like.composition != composition:
        raise ValueError(
            f"the model in {str(folder)!r} is {composition}, and like= is {like.composition}; give "
            "the one that was fitted"
        )
    stored = description.get("composed", {})  # earlier versions did not write it
    given = {} if like is None else composition_values(like)
    # As text, in which NaN is itself.
    for name in [n for n, value in stored.items() if json.dumps(value) != json.dumps(given.get(n))]:
        raise ValueError(
            f"the model in {str(folder)!r} has {name} {stored[name]!r}, and like= has "
            f"{given.get(name)!r}; give the one that was fitted"
        )
    _check_sample(folder, description, sample)
    try:
        arrays = _read_arrays(folder / _ARRAYS, description["arrays"])
        double = any(array.dtype == np.float64 for array in _prototype_arrays(arrays))
        if not double or jnp.result_type(float) == jnp.float64:
            return _rebuild(description, arrays, like, sample)
    # Damaged files raise whatever orbax, tensorstore or a constructor happened to be doing.
    except Exception as error:
        raise _damage_error(folder, error) from error
    raise ValueError(
        f"the model in {str(folder)!r} is in double precision, which is switched off; switch it on "
        "with jax.config.update('jax_enable_x64', True), or JAX_ENABLE_X64=1 in the environment"
    )


def _check_sample(folder: Path, description: dict[str, Any], sample: Any) -> None:
    """Refuses a sample of other shapes, and none where samples are trees."""
    try:
        shape = _as_shape(description["sample_shape"])
    except (KeyError, TypeError, ValueError):
        return  # Format 1, or damaged.
    about = f"the model in {str(folder)!r} is of samples"
    if sample is not None and shape_of(sample) != shape:
        raise ValueError(
            f"{about} of shape {shape}, and sample= has {shape_of(sample)}; give one like those "
            "that were fitted"
        )
    # A tree of one array has the shape of that array.
    is_tree = description.get("is_tree") or any(isinstance(side, tuple) for side in shape)
    if sample is None and is_tree:
        raise ValueError(f"{about} that are trees of arrays; give one of them as sample=")


def prototypes_checksum(result: Result) -> int:
    """A number that tells whether it is the same fit.

    Args:
        result: A fitted model of samples that are arrays.

    Returns:
        The CRC-32 of its prototypes, in single precision whatever they were loaded in.
    """
    return checksum(np.asarray(result.prototypes, np.float32))


def _prototype_arrays(arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The prototypes, whose precision is the model's."""
    return [array for name, array in arrays.items() if name.startswith("prototype")]


def _is_own(folder: Path) -> bool:
    """Whether the folder is a model of ours, which may be replaced; others have that name too."""
    return {"format", "diffclust"} <= read_object(folder / _DESCRIPTION).keys()


def _model_folder(path: Path) -> Path:
    """The folder with `model.json` in it."""
    shown = repr(str(path))
    remedy = "give a folder that diffclust.save or 'diffclust fit' wrote"
    if not path.is_dir():
        left = next(path.parent.glob(f".{glob.escape(path.name)}.*.old"), None)
        if left is not None and not path.exists():
            remedy = f"it was being replaced: rename {str(left)!r}, the former one, back to it"
        raise ValueError(f"{shown} {'is a file' if path.exists() else 'does not exist'}; {remedy}")
    for folder in (path, path / "model"):
        if (folder / _DESCRIPTION).is_file():
            return folder
    raise ValueError(f"{shown} holds no model, for lack of a {_DESCRIPTION}; {remedy}")


def _damage_error(folder: Path, error: Exception) -> ValueError:
    return ValueError(
        f"the model in {str(folder)!r} is damaged ({type(error).__name__}: "
        f"{reason_of(error)[:200]}); fit it again or restore it"
    )


def _describe(result: Result, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    outcome, model = result.outcome, result.model
    named = MODELS.get(model.method) is type(model) and not any(
        getattr(model, name) is not None for name in parts_outside_files(model)
    )
    return {
        "format": FORMAT,
        "diffclust": __version__,
        "method": model.method,
        "settings": model.settings() if named else own_settings(model),
        "composition": "" if named else model.composition,
        "composed": {} if named else composition_values(model),
        "sample_shape": list(result.sample_shape),
        "is_tree": _is_of_trees(result),
        "given_shape": None if result.given_shape is None else list(result.given_shape),
        "status": outcome.status.value,
        "loss": outcome.loss,
        "chunk_size": outcome.chunk_size,
        "seconds": outcome.seconds,
        "figures": dict(outcome.figures),
        "arrays": {
            name: {"shape": list(a.shape), "dtype": a.dtype.name, "crc32": checksum(a)}
            for name, a in arrays.items()
        },
    }


def _is_of_trees(result: Result) -> bool:
    """Whether samples are trees of arrays; prototypes may be trees where samples are arrays."""
    if not isinstance(result.model, AbstractOwnModel):
        return not hasattr(result.prototypes, "shape")
    prototype = result.outcome.learned.clusters.take(jnp.asarray(0)).prototype
    sample = eqx.filter_eval_shape(result.model.solver().energy.exemplar, prototype)
    return not hasattr(sample, "shape")


def _arrays(result: Result) -> dict[str, np.ndarray]:
    """Collects all arrays of a result on the host."""
    outcome = result.outcome
    arrays = {
        **{_name_in_file(name): leaf for name, leaf in named_leaves(outcome.learned).items()},
        **named_leaves(outcome.assignment),
        "history": np.asarray(outcome.history, np.float64),
        "restarts": np.asarray(outcome.restarts, np.float64),
    }
    arrays |= {_EXTRA + name: array for name, array in outcome.extras.items()}
    return {name: np.asarray(array) for name, array in arrays.items()}


def _name_in_file(name: str) -> str:
    """The name of a learned leaf in files: `prototype`, `shared.layers.0.weight`."""
    return name.removeprefix("clusters.")


def _rebuild(
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
    like: AbstractModel | None,
    sample: Any,
) -> Result:
    settings = as_tuples(description["settings"])
    # Format 1 knew images only.
    shape = _as_shape(description.get("sample_shape") or description["image_shape"])
    if like is None:
        kind = MODELS[description["method"]]
        earlier = {n: v for n, v in _BEFORE.items() if n in kind.setting_types()}
        model = kind.from_settings(earlier | settings)
    else:
        model = _with_settings(like, settings)
    if isinstance(model, AbstractImageModel) and model.register != "none" and not model.canvas:
        # Saved while images kept their size, or had 28 pixels a side.
        model = dataclasses.replace(model, canvas=min(shape[:2]))
    given = description.get("given_shape")
    given_shape = None if given is None else _as_shape(given)
    dtype = _prototype_arrays(arrays)[0].dtype
    if sample is None:
        sample = jax.ShapeDtypeStruct(shape, dtype)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, dtype), sample)

    def filled(path: tuple[Any, ...], leaf: Any) -> Any:
        name = _name_in_file(leaf_name(path))
        array = arrays[name if name in arrays else _OLD_LEAF_NAMES.get(name, name)]
        if array.shape != leaf.shape:
            raise ValueError(f"{name} does not fit the settings")
        # Saved in single precision, and read in double, it meets samples in double.
        floating = jnp.issubdtype(array.dtype, jnp.floating)
        return jnp.asarray(array, dtype=jnp.result_type(float) if floating else None)

    learned = jax.tree_util.tree_map_with_path(filled, model.template(shapes))
    figures = description.get("figures", {}).items()
    required = [f for f in dataclasses.fields(Assignment) if f.default is dataclasses.MISSING]
    fields = (arrays[field.name] for field in required)
    assignment = Assignment(*fields, nonconformity=arrays.get("nonconformity"))
    outcome = Outcome(
        learned,
        assignment,
        tuple(arrays["history"].tolist()),
        tuple(arrays["restarts"].tolist()),
        Status(description["status"]),
        int(description["chunk_size"]),
        float(description["seconds"]),
        # As what was learned: in double where that is JAX's default, as new samples are.
        {
            n.removeprefix(_EXTRA): a.astype(jnp.result_type(float)) if a.dtype == np.float32 else a
            for n, a in arrays.items()
            if n.startswith(_EXTRA)
        },
        {str(_OLD_FIGURE_NAMES.get(name, name)): float(value) for name, value in figures},
    )
    return Result(model, shape, outcome, given_shape)


def _with_settings(like: AbstractModel, settings: dict[str, Any]) -> AbstractModel:
    """A user's own model with the settings of the file."""
    if getattr(getattr(like, "own_objective", None), "transforms", None) is not None:
        # Earlier versions saved transforms although the objective has its own.
        settings = {name: value for name, value in settings.items() if name != "transforms"}
    return dataclasses.replace(like, **settings)


def _as_shape(sides: list[Any]) -> tuple[Any, ...]:
    """A shape, or those of a tree's parts, as they are in a file."""
    return tuple(tuple(side) if isinstance(side, list) else int(side) for side in sides)


def _checkpointer() -> Any:
    import orbax.checkpoint as ocp

    alone = saving_alone()
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


@signals_deferred()
def _read_arrays(folder: Path, described: dict[str, Any]) -> dict[str, np.ndarray]:
    import orbax.checkpoint as ocp

    blank = {
        name: np.zeros([int(side) for side in each["shape"]], _dtype(each["dtype"]))
        for name, each in described.items()
    }
    stored = {name for name, array in blank.items() if array.size}
    # As NumPy arrays, on any number of devices, and whatever JAX's precision is.
    as_host = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in stored}
    with _checkpointer() as checkpointer:
        read = checkpointer.restore(
            folder.absolute(), args=ocp.args.PyTreeRestore(restore_args=as_host)
        )
    arrays = {name: read[name] if name in stored else array for name, array in blank.items()}
    for name, array in arrays.items():
        expected = (blank[name].shape, blank[name].dtype, described[name]["crc32"])
        if (array.shape, array.dtype, checksum(array)) != expected:
            raise ValueError(f"{name} is not what was saved")
    return arrays


def _dtype(name: str) -> np.dtype:
    dtype = np.dtype(name)
    if dtype.kind not in "biuf":
        raise ValueError(f"no numbers: {name!r}")
    return dtype
