"""How Sphinx makes the book: the markdown files of the project as they are, without a copy of them.

The index of each part of the book is that of docs/README.md; its sections become the navigation.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

project = "aulos"
author = "the aulos authors"
project_copyright = author
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**.md", "crates/**.md", "benches/*.md"]
exclude_patterns = ["**/target", "**/node_modules", "**/.*"]
myst_heading_anchors = 6
# Blocks whose language is no language of Pygments are shown as they are.
suppress_warnings = ["misc.highlighting_failure", "toc.not_included"]
html_theme = "furo"
html_title = "aulos"
html_show_copyright = False
html_show_sourcelink = False


def sections(index):
    """The sections of the index with the pages that they link, in order."""
    for part in index.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        pages = re.findall(r"\]\(([^)#]+)\.md\)", text)
        if title == "Decisions":
            folder = ROOT / "docs/decisions"
            names = sorted(path.stem for path in folder.glob("*.md") if path.stem != "README")
            pages += [f"decisions/{name}" for name in names]
        yield title, pages


def link_folders(name, text):
    """Links to a folder go to its page, or become plain text: the book has no lists of files."""
    folder = (ROOT / name).parent

    def replace(link):
        words, path = link.groups()
        if not (folder / path).is_dir():
            return link.group()
        return f"[{words}]({path}/README.md)" if (folder / path / "README.md").exists() else words

    return re.sub(r"\[([^]\[]+)\]\(([^)#:]+)\)", replace, text)


def read_page(app, name, source):
    """Prepares the text of a page; appends the navigation to the index, whose readers do without."""
    text = link_folders(name, source[0])
    if name == root_doc:
        text += "".join(
            f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"
            for title, pages in sections(source[0])
        )
    source[0] = text


def setup(app):
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True}
