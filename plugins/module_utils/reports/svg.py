# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The charts of the report as SVG without any library: what report_charts draws by matplotlib, for installations without it."""

from __future__ import annotations

import math
import typing as t
from decimal import Decimal
from html import escape

from .text import cents

SERIES = 9
_MOST_BARS = 8
_WIDTH, _LEFT, _RIGHT, _TOP, _FOOT = 310.0, 34.0, 306.0, 8.0, 18.0
_LETTER = 5.2  # how wide a letter of the charts is, about


def series_colour(number: int) -> str:
    """The name of the page's colour for a series."""
    return f"--s{number % SERIES}"


def dearest(sums: t.Mapping[str, Decimal]) -> list[tuple[str, Decimal]]:
    """The first entries of ``sums``; what is beyond them is added up as "others"."""
    shown = list(sums.items())
    if len(shown) <= _MOST_BARS:
        return shown
    rest = sum((cost for _word, cost in shown[_MOST_BARS - 1 :]), Decimal(0))
    return [*shown[: _MOST_BARS - 1], (f"{len(sums) - _MOST_BARS + 1} others", rest)]


def stacked(title: str, places: t.Sequence[str], series: t.Sequence[tuple[str, int, t.Sequence[Decimal]]]) -> str:
    """Bars side by side, one for each of ``places``; ``series`` are name, colour and heights, one upon the other."""
    height = 180.0
    sums = [sum((float(values[at]) for _name, _colour, values in series), 0.0) for at in range(len(places))]
    scale = _Scale(max(sums, default=0.0), height)
    room = (_RIGHT - _LEFT) / max(len(places), 4)
    every = max(1, -(-len(places) // 7))
    drawn = [*scale.lines()]
    for at, place in enumerate(places):
        bottom, x = 0.0, _LEFT + room * (at + 0.1)
        for name, colour, values in series:
            value = float(values[at])
            if value > 0:
                y, end = scale.y(bottom + value), scale.y(bottom)
                tip = f"{place}: {name} ${cents(values[at])}"
                drawn.append(_bar(x, y, room * 0.8, end - y, series_colour(colour), tip))
            bottom += value
        if at % every == 0:
            drawn.append(_text(x + room * 0.4, height - 4, place, "middle"))
    return _svg(title, height, drawn)


def bars(title: str, sums: t.Mapping[str, Decimal]) -> str:
    """Lying bars, the dearest at the top, each with its amount. What is beyond the first is added up as "others"."""
    shown = dearest(sums)
    row = 19.5
    longest = float(max((cost for _word, cost in shown), default=Decimal(1))) or 1.0
    left = min(max((len(word) for word, _cost in shown), default=0) * _LETTER + 8, _WIDTH * 0.45)
    room = (_WIDTH - left) / 1.3
    drawn = []
    for at, (word, cost) in enumerate(shown):
        middle, width = _TOP + row * (at + 0.5), max(float(cost), 0.0) / longest * room
        most = int((left - 8) / _LETTER)
        drawn.append(_text(left - 5, middle + 3, word if len(word) <= most else word[: most - 1] + "…", "end", whole=word))
        drawn.append(_bar(left, middle - row * 0.31, width, row * 0.62, series_colour(0)))
        drawn.append(_text(left + width + 4, middle + 3, f"${cents(cost)}", "start"))
    height = _TOP * 2 + row * max(len(shown), 2)
    drawn.append(_line(left, _TOP, left, height - _TOP, "--faint"))
    return _svg(title, height, drawn)


def course(title: str, steps: t.Sequence[tuple[float, Decimal]], now: tuple[float, Decimal], end: tuple[float, Decimal]) -> str:
    """A sum that grows: ``steps`` are day of the month and dollars so far, up to ``now``; from there dashed to the forecast at ``end``."""
    height = 160.0
    scale = _Scale(float(max(end[1], now[1])) * 1.1, height)

    def point(day: float, cost: Decimal) -> str:
        return f"{_LEFT + (day - 1) / max(end[0] - 1, 1) * (_RIGHT - _LEFT):.1f},{scale.y(float(cost)):.1f}"

    def path(points: t.Sequence[tuple[float, Decimal]], more: str) -> str:
        places = " ".join(point(*pair) for pair in points)
        return f'<polyline points="{places}" fill="none" style="stroke:var({series_colour(0)})" stroke-linejoin="round" {more}/>'

    days = [day for day in range(1, int(end[0]) + 1) if day % 5 == 0]
    named = [_text(float(point(day, Decimal(0)).partition(",")[0]), height - 4, str(day), "middle") for day in days]
    drawn = [
        *scale.lines(),
        *named,
        path([*steps, now], 'stroke-width="1.8"'),
        path([now, end], 'stroke-width="1.4" stroke-dasharray="5 4"'),
        _text(_RIGHT - 2, scale.y(float(end[1])) - 5, f"${cents(end[1])}", "end"),
    ]
    return _svg(title, height, drawn)


class _Scale:
    """Dollars upwards, with lines at round amounts."""

    def __init__(self, most: float, height: float) -> None:
        rough = (most or 1.0) / 4
        unit = 10.0 ** math.floor(math.log10(rough))
        self.step = next(unit * by for by in (1, 2, 2.5, 5, 10) if unit * by >= rough * 0.999)
        self.count = max(1, math.ceil((most or 1.0) / self.step - 0.001))
        self.top, self.bottom = _TOP, height - _FOOT

    def y(self, value: float) -> float:
        return self.bottom - value / (self.step * self.count) * (self.bottom - self.top)

    def lines(self) -> list[str]:
        drawn = []
        for at in range(self.count + 1):
            y = self.y(at * self.step)
            drawn.append(_line(_LEFT, y, _RIGHT, y, "--grid" if at else "--faint"))
            drawn.append(_text(_LEFT - 5, y + 3, f"${at * self.step:g}", "end"))
        return drawn


def _text(x: float, y: float, text: str, anchor: str, whole: str = "") -> str:
    tip = f"<title>{escape(whole)}</title>" if whole and whole != text else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="fill:var(--ink);font-size:8.5px">{tip}{escape(text)}</text>'
    )


def _bar(x: float, y: float, width: float, height: float, colour: str, tip: str = "") -> str:
    inner = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" style="fill:var({colour})">{inner}</rect>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke-width="0.6" style="stroke:var({colour})"/>'


def _svg(title: str, height: float, drawn: t.Iterable[str]) -> str:
    head = (
        f'<svg viewBox="0 0 {_WIDTH:.1f} {height:.1f}" role="img" aria-label="{escape(title)}" preserveAspectRatio="xMidYMid meet">'
    )
    return head + "".join(drawn) + "</svg>"
