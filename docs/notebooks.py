"""Pages of the documentation as Jupyter notebooks (nbformat 4.5).

Blocks of Python become code cells, but for those that are said not to run. All else stays Markdown:
pictures are put into the notebook, and links to other pages, which a notebook that was downloaded
cannot follow, become their text.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: [^>]+ -->\s*$")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^):]+\.png)\)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:)[^)]+\)")


def notebook(page: Path) -> str | None:
    """A page as a notebook.

    Args:
        page: File of Markdown.

    Returns:
        The notebook's JSON, or None where the page has no Python code that runs.
    """
    text = page.read_text("utf-8")
    cells, begin = [], 0
    for code in CODE.finditer(text):
        if NOT_RUN.search(text[: code.start()]) is None:
            cells += _text(text[begin : code.start()], page.parent)
            cells += [_cell("code", code[1], execution_count=None, outputs=[])]
            begin = code.end()
    if not cells:
        return None
    cells += _text(text[begin:], page.parent)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    numbered = [{"id": f"cell-{place}", **cell} for place, cell in enumerate(cells)]
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": numbered}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _cell(kind: str, source: str, **others: Any) -> dict[str, Any]:
    lines = source.strip("\n").splitlines(keepends=True)
    return {"cell_type": kind, "metadata": {}, "source": lines, **others}


def _text(source: str, folder: Path) -> list[dict[str, Any]]:
    if not source.strip():
        return []
    pictures = {}

    def attached(match: re.Match) -> str:
        file = folder / match[2]
        pictures[file.name] = {"image/png": base64.b64encode(file.read_bytes()).decode()}
        return f"![{match[1]}](attachment:{file.name})"

    source = LINK.sub(r"\1", PICTURE.sub(attached, source))
    return [_cell("markdown", source, **({"attachments": pictures} if pictures else {}))]
