"""The table of the methods' options: `python tests/options_table.py [--write]`.

Help must not wait for JAX, so what it says of the models' settings is kept in `options.json`. Run
this after a setting, its default or its documentation has changed; a test compares the two.
"""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import docstring_parser

import diffclust
from diffclust.models import MODELS, AbstractModel

FILE = Path(diffclust.__file__).with_name("cli") / "options.json"

_TYPES = {
    int: "integer",
    float: "number",
    bool: "flag",
    str: "text",
    tuple[int, int]: "grid",
    tuple[int, ...]: "integers",
}
_NOT_OPTIONS = ("num_clusters", "mask")
"""Settings that are options of every method: `-k`, and `--mask`, a file."""


def options_table() -> str:
    """The table as it should be, in JSON: of every method its options, by their names.

    Returns:
        For each option the `setting` that it is for, its `type` (with the `choices` that there
        are), the method's own `default`, and a `help` text.
    """
    table = {name: _options_of(model) for name, model in MODELS.items()}
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def _options_of(model: type[AbstractModel]) -> dict[str, dict[str, Any]]:
    texts, defaults = _documentation(model), model.from_settings({"num_clusters": 1}).settings()
    kinds = {n: kind for n, kind in model.setting_types().items() if n not in _NOT_OPTIONS}
    names = {setting: _option_of(setting, defaults[setting]) for setting in kinds}
    return {
        names[setting]: {
            "setting": setting,
            **_type_of(kind),
            "default": defaults[setting],
            "help": _help_of(
                texts[setting], names, flag=_is_flag(kind), turns_off=defaults[setting] is True
            ),
        }
        for setting, kind in kinds.items()
    }


def _option_of(setting: str, default: Any) -> str:
    name = f"{'no-' if default is True else ''}{setting.removeprefix('num_')}"
    return f"--{name.replace('_', '-')}"


def _help_of(text: str, names: dict[str, str], *, flag: bool, turns_off: bool) -> str:
    """What the documentation of a setting says, in the command line's words."""
    # What is to be seen there is Python.
    text = re.sub("; see `[^`]+`", "", text)
    for setting, name in names.items():
        text = re.sub(f'`{setting}(?:="([^"`]+)")?`', rf"{name} \1", text)
    text = re.sub(r" (?=[ .,;:)])", "", text.replace("`", ""))
    # On the command line there is no None.
    text = re.sub(r" In Python [^.]*[.]", "", text)
    text = re.sub(r"(?<=[.] )None\b", "The default", text)
    text = re.sub(r"\bNone\b", "the default", text)
    if turns_off:
        return re.sub("^Whether ", "Turn off what is done by default: ", text)
    # A flag does what its documentation asks about.
    return re.sub("^Whether (.)", lambda match: match[1].upper(), text) if flag else text


def _is_flag(kind: Any) -> bool:
    return _type_of(kind)["type"] == "flag"


def _type_of(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {"type": "choice", "choices": get_args(kind)}
    # What may be left out is a union with None.
    return {"type": next(_TYPES[k] for k in (kind, *get_args(kind)) if k in _TYPES)}


def _documentation(kind: type) -> dict[str, str]:
    """Collects what the docstrings of a model and of its groups say of each setting."""
    texts: dict[str, str] = {}
    for field in dataclasses.fields(kind):
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            texts |= _documentation(field.type)
    documents = [vars(each).get("__doc__") or "" for each in reversed(kind.__mro__)]
    for parameter in (p for text in documents for p in docstring_parser.parse(text).params):
        text = " ".join((parameter.description or "").split())
        texts[parameter.arg_name] = text
    return texts


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        FILE.write_text(options_table(), "utf-8")
    elif FILE.read_text("utf-8") != options_table():
        sys.exit(f"{FILE.name} is not what the models say; write it anew with --write")
