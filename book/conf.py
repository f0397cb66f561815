"""The book as Sphinx makes it: from stored notebooks, nothing executed, nothing fetched when it is read.

`tools/book.py` prepares the pages in a folder of its own and names it by LESSON_BOOK.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREPARED = Path(os.environ["LESSON_BOOK"])
LIVE = "../lite/lab/index.html?path=my_notebooks/{name}.ipynb"  # from the root: the site beside it
sys.path[:0] = [str(HERE), str(HERE.parent)]

project = "The decode-heavy workload"
author = "the authors of lessonlib"
copyright = "the authors of lessonlib. Text and figures CC BY 4.0, code MIT"
extensions = ["myst_nb", "sphinx.ext.autodoc", "terms", "mathml", "docstrings"]
root_doc = "index"
language = "en"
smartquotes = False  # what is printed stays as it is printed
templates_path = ["templates"]

nb_execution_mode = "off"
nb_merge_streams = True
nb_ipywidgets_js = {}  # else every page with a widget loads two scripts from elsewhere
nb_render_markdown_format = "myst"
nb_code_prompt_show = "Show the {type}"
nb_code_prompt_hide = "Hide the {type}"
myst_enable_extensions = ["dollarmath", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
suppress_warnings = ["ref.python", "docutils"]

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["static", str(PREPARED / "_static")]  # what is kept, and what is made
html_css_files = [*sorted(path.name for path in (PREPARED / "_static").glob("*.css")), "book.css"]
html_favicon = "static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_use_index = False
html_domain_indices = False
html_permalinks_icon = "#"
html_theme_options = {
    "logo": {"text": project},
    "navbar_align": "left",
    "navbar_center": ["navbar-nav"],
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "article_header_end": ["open-live"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "search_bar_text": "Search the book",
    "back_to_top_button": False,
}
html_sidebars = {"index": [], "docs/**": [], "data/**": []}


def page_context(app, pagename, templatename, context, doctree):
    """What a page needs beside its text: scripts where something answers, and its live version."""
    if pagename == "index" or pagename.startswith("notebooks/"):
        for name in ("lesson.js", "lesson-data.js"):
            app.add_js_file(name, loading_method="defer")
    app.add_js_file("book.js", loading_method="defer", priority=900)
    if body := context.get("body"):
        context["body"] = body.replace(' aria-label="Toggle hidden content"', "")  # it says what it shows by itself
    if pagename.startswith("notebooks/") and pagename != "notebooks/index":
        up = "../" * pagename.count("/")
        context["live"] = up + LIVE.format(name=pagename.partition("/")[2])


def setup(app):
    app.connect("html-page-context", page_context)
