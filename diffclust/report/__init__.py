"""One self-contained HTML file that shows a fit: prototypes, figures, and the samples behind them.

`write_report` is all that is needed; the other modules choose what is shown and draw it.
You need it to judge a clustering by eye: every assignment is shown as the alignment it rests on.
"""

from diffclust.report.write import write_report

__all__ = ["write_report"]
