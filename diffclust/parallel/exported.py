"""Traced programs kept on disk, so that a later process need not trace them again.

JAX's own cache keeps what was compiled, and finds it by the program that tracing gives. For small
data tracing then takes longer than all else. What is kept here is found by the function, by what it
is given that is not an array, and by the shapes of the arrays.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import inspect
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import equinox as eqx
import jax
import jax.export
import jaxtyping
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

_PACKAGE = Path(__file__).parent.parent
_LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy")
_KNOWN = ("diffclust", "builtins", "functools", *_LIBRARIES)
"""Packages whose code is the same wherever their versions are; no others' functions are kept."""

_TYPE_CHECKS = Path(jaxtyping.__file__).parent
"""Where the functions are that check types and call others, which alone are traced."""

_folder: Path | None = None


class _UnknownError(Exception):
    """Something of which it is not known what would be traced."""


def keep_programs(folder: str | os.PathLike[str] | None) -> None:
    """Keeps the large programs of later fits in a folder, as tracing gives them.

    A process that needs one of them reads it and does not trace it. What JAX compiles is kept by
    JAX itself, if `jax_compilation_cache_dir` is set; together they make a small fit begin at once.
    Programs of one device are kept, and no programs of energies, transforms or other parts that are
    not diffclust's own. Files are read by `pickle`: take a folder to which nobody else can write.

    Args:
        folder: The folder, which is made where there is none; None to keep nothing.
    """
    global _folder
    _folder = None if folder is None else Path(folder).absolute()
    if _folder is not None:
        _folder.mkdir(parents=True, exist_ok=True)


def exported_jit(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`equinox.filter_jit`, whose programs `keep_programs` keeps.

    Args:
        function: The function, or a method of a module.

    Returns:
        The function, compiled.
    """
    traced_anew = eqx.filter_jit(function)

    @eqx.filter_jit
    @functools.wraps(function)
    def kept(*args: Any, **kwargs: Any) -> PyTree:
        return _exported(function, (args, kwargs))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> PyTree:
        arrays, rest = eqx.partition((args, kwargs), eqx.is_array)
        if _folder is None or _is_elsewhere(jax.tree.leaves(arrays)):
            return traced_anew(*args, **kwargs)
        # An exported program gives arrays that are bound to the device. What it is given is too,
        # or it would be compiled for both.
        args, kwargs = eqx.combine(jax.device_put(arrays, jax.local_devices()[0]), rest)
        return kept(*args, **kwargs)

    return run


def _is_elsewhere(arrays: list[Any]) -> bool:
    """Whether several devices, another one than the first, or a larger program have the arrays."""
    first = {jax.local_devices()[0]}
    if jax.config.values["jax_default_device"] not in (None, *first):
        return True
    placed = (array for array in arrays if isinstance(array, jax.Array))
    return any(isinstance(array, Tracer) or array.devices() != first for array in placed)


def _exported(function: Callable[..., PyTree], call: Any) -> PyTree:
    """What a function gives, traced from its program on disk if it is there."""
    assert _folder is not None
    try:
        words = "\0".join((*_described((function, call)), *_surroundings()))
    except (_UnknownError, RecursionError, ValueError, TypeError):
        return function(*call[0], **call[1])
    arrays, rest = eqx.partition(call, eqx.is_array)
    leaves, tree = jax.tree.flatten(arrays)
    file = _folder / f"diffclust-program-{hashlib.sha256(words.encode()).hexdigest()[:40]}"
    try:
        program, result = _read(file)
    except Exception:  # A damaged file may raise anything.
        results: list[PyTree] = []

        def traced(*given: Any) -> Any:
            args, kwargs = eqx.combine(jax.tree.unflatten(tree, given), rest)
            arrays, others = eqx.partition(function(*args, **kwargs), eqx.is_array)
            flat, out = jax.tree.flatten(arrays)
            results.append((jax.tree.unflatten(out, range(len(flat))), others))
            return flat

        structs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        try:
            program, result = jax.export.export(jax.jit(traced))(*structs), results[-1]
        except (ValueError, NotImplementedError):
            # It calls something that JAX does not export, or is at fault itself.
            return function(*call[0], **call[1])
        with contextlib.suppress(OSError, ImportError, NotImplementedError, pickle.PicklingError):
            _write(file, program, result)
    given, (places, others) = program.call(*leaves), result
    return eqx.combine(jax.tree.map(lambda place: given[place], places), others)


_DIGEST = hashlib.sha256().digest_size


def _read(file: Path) -> tuple[Any, PyTree]:
    content = file.read_bytes()
    digest, content = content[:_DIGEST], content[_DIGEST:]
    # JAX looks at most of it only where the program is called.
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("damaged")
    program, result = pickle.loads(content)
    return jax.export.deserialize(bytearray(program)), result


def _write(file: Path, program: Any, result: PyTree) -> None:
    content = pickle.dumps((bytes(program.serialize()), result))
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.name, delete=False) as new:
        try:
            new.write(hashlib.sha256(content).digest() + content)
            new.close()
            Path(new.name).replace(file)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise


@functools.cache
def _code() -> str:
    """A digest of the code that may be traced."""
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        digest.update(file.read_bytes())
    return " ".join([digest.hexdigest(), *map(importlib.metadata.version, _LIBRARIES)])


def _surroundings() -> Iterator[str]:
    """All else that a program depends on."""
    yield from (_code(), jax.default_backend())
    values = jax.config.values  # within a context those of the context
    for name in sorted(values):
        if not name.startswith(("jax_compilation_cache", "jax_persistent_cache", "jax_explain")):
            yield f"{name}={values[name]}"


def _described(value: Any, *, constant: bool = False) -> Iterator[str]:
    """What is traced of a value: of arrays their shapes, unless they are constants."""
    inside = functools.partial(_described, constant=constant)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.dtype):
        yield repr(value)
    elif isinstance(value, np.ndarray | np.generic) or (constant and isinstance(value, jax.Array)):
        if isinstance(value, Tracer):
            raise _UnknownError
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise _UnknownError
        yield f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"
    elif isinstance(value, jax.Array):
        yield f"{value.aval.str_short()} {value.aval.weak_type}"
    elif isinstance(value, type):
        yield _name(value)
    elif isinstance(value, MethodType):
        yield from inside(value.__func__)
        yield from inside(value.__self__)
    elif isinstance(value, FunctionType):
        if Path(value.__code__.co_filename).parent == _TYPE_CHECKS:
            value = inspect.unwrap(value)
        yield f"{_name(value)} {' '.join(_instructions(value.__code__))}"
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        yield from _described((cells, value.__defaults__, value.__kwdefaults__), constant=True)
    elif isinstance(value, functools.partial):
        yield from inside((value.func, value.args, value.keywords))
    elif isinstance(value, tuple | list):
        yield f"{_name(type(value))} {len(value)}"
        for each in value:
            yield from inside(each)
    elif isinstance(value, Mapping):
        yield from inside((*value.keys(), *value.values()))
    elif dataclasses.is_dataclass(value):
        yield _name(type(value))
        for field in dataclasses.fields(value):
            static = constant or field.metadata.get("static", False)
            yield from _described(getattr(value, field.name, None), constant=static)
    else:
        raise _UnknownError


def _instructions(code: CodeType) -> Iterator[str]:
    yield f"{code.co_firstlineno} {code.co_names} {code.co_code.hex()}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        else:
            # The order of a set differs from process to process.
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)


def _name(value: type | FunctionType) -> str:
    """The name of a class or function of a known package."""
    if (value.__module__ or "").split(".")[0] not in _KNOWN:
        raise _UnknownError
    return f"{value.__module__}.{value.__qualname__}"
