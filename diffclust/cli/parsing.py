"""Names and values of options, as they are written on the command line."""

import re


def option(field: str) -> str:
    """A field as it is written on the command line.

    Args:
        field: Its name, such as `max_passes`.

    Returns:
        For example `--max-passes`.
    """
    return f"--{field.replace('_', '-')}"


def parse_counts(text: str, name: str) -> tuple[int, ...]:
    """Reads `"5"` or `"5,8"`.

    Args:
        text: What was given.
        name: The option's name in messages.

    Returns:
        Whole numbers.

    Raises:
        ValueError: If it is something else.
    """
    if re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text.strip()) is None:
        raise ValueError(f"{option(name)} must be like 5 or 5,8, not {text!r}")
    return tuple(int(part) for part in text.split(","))


def parse_grid(text: str, name: str, example: str) -> tuple[int, int]:
    """Reads `"28"` or `"28x32"`.

    Args:
        text: What was given.
        name: The option's name in messages.
        example: What would do.

    Returns:
        Two whole numbers, twice the same where one was given.

    Raises:
        ValueError: If it is something else.
    """
    found = re.fullmatch(r"([0-9]{1,6})(?:[x×]([0-9]{1,6}))?", text.strip().lower())
    if found is None:
        raise ValueError(f"{option(name)} must be like {example}, not {text!r}")
    return int(found[1]), int(found[2] or found[1])
