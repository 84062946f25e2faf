# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts as SVG to stand inside a page: drawn by matplotlib, coloured by the page's own style, so that they suit light and dark."""

from __future__ import annotations

import io
import re
import typing as t
from decimal import Decimal

from ..core.errors import is_there, lazy
from .svg import SERIES, dearest, series_colour
from .text import cents

if t.TYPE_CHECKING:
    import matplotlib
    from matplotlib import figure as figures
    from matplotlib.backends import backend_svg
    from matplotlib.figure import Figure
else:
    matplotlib = lazy("matplotlib")
    backend_svg = lazy("matplotlib.backends.backend_svg", "matplotlib")
    figures = lazy("matplotlib.figure", "matplotlib")

# Colours that nothing else uses; the page's own take their place afterwards.
INK, FAINT, GRID = "#010203", "#010204", "#010205"
_SERIES = tuple(f"#0102{number:02x}" for number in range(0x10, 0x10 + SERIES))
_STYLE: t.Any = {
    "svg.fonttype": "none",
    "font.size": 8.5,
    "font.family": ["sans-serif"],
    "axes.linewidth": 0.6,
    "text.parse_math": False,
}
_WIDTH = 4.3


def can_draw() -> bool:
    """Whether matplotlib is installed. Without it, report_svg draws the same charts."""
    return is_there("matplotlib")


def stacked(title: str, places: t.Sequence[str], series: t.Sequence[tuple[str, int, t.Sequence[Decimal]]]) -> str:
    """Bars side by side, one for each of ``places``; ``series`` are name, colour and heights, one upon the other."""
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(2.5)
        bottom = [0.0] * len(places)
        for name, colour, values in series:
            heights = [float(value) for value in values]
            axes.bar(range(len(places)), heights, 0.8, bottom=bottom, color=_SERIES[colour % len(_SERIES)], label=name)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        step = max(1, -(-len(places) // 7))
        axes.set_xticks(range(0, len(places), step), [places[at] for at in range(0, len(places), step)])
        axes.set_xlim(-0.6, max(len(places), 4) - 0.4)
        axes.yaxis.set_major_formatter(lambda value, _at: f"${value:g}")
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        return _svg(figure, title)


def bars(title: str, sums: t.Mapping[str, Decimal]) -> str:
    """Lying bars, the dearest at the top, each with its amount. What is beyond the first is added up as "others"."""
    shown = dearest(sums)
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(0.5 + 0.27 * max(len(shown), 2))
        longest = float(max((cost for _word, cost in shown), default=Decimal(1))) or 1.0
        axes.barh([word for word, _cost in shown], [float(cost) for _word, cost in shown], 0.62, color=_SERIES[0])
        for at, (_word, cost) in enumerate(shown):
            axes.text(float(cost) + longest * 0.02, at, f"${cents(cost)}", va="center", color=INK)
        axes.set_xlim(0, longest * 1.28)
        axes.set_ylim(max(len(shown), 2) - 0.45, -0.55)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        return _svg(figure, title)


def course(title: str, steps: t.Sequence[tuple[float, Decimal]], now: tuple[float, Decimal], end: tuple[float, Decimal]) -> str:
    """A sum that grows: ``steps`` are day of the month and dollars so far, up to ``now``; from there dashed to the forecast at ``end``."""
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(2.2)
        points = [*steps, now]
        axes.plot([at for at, _cost in points], [float(cost) for _at, cost in points], color=_SERIES[0], linewidth=1.8)
        axes.plot([now[0], end[0]], [float(now[1]), float(end[1])], color=_SERIES[0], linewidth=1.4, linestyle=(0, (4, 3)))
        axes.annotate(f"${cents(end[1])}", (end[0], float(end[1])), (-2, 4), textcoords="offset points", ha="right", color=INK)
        axes.set_xlim(1, end[0])
        axes.set_ylim(0, float(max(end[1], now[1])) * 1.18 or 1)
        axes.yaxis.set_major_formatter(lambda value, _at: f"${value:g}")
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        return _svg(figure, title)


def _figure(height: float) -> tuple[Figure, t.Any]:
    figure = figures.Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="none")
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.tick_params(colors=INK, length=0)
    axes.tick_params(axis="x", pad=6)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    return figure, axes


def _svg(figure: Figure, title: str) -> str:
    """The drawing alone: no prologue, no metadata, no width; ids of its own; colours and font of the page."""
    file = io.BytesIO()
    backend_svg.FigureCanvasSVG(figure).print_svg(file, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = file.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<svg ([^>]*?)>", lambda match: f"<svg {_attributes(match[1])}>", text, count=1, flags=re.DOTALL)
    own = re.sub(r"[^a-z0-9]+", "-", title.lower())
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{own}-", text)
    for place, colour in (
        (INK, "--ink"),
        (FAINT, "--faint"),
        (GRID, "--grid"),
        *((series, series_colour(at)) for at, series in enumerate(_SERIES)),
    ):
        text = text.replace(place, f"var({colour})")
    text = re.sub(r"font: [^;\"]*?(\d+(?:\.\d+)?)px[^;\"]*", r"font-size: \1px", text)
    return text.strip()


def _attributes(text: str) -> str:
    """Of the outermost element: the view box stays, sizes and namespaces go (a page knows them)."""
    box = re.search(r'viewBox="[^"]*"', text)
    return f'{box[0] if box else ""} role="img" preserveAspectRatio="xMidYMid meet"'
