"""The book: `pip install -r docs/requirements.txt`, then `sphinx-build -W docs target/book`."""

from pygments.lexers import RustLexer
from sphinx.highlighting import lexers

# Samples that rustdoc compiles and does not run have this name.
lexers["rust,no_run"] = RustLexer()

project = "FlashVM"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["requirements.txt"]
# Names of sections can be linked to, as on a web page of the repository.
myst_heading_anchors = 3
# Files outside of docs are linked to as in the repository; a test of the workspace checks that they exist.
suppress_warnings = ["myst.xref_missing"]
html_theme = "furo"
html_title = "FlashVM"
autodoc_typehints = "none"
