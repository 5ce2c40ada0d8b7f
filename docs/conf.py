"""The site: `make docs` makes `site/index.html` of these pages, the gallery's scripts and the docstrings."""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import inspect
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "gallery"))  # `shown`, what scripts of the gallery share
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # the gallery's seconds are those of one thread
os.environ["MPLBACKEND"] = "agg"
warnings.filterwarnings("error", module="discreet")

sys.path.insert(0, str(HERE))
import reference  # noqa: E402
import shown  # noqa: E402

import discreet as dr  # noqa: E402

# ------------------------------------------------------------------------------------- the project
project = "Discreet"
author = "The Discreet developers"
copyright = author
version = release = dr.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["gallery", "examples", "made/gallery/**/*.ipynb", "made/gallery/**/*.py"]
suppress_warnings = ["config.cache"]

# ------------------------------------------------------------------------------------------- pages
myst_heading_anchors = 4  # as on GitHub: links to "page.md#a-heading" hold in both places
myst_enable_extensions = ["colon_fence", "deflist"]
myst_links_external_new_tab = False
highlight_language = "none"  # a block that names no language is an output, or a command
html_theme = "pydata_sphinx_theme"
html_title = "Discreet"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "pygments_light_style": "friendly",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": []}
copybutton_exclude = ".linenos, .gp, .go"
linkcheck_timeout = 30
linkcheck_anchors = False

# --------------------------------------------------------------------------------------- reference
autosummary_generate = True
HOMES = reference.homes()  # full name of each public object to the module that defines it
FULL = {name.rpartition(".")[2]: name for name in HOMES}
autosummary_ignore_module_all = False
templates_path = ["templates"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options: dict[str, Any] = {}
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_use_param = False  # shapes are not names to link to
napoleon_preprocess_types = False
add_module_names = False
viewcode_line_numbers = True


reference.write(HERE / "made" / "reference")

# ----------------------------------------------------------------------------------------- gallery
_AGENTS = all(map(importlib.util.find_spec, ("stable_baselines3", "d3rlpy", "minari")))  # else not run
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "made/gallery",
    "filename_pattern": r"/[a-z_0-9]+\.py$" if _AGENTS else r"/(?!agents_)[a-z_0-9]+\.py$",
    "ignore_pattern": r"(^|/)shown\.py$",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "made/backreferences",
    "doc_module": ("discreet",),
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "default_thumb_file": str(HERE / "static" / "table.png"),
    "min_reported_time": 0,
    "remove_config_comments": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "image_scrapers": ("matplotlib",),
    "reset_modules": (shown.reset,),
    "plot_gallery": os.environ.get("DISCREET_GALLERY", "1") == "1",
}

# ------------------------------------------------------------------------- docstrings as written
_KEY = re.compile(r"^(\w[\w ,/.*']{0,60}?) : (.*)$")
_LITERAL = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`|`[^`]+`_?|\*\*[^*]+\*\*)", re.S)
_UNDERLINE = re.compile(r"^(-{3,}|={3,})$")


def _escaped(text: str) -> str:
    """Escape characters of norms, primes and products that reStructuredText would read as markup."""
    parts = _LITERAL.split(text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([|*\\])", r"\\\1", parts[i])
        parts[i] = re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", parts[i])
    return "".join(parts)


def as_text(lines: list[str]) -> list[str]:
    """Convert a docstring in prose, with lines of ``name : meaning``, to reStructuredText."""
    found: list[str] = []
    lines = _joined(lines)
    literal: int | None = None  # lines indented deeper than this are literal
    item = False  # inside a list of lines `name : meaning`
    section = False  # inside a numpydoc section, which napoleon reads
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is not None:
            found.append(line)
            continue
        if i + 1 < len(lines) and _UNDERLINE.match(lines[i + 1].strip()) and line.strip():
            section = line.strip() != "Notes"
            found.append(line)
            continue
        key = _KEY.match(line) if not section else None
        if key and not line.rstrip().endswith("::"):
            names = ", ".join(f"**{name.strip()}**" for name in key[1].split(","))
            if found and found[-1].strip() and not item:
                found.append("")
            found.append(f"* {names} : {_escaped(key[2])}")
            item = True
        elif item and line.strip():
            found.append("  " + _escaped(line.strip()))  # goes on
        else:
            item = False
            found.append(_escaped(line))
        if line.rstrip().endswith("::"):
            literal = indent
            found[-1] = line
    return found


def _joined(lines: list[str]) -> list[str]:
    """Join lines that begin with a role to the previous line, because Sphinx would read them as fields."""
    found: list[str] = []
    for line in lines:
        if found and found[-1].strip() and re.match(r"\s*:\w+:`", line):
            found[-1] = f"{found[-1]} {line.strip()}"
        else:
            found.append(line)
    return found


_NEXT = re.compile(r"(?<=[.;]) (?=[a-z]\w*(?:, [a-z]\w*)* : )")  # a further argument on the same line


def _apart(lines: list[str]) -> list[str]:
    """Split ``a : first. b : second`` into two lines, outside of numpydoc sections."""
    found: list[str] = []
    section = False
    for i, line in enumerate(lines):
        if i + 1 < len(lines) and _UNDERLINE.match(lines[i + 1].strip()) and line.strip():
            section = line.strip() != "Notes"
        if section or " : " not in line:
            found.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        found += [indent + part.strip() for part in _NEXT.split(line) if part.strip()]
    return found


_PARAMETER = re.compile(r"[\w*.,/ ]+ : |[\w*., ]+$")


def _sections(lines: list[str]) -> list[str]:
    """Convert prose after the entries of a numpydoc section to a note."""
    found: list[str] = []
    section = False
    for i, line in enumerate(lines):
        if i + 1 < len(lines) and _UNDERLINE.match(lines[i + 1]) and line.strip():
            section = line.strip() not in ("Notes", "Examples", "References")
        elif section and line[:1].strip() and not _UNDERLINE.match(line) and not lines[i - 1].strip():
            entry = _PARAMETER.match(line)
            if entry is None or (" : " not in line and not "".join(lines[i + 1 : i + 2]).startswith("    ")):
                found += ["Notes", "-----"]
                section = False
        found.append(line)
    return found


def _options_of_bases(thing: Any) -> list[str]:
    """Return the docstrings of base classes that are not public, for options that a class inherits."""
    public = {one for one in map(_object, HOMES) if isinstance(one, type)}
    found: list[str] = []
    for base in thing.__mro__[1:]:
        text = inspect.cleandoc(vars(base).get("__doc__") or "")
        if base.__module__.startswith("discreet.") and base not in public and "\nParameters\n" in text:
            found += [
                "",
                f".. rubric:: Options of ``{base.__name__}``",
                "",
                *text.splitlines(),
            ]
    return found


def _object(full: str) -> Any:
    """Return the public object of a full name."""
    return functools.reduce(getattr, full.split(".")[1:], dr)


def _read(_app: Any, what: str, name: str, thing: Any, _options: Any, lines: list[str]) -> None:
    if what == "class" and name in HOMES:
        lines += _options_of_bases(thing)
    lines[:] = as_text(_apart(_sections(lines)))
    if what in ("property", "attribute"):
        _kept[name] = list(lines)  # napoleon takes what stands before a colon for a type


_kept: dict[str, list[str]] = {}


def _keep(_app: Any, _what: str, name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = _kept.pop(name, lines)


def _derived(_app: Any, what: str, name: str, thing: Any, _options: Any, lines: list[str]) -> None:
    """Add the module of each public name, and its text about sources, proofs and guarantees."""
    if name not in HOMES or what == "module":
        return
    home = HOMES[name]
    text = inspect.cleandoc(importlib.import_module(home).__doc__ or "").splitlines()
    lines += ["", f".. dropdown:: Source and derivation: ``{home}``", ""]
    lines += ["   .. code-block:: text", "", *(f"      {line}" for line in text)]


_PROTOCOLS = (
    "Session", "Mechanism", "Privatizer", "Learner", "OfflineLearner", "Encoder", "NoiseDistribution",
)  # fmt: skip


def _in_protocol(_app: Any, what: str, name: str, thing: Any, _options: Any, lines: list[str]) -> None:
    """Add a link to the protocol of a method, if the method's docstring does not name all its arguments."""
    full, _, method = name.rpartition(".")
    if what != "method" or full not in HOMES:
        return
    text = "\n".join(lines)
    if all(re.search(rf"\b{one}\b", text) for one in inspect.signature(thing).parameters if one != "self"):
        return
    for protocol in _PROTOCOLS:
        needs = [one for one in vars(_object(FULL[protocol])) if not one.startswith("_")]
        if FULL[protocol] != full and method in needs and all(hasattr(_object(full), one) for one in needs):
            lines += ["", f"Arguments and errors are those of :meth:`{FULL[protocol]}.{method}`."]
            return


def _public(_app: Any, env: Any, node: Any, content: Any) -> Any:
    """Link ``discreet.learners.online.psrl.PSRL`` and ``NoiseLaw`` to the page of the public name."""
    from sphinx.util.nodes import make_refnode

    if node.get("refdomain") != "py":
        return None
    name, member = node["reftarget"].rpartition(".")[2], None
    if name not in FULL and "." in node["reftarget"]:
        name, member = node["reftarget"].split(".")[-2:]
    if name not in FULL:
        return None
    target = FULL[name] + (f".{member}" if member else "")
    page = f"made/reference/{FULL[name]}"
    if page not in env.found_docs or node.get("refdoc") is None:
        return None
    return make_refnode(env.app.builder, node["refdoc"], page, target, content, target)


_HERE_AND_THERE = (  # what a link leads to in the repository, and on the site
    (r"\]\(((?:\.\./)*)gallery/README\.txt\)", r"](\1made/gallery/index.rst)"),
    (r"\]\(((?:\.\./)*)gallery/(\w+)\.py\)", r"](\1made/gallery/\2.rst)"),
    (r"\]\(((?:\.\./)*)reference\.py\)", r"](\1made/reference/index.rst)"),
    (
        r"\]\(((?:\.\./)+(?:(?:benchmarks|papers|clients)/[\w/]+|README)\.(?:md|toml))(?:#[\w-]+)?\)",
        r"](path:\1)",
    ),  # not pages of the site: files
)


def _site_links(_app: Any, page: str, source: list[str]) -> None:
    for there, here in _HERE_AND_THERE:
        source[0] = re.sub(there, here, source[0])
    if page == "howto/index" and (new := _nowhere_yet()):
        listed = "\n".join(f"../{name}" for name in new)
        source[0] += f"\n## More\n\n```{{toctree}}\n:maxdepth: 1\n{listed}\n```\n"


def _nowhere_yet() -> list[str]:
    """Return pages that no index lists. They are listed under "More"."""
    text = "\n".join(
        page.read_text(encoding="utf-8") for page in [*HERE.glob("*/index.md"), HERE / "index.md"]
    )
    named = set(re.findall(r"^(?:\.\./)?([\w*?\[\]-]+)$", text, re.M))
    every = sorted(page.stem for page in HERE.glob("*.md"))
    every = [name for name in every if name not in ("index", "changes", "CONTRIBUTING")]
    return [name for name in every if not any(fnmatch.fnmatchcase(name, one) for one in named)]


def _no_bare_attributes(
    _app: Any, _what: str, _name: str, thing: Any, _skip: bool, _options: Any
) -> bool | None:
    """Omit fields, which the docstring of the class describes. Methods and properties have entries."""
    if not callable(thing) and not isinstance(
        thing, (property, functools.cached_property, staticmethod, classmethod)
    ):
        return True
    return None


def setup(app: Any) -> None:
    """Sphinx's hook."""
    from pygments.lexers.special import TextLexer

    app.add_lexer("csv", TextLexer)
    app.connect("autodoc-process-docstring", _read, priority=100)
    app.connect("autodoc-process-docstring", _keep, priority=600)
    app.connect("autodoc-process-docstring", _derived, priority=900)
    app.connect("autodoc-process-docstring", _in_protocol, priority=910)
    app.connect("autodoc-skip-member", _no_bare_attributes)
    app.connect("missing-reference", _public)
    app.connect("source-read", _site_links)
