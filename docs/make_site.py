"""Builds the documentation as a site with a search: `make docs-site`, then open `build/site/index.html`.

The pages stay as they are, in the places they have in the repository, so that their links hold there and here. Zensical
makes the site. What is added: the order of the pages, read off the index of `docs/README.md`, and a reference of every
public name, from the docstrings. Then every link of the site is followed; one that leads nowhere fails the build.
"""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PROJECT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
MODULES = {
    "consilience": "consilience",
    "consilience.plans": "consilience.plans",
    "consilience.estimators": "consilience.estimators",
    "consilience.factors": "consilience.domain.factors",
    "consilience.publication": "consilience.publication",
}
"""Each module whose names are public, by the name that people import it by."""

LINKED_PAGE = re.compile(r"^\| \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+\.md)\) \|", re.MULTILINE)
HIDDEN_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)*\.(?!\.?/)[^)]*\)")
"""A link to a file that no site shows, such as `.github/workflows/check.yml`: its text stays."""
LINKED_FILE = re.compile(r"\]\((?P<target>[^)#\s]+)")


# ----------------------------------------------------------------------------------------------------------------------
# The pages, in the places they have in the repository, and their order.


def gather(pages: Path) -> None:
    """All pages of the site, with the pictures and files of the repository that they link to."""
    shutil.rmtree(pages, ignore_errors=True)
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in PROJECT)]
    for source in sources:
        copy = pages / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = HIDDEN_LINK.sub(r"\g<text>", source.read_text(encoding="utf-8"))
        copy.write_text(text, encoding="utf-8")
        for target in LINKED_FILE.findall(text):
            linked = (source.parent / target).resolve()
            if "://" not in target and linked.suffix != ".md" and linked.is_file():
                kept = pages / linked.relative_to(ROOT)
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(linked, kept)
    for title, module in MODULES.items():
        page = pages / "docs" / "api" / f"{title}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(reference(title, module), encoding="utf-8")


def order() -> list[tuple[str, list[tuple[str, str]]]]:
    """The sections of the site with their pages, as the index of the documentation lists them."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", index, flags=re.MULTILINE)[1:]
    sections = [
        (name, [(found["title"], f"docs/{found['page']}") for found in LINKED_PAGE.finditer(text)])
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    api = [(title, f"docs/api/{title}.md") for title in MODULES]
    project = [("All pages", "docs/README.md"), ("Decisions", "docs/decisions/README.md")]
    project += [(name.removesuffix(".md").capitalize(), name) for name in PROJECT[1:]]
    return [*((name, rows) for name, rows in sections if rows), ("Docstrings", api), ("Project", project)]


def settings(pages: Path) -> str:
    """What Zensical is told."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    sections = "".join(
        f"  {{ {_quoted(name)} = [\n"
        + "".join(f"    {{ {_quoted(title)} = {_quoted(page)} }},\n" for title, page in rows)
        + "  ] },\n"
        for name, rows in order()
    )
    return f"""[project]
site_name = "Consilience {version}"
site_description = "One consistent account of data measured with differential privacy."
docs_dir = {_quoted(pages.name)}
site_dir = "site"
use_directory_urls = false
nav = [
  {{ "Home" = "README.md" }},
{sections}]

[project.theme]
features = ["navigation.tabs", "navigation.top", "search.highlight", "content.code.copy", "toc.follow"]
font = false

[project.plugins.offline]

[project.markdown_extensions.toc]
permalink = true
slugify = {{ object = "pymdownx.slugs.slugify", kwds = {{ case = "lower" }} }}

[project.markdown_extensions.tables]
[project.markdown_extensions.attr_list]
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.pymdownx.highlight]
"""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# ----------------------------------------------------------------------------------------------------------------------
# The reference: every public name with its signature and its docstring.


def reference(title: str, module: str) -> str:
    """The page of one module."""
    found = importlib.import_module(module)
    lines = [f"# {title}", "", as_page(inspect.getdoc(found) or ""), ""]
    for name in found.__all__:
        value = getattr(found, name)
        if inspect.ismodule(value):
            continue
        lines += [f"## {name}", "", "```python", declared(name, value), "```", ""]
        lines += [as_page(inspect.getdoc(value) or ""), ""]
        lines += [line for each in methods(value) for line in each]
    return "\n".join(lines)


def declared(name: str, value: object) -> str:
    """The signature of a function or of a class, an argument a line where it is long."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    plain = re.sub(r"(?<=: |> )'([^']+)'", r"\1", str(signature))
    plain = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", plain)
    if len(name) + len(plain) <= 100:
        return f"{name}{plain}"
    return signature_over_lines(name, plain)


def signature_over_lines(name: str, plain: str) -> str:
    """The same with a line for each argument; commas within brackets divide nothing.

    >>> print(signature_over_lines("f", "(a: dict[str, int], b: int = 0) -> int"))
    f(
        a: dict[str, int],
        b: int = 0
    ) -> int
    """
    depth, lines, line = 0, [f"{name}("], ""
    for place, sign in enumerate(plain):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            return "\n".join([*lines, f"    {line.strip()}", plain[place:]])
        if sign == "," and depth == 1:
            lines.append(f"    {line.strip()},")
            line = ""
        elif place:
            line += sign
    return f"{name}{plain}"


def methods(value: object) -> Iterator[list[str]]:
    """The public methods and properties that a class of ours declares with a docstring."""
    if not inspect.isclass(value) or not value.__module__.startswith("consilience"):
        return
    for name, member in vars(value).items():
        function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        heading = f"{value.__name__}.{name}"
        shown = heading if isinstance(member, property) else declared(heading, function)
        yield [f"### {heading}", "", "```python", shown, "```", "", as_page(inspect.getdoc(function) or ""), ""]


def as_page(docstring: str) -> str:
    """A docstring as Markdown: examples and formulas in blocks of their own.

    >>> as_page("The sum.\\n\\n>>> 1 + 1\\n2\\n\\nx < y").splitlines()[2:]
    ['```pycon', '>>> 1 + 1', '2', '```', '', 'x &lt; y']
    """
    blocks = []
    for paragraph in re.split(r"\n\s*\n", docstring):
        if paragraph.lstrip().startswith(">>>"):
            blocks.append(f"```pycon\n{inspect.cleandoc(paragraph)}\n```")
        elif paragraph.startswith("    "):
            blocks.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        else:
            parts = re.split(r"(`[^`]*`)", paragraph)
            blocks.append("".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts))
    return "\n\n".join(blocks)


# ----------------------------------------------------------------------------------------------------------------------
# The links of the site, followed.


class Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name == "href" or (name == "src" and tag in ("img", "script")):
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """The links of a site that lead to no page of it, or to no place on that page."""
    pages = {page.relative_to(site).as_posix(): Links(page) for page in site.rglob("*.html")}
    found = []
    for name, page in pages.items():
        for link in page.links:
            if urlsplit(link).scheme or link.startswith(("//", "javascript:")):
                continue
            target, anchor = urldefrag(urljoin(f"/{name}", link))
            path = unquote(urlsplit(target).path).lstrip("/") or "index.html"
            if path.endswith("/"):
                path += "index.html"
            if path not in pages and not (site / path).exists():
                found.append(f"{name}: {link} leads nowhere")
            elif anchor and path in pages and unquote(anchor) not in pages[path].anchors:
                found.append(f"{name}: {link} names a place that {path} does not have")
    return found


def main() -> int:
    pages, site = BUILD / "pages", BUILD / "site"
    gather(pages)
    (BUILD / "zensical.toml").write_text(settings(pages), encoding="utf-8")
    program = Path(sys.executable).with_name("zensical")
    told = {**os.environ, "NO_COLOR": "1"}
    subprocess.run(
        [program, "build", "--clean", "--config-file", BUILD / "zensical.toml"], check=True, cwd=BUILD, env=told
    )
    found = broken_links(site)
    for line in found:
        print(line, file=sys.stderr)
    if found:
        return 1
    print(f"wrote {len(list(site.rglob('*.html')))} pages; open {(site / 'index.html').relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
