"""Names of version 0.1 that have moved: they warn in 0.2, and go in 0.3.

`renamed.json` says for every module of 0.1 where the names went that are not there any more; for
those without a successor what to use, or null for what was internal.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@functools.cache
def table() -> dict[str, dict[str, str | None]]:
    """The successors of the names of version 0.1.

    Returns:
        For each module its names, and for each of these `"module:name"`, a sentence that begins
        with `"use"`, or None.
    """
    return json.loads(Path(__file__).with_name("renamed.json").read_text("utf-8"))


def former_names(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__`, which finds the names that it had in version 0.1.

    Args:
        module: Name of the module.

    Returns:
        A function of the name that is asked for.
    """

    def successor(name: str) -> Any:
        names = table()[module]
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place = names[name]
        if place is None:
            raise AttributeError(
                f"{module}.{name} of diffclust 0.1 is gone: it was internal and has no successor"
            )
        if place.startswith("use "):
            # An AttributeError's words would be lost in an import statement.
            raise ImportError(f"{module}.{name} of diffclust 0.1 is gone; {place}")
        target, new = place.split(":")
        warnings.warn(
            f"{module}.{name} is now {target}.{new}; the old name goes in diffclust 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(importlib.import_module(target), new)

    return successor


def renamed_keywords(**names: str) -> Callable[[F], F]:
    """A decorator that accepts the keywords of version 0.1 under their former names, and warns.

    Args:
        **names: Each keyword's name now, by its name in version 0.1.

    Returns:
        The decorator, of functions and of equinox modules.
    """

    def decorate(function: F, stacklevel: int = 2) -> F:
        if isinstance(function, type):
            # Equinox stands between this and who makes a module.
            kind: Any = function
            kind.__init__ = decorate(kind.__init__, 4)
            return kind

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                message = f"{old}= is now {new}=; the old name goes in diffclust 0.3"
                warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return cast(F, call)

    return decorate


SETTINGS = {"weight_rounds": "penalty_rounds", "weights_per_cluster": "penalty_per_cluster"}
"""Settings of models that had other names in version 0.1."""

VALUES = {("backbone", "quick"): "strided", ("variances", "round"): "isotropic"}
"""Their values that had other names, by name and value."""


def current_settings(given: Mapping[str, Any], *, warns_at: int | None = None) -> dict[str, Any]:
    """Translates settings of version 0.1 to their present names and values.

    Args:
        given: Settings, perhaps of version 0.1.
        warns_at: At which caller it warns of former ones, 2 for the direct one; None for silence,
            as for files, which are read for ever.

    Returns:
        The settings.
    """
    now: dict[str, Any] = {}
    for name, value in given.items():
        new = SETTINGS.get(name, name)
        now[new] = VALUES.get((new, value), value) if isinstance(value, str) else value
        if warns_at is not None and (new != name or now[new] is not value):
            message = (
                f"{name}={value!r} is now {new}={now[new]!r}; the former goes in diffclust 0.3"
            )
            warnings.warn(message, DeprecationWarning, stacklevel=warns_at)
    return now


def takes_former_settings(kind: type[T]) -> type[T]:
    """A class decorator: the constructor takes settings of version 0.1 as well, and warns.

    Args:
        kind: An equinox module with keyword-only settings.

    Returns:
        The class.
    """
    init = kind.__init__

    @functools.wraps(init)
    def current(self: Any, *args: Any, **kwargs: Any) -> None:
        # Equinox stands between this and who makes a module.
        init(self, *args, **current_settings(kwargs, warns_at=5))

    kind.__init__ = current  # pyright: ignore[reportAttributeAccessIssue]
    return kind


class _KeepsFunctions(ModuleType):
    """A module whose functions stay when a former module of the same name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        former = isinstance(value, ModuleType) and callable(vars(self).get(name))
        if not former:
            super().__setattr__(name, value)


class FormerModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of version 0.1 that are gone, and the names that others have lost."""

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module that is empty but for the names that it had.

        Args:
            fullname: Its name.
            path: Not used.
            target: Not used.

        Returns:
            Its spec; None for a module that never was.
        """
        if not fullname.startswith("diffclust."):
            return None
        if not any(name == fullname or name.startswith(f"{fullname}.") for name in table()):
            return None
        # Other hooks, such as one that checks types at run time, find modules their own way.
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        real = next((spec for spec in specs if spec is not None), None)
        has_parts = any(name.startswith(f"{fullname}.") for name in table())
        if real is None:
            return importlib.util.spec_from_loader(fullname, self, is_package=has_parts)
        if has_parts and real.submodule_search_locations is None:
            # A package that has become a module.
            real.submodule_search_locations = []
        loader = real.loader
        assert loader is not None
        run = loader.exec_module

        def with_former_names(module: ModuleType) -> None:
            run(module)
            self.exec_module(module)

        loader.exec_module = with_former_names  # pyright: ignore[reportAttributeAccessIssue]
        return real

    def exec_module(self, module: ModuleType) -> None:
        """Lets the module find the names that it had.

        Args:
            module: The module.
        """
        parent, _, child = module.__name__.rpartition(".")
        if callable(vars(sys.modules[parent]).get(child)):
            sys.modules[parent].__class__ = _KeepsFunctions
        if module.__name__ in table() and not hasattr(module, "__getattr__"):
            vars(module)["__getattr__"] = former_names(module.__name__)


def install() -> None:
    """Makes the names of version 0.1 importable."""
    if not any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerModules())
