"""Show nests and schedules: LaTeX, HTML, domains, dependence graphs, schedule trees, rooflines, tuning curves.

Text needs nothing beside polyfuse; pictures need `pip install 'polyfuse[plot]'` and are matplotlib Figures.
"""

from polyfuse.show.dependence_graph import dependence_graph, dependence_plot
from polyfuse.show.domain import domain_plot
from polyfuse.show.formulas import latex
from polyfuse.show.notebook_views import load_ipython_extension, notebook
from polyfuse.show.pages import html
from polyfuse.show.roofline_plot import roofline_plot
from polyfuse.show.tree_picture import tree_picture
from polyfuse.show.tuning_curve import tuning_plot

__all__ = [
    "dependence_graph",
    "dependence_plot",
    "domain_plot",
    "html",
    "latex",
    "load_ipython_extension",
    "notebook",
    "roofline_plot",
    "tree_picture",
    "tuning_plot",
]
