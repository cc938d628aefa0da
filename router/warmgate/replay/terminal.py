"""Pieces of terminal output: tables whose figures are never cut, and text from a trace made safe to print."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from warmgate.errors import one_line

TEXT = 16
"""Columns that a text needs at least; longer words fold."""
GAP = 2
"""Blanks between two columns, in every table here."""


class Whole:
    """A table whose columns of figures keep their width, even where the console is narrower: a long line is better than a figure cut.

    Attributes:
        needed: Columns of the terminal below which lines get longer than it is wide.
    """

    def __init__(self, table: Table, indent: int = 0) -> None:
        self.needed = indent + GAP * (len(table.columns) - 1)
        for column in table.columns:
            longest = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
            self.needed += longest if column.no_wrap else min(longest, TEXT)
        self._table = indented(table, indent)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's protocol for things that render."""
        yield from console.render(self._table, options.update(max_width=max(options.max_width, self.needed)))


def indented(what: RenderableType, by: int = 1) -> Padding:
    """``what``, moved right by ``by`` columns."""
    return Padding(what, (0, 0, 0, by), expand=False)


def table_of(first: str, *numbers: str, text: str | None = None) -> Table:
    """A table of a name, numbers to the right, and a text at the end where ``text`` heads one."""
    bare = not first
    table = Table(
        box=None if bare else SIMPLE_HEAD, show_header=not bare, padding=(0, 2 if bare else 1, 0, 0), pad_edge=False, show_edge=False
    )
    table.add_column(first, no_wrap=True, header_style="dim")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True, header_style="dim")
    if text is not None:
        table.add_column(text, header_style="dim")
    return table


def safe(text: str, limit: int = 400) -> Text:
    """Text from a trace as one line that rich never parses as markup. One leading space is kept: rows are indented by it."""
    return Text((" " if text.startswith(" ") else "") + one_line(text, limit), overflow="fold")


def tail(path: str, limit: int) -> str:
    """The end of a long path, which tells files apart."""
    line = one_line(path, 4000)
    return line if len(line) <= limit else "…" + line[1 - limit :]
