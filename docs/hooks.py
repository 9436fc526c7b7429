"""What mkdocs does to pages: links that lead out of docs/ work on the site as in the repository.

Every file that a page links to is put on the site too (the experiments' READMEs, say), at its place
in the repository; what is in docs/ stands one folder higher there than in the repository. Of each
page with Python code there is a notebook too.
"""

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from notebooks import notebook

ROOT = Path(__file__).parents[1]
DOCS = "docs/"
HOME = {"README.md": "index.md"}
"""What the site has another page for."""

NOTEBOOKS = "notebooks"
"""The site's folder of notebooks."""

LINK = re.compile(r"(\]\(\s*)(?![a-z+]+:|[#/<])([^)#\s]+)(#[^)\s]*)?(\s*\))")
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def in_repository(src_uri: str) -> str:
    """Where a file of the site is in the repository."""
    return src_uri if is_added(src_uri) else DOCS + src_uri


def is_added(src_uri: str) -> bool:
    """Whether a file of the site is none of docs/."""
    return not (ROOT / DOCS / src_uri).exists()


def target_of(src_uri: str, link: str) -> str:
    """The path in the repository that a link on a page leads to."""
    folder = posixpath.dirname(in_repository(src_uri))
    return posixpath.normpath(posixpath.join(folder, unquote(link)))


def prose(text: str) -> list[str]:
    """The text, cut at its blocks of code, which are the odd parts."""
    return FENCE.split(text)


def links(src_uri: str, text: str) -> list[str]:
    """The files of the repository that a page links to."""
    found = [m[2] for part in prose(text)[::2] for m in LINK.finditer(part)]
    return [target_of(src_uri, link) for link in found]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what pages link to outside of docs/, and what is linked from there."""
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for target in links(page.src_uri, Path(page.abs_src_path).read_text("utf-8")):
            outside = not target.startswith((DOCS, "../"))
            known = target in files.src_uris or target in HOME
            if outside and (ROOT / target).is_file() and not known:
                added = File(target, str(ROOT), config.site_dir, config.use_directory_urls)
                added.inclusion = InclusionLevel.NOT_IN_NAV
                files.append(added)
                if added.is_documentation_page():
                    waiting.append(added)
    for page in sorted((ROOT / DOCS).glob("*.md")):
        if content := notebook(page):
            name = f"{NOTEBOOKS}/{page.stem}.ipynb"
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as on the site, and one to the page's notebook below its title.

    A link that leads nowhere is left for mkdocs to complain of.
    """
    here = page.file.src_uri

    def moved(match: re.Match) -> str:
        target = target_of(here, match[2])
        placed = HOME.get(target, target.removeprefix(DOCS))
        if files.get_file_from_path(placed) is None:
            return match[0]
        relative = posixpath.relpath(placed, posixpath.dirname(here) or ".")
        return f"{match[1]}{relative}{match[3] or ''}{match[4]}"

    parts = prose(markdown)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    markdown = "".join(parts)
    name = f"{NOTEBOOKS}/{here.removesuffix('.md')}.ipynb"
    if files.get_file_from_path(name) is not None:
        title, _, rest = markdown.partition("\n")
        markdown = f"{title}\n\n[Run this page as a notebook]({name}){{ download }}\n{rest}"
    return markdown
