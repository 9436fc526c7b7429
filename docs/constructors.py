"""Tells mkdocstrings how Equinox modules are made, whose constructors are not written anywhere."""

import importlib
import inspect
from typing import Any

import equinox as eqx
import griffe


class Constructors(griffe.Extension):
    """Gives every module class without an `__init__` of its own the one that Equinox makes."""

    def on_class(self, *, cls: griffe.Class, **others: Any) -> None:
        """Adds the constructor.

        Args:
            cls: The class, as griffe read it.
            **others: What else griffe has to say.
        """
        module = importlib.import_module(cls.module.path)
        made = getattr(module, cls.name, None)
        is_module = inspect.isclass(made) and issubclass(made, eqx.Module)
        if not is_module or inspect.isabstract(made) or "__init__" in cls.members:
            return
        parameters = [_parameter(each) for each in inspect.signature(made).parameters.values()]
        own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        constructor = griffe.Function("__init__", parameters=griffe.Parameters(own, *parameters))
        cls.set_member("__init__", constructor)


def _parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    missing = inspect.Parameter.empty
    name = parameter.kind.name.lower()
    return griffe.Parameter(
        parameter.name,
        kind=griffe.ParameterKind[name],
        annotation=None if parameter.annotation is missing else _written(parameter.annotation),
        default=None if parameter.default is missing else repr(parameter.default),
    )


def _written(annotation: Any) -> str:
    if inspect.isclass(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
