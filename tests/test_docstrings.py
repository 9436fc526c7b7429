"""Every public thing has a docstring, and it documents the arguments that there are."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import docstring_parser
import pytest

PACKAGE = Path(__file__).parents[1] / "diffclust"


def public_modules() -> list[str]:
    paths = [path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")]
    names = [path.parts[:-1] if path.name == "__init__" else path.parts for path in paths]
    return sorted(".".join(parts) for parts in names if not any(p.startswith("_") for p in parts))


def public_members(owner: ModuleType | type) -> Iterator[tuple[str, object]]:
    """The public classes and functions that a module or class itself defines."""
    for name, static in vars(owner).items():
        if name.startswith("_"):
            continue
        # Equinox and JAX wrap functions in objects; a property documents itself in its getter.
        value = static.fget if isinstance(static, property) else getattr(owner, name)
        value = inspect.unwrap(value) if callable(value) else value
        module = owner if isinstance(owner, ModuleType) else inspect.getmodule(owner)
        is_own = getattr(value, "__module__", None) == module.__name__
        if is_own and (inspect.isroutine(value) or inspect.isclass(value)):
            yield f"{owner.__name__}.{name}", value
            if inspect.isclass(value):
                yield from public_members(value)


def documented(docstring: str, section: str) -> set[str]:
    """The names that a Google-style section describes."""
    entries = docstring_parser.google.parse(docstring).meta
    parameters = [entry for entry in entries if isinstance(entry, docstring_parser.DocstringParam)]
    names = [entry.arg_name for entry in parameters if entry.args[0] == section]
    return {name.strip().lstrip("*") for joined in names for name in joined.split(",")}


def docstring_of(thing: Callable) -> str:
    """Its docstring, or that of the method that it overrides, where its class is at hand."""
    *outer, name = getattr(thing, "__qualname__", "").split(".")
    if thing.__doc__ or not outer or "<locals>" in outer:
        return inspect.cleandoc(thing.__doc__ or "")
    owner = sys.modules[thing.__module__]
    for part in outer:
        owner = getattr(owner, part)
    inherited = (getattr(base, name, None) for base in inspect.getmro(owner)[1:])
    return inspect.cleandoc(next((each.__doc__ for each in inherited if each and each.__doc__), ""))


def faults(name: str, thing: Callable) -> Iterator[str]:
    docstring = docstring_of(thing)
    # A dataclass without a docstring is given its signature as one.
    if not docstring or docstring.startswith(f"{getattr(thing, '__name__', '')}("):
        yield f"{name} has no docstring"
        return
    if docstring.startswith("See "):
        yield f"{name} only points elsewhere: say what it does, or leave it to be inherited"
    described = documented(docstring, "param")
    if described:
        try:
            parameters = set(inspect.signature(thing).parameters) - {"self", "cls"}
        except ValueError:
            parameters = set()
        for argument in sorted(described - parameters):
            yield f"{name} documents {argument!r}, which it does not take"
        for argument in sorted(parameters - described):
            yield f"{name} documents its arguments, but not {argument!r}"
    if inspect.isclass(thing):
        fields = {field for base in thing.__mro__ for field in inspect.get_annotations(base)}
        for attribute in sorted(documented(docstring, "attribute")):
            if attribute not in fields and not hasattr(thing, attribute):
                yield f"{name} documents the attribute {attribute!r}, which it does not have"


@pytest.mark.parametrize("module_name", public_modules())
def test_docstrings_say_what_is_there(module_name: str) -> None:
    module = importlib.import_module(module_name)
    result = [] if module.__doc__ else [f"{module_name} has no docstring"]
    for name, thing in public_members(module):
        result += faults(name, thing)
    assert not result, "\n".join(result)


def test_faults_are_found() -> None:
    def wrong(kept: int, missed: int) -> int:
        """Does it.

        Args:
            kept: It is there.
            gone: It is not.
        """
        return kept + missed

    def pointing() -> None:
        """See `wrong`."""

    assert [line.partition(":")[0] for line in faults("it", pointing)] == [
        "it only points elsewhere"
    ]
    assert list(faults("wrong", wrong)) == [
        "wrong documents 'gone', which it does not take",
        "wrong documents its arguments, but not 'missed'",
    ]
