# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures of what the panels of each dashboard show: docs/images/dashboard-NAME.svg, made of docs/images/panels.json. ``python
docs/panel_pictures.py`` draws them.

The data are answers of a real Prometheus in a story on the sandbox (tests/e2e/test_metrics.py). Places and titles are those of
monitoring/dashboards; Grafana has no part in it.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path
from xml.sax.saxutils import escape

import dashboards

FOLDER = Path(__file__).parent / "images"
DATA = FOLDER / "panels.json"
COLUMN, ROW, GAP = 42, 26, 8  # pixels of one unit of a dashboard's grid, and between panels
HEAD, LEFT, RIGHT, TOP, LINE = 30, 62, 12, 28, 13
MOST_NAMED, LONGEST = 6, 44  # lines in a legend, and letters of each
COLOURS = ("#3274d9", "#e0752d", "#56a64b", "#a352cc", "#e02f44", "#8a8a8a")
Points = t.Sequence[tuple[float, float]]
Json = dict[str, t.Any]


def picture(board: dashboards.Dashboard, data: Json) -> str:
    """The dashboard as SVG. ``data``: see DATA."""
    made = dashboards.made(board)
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in made["panels"]) * ROW + HEAD
    title = f"{board.title}, {data['date']}: {data['seconds']} seconds of a story on the sandbox, as a Prometheus answers"
    drawn = [_panel(panel, kind.kind, data["panels"].get(f"{board.name}/{panel['title']}", []), data["seconds"])
             for panel, kind in zip(made["panels"], board.panels, strict=True)]  # fmt: skip
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{24 * COLUMN}" height="{height}" viewBox="0 0 {24 * COLUMN} {height}" '
            f'role="img" aria-label="{escape(title)}" font-family="sans-serif" font-size="11" fill="#333">',
            f'<rect width="{24 * COLUMN}" height="{height}" fill="#fff"/>',
            f'<text x="{GAP}" y="20" font-size="14">{escape(title)}</text>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _panel(panel: Json, kind: str, queries: t.Sequence[Json], seconds: float) -> str:
    """A frame with the title, the lines, their range and a legend."""
    place = panel["gridPos"]
    left, top = place["x"] * COLUMN, place["y"] * ROW + HEAD
    width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    found = [(_legend(panel["targets"][number], one["labels"]), one["points"])
             for number, query in enumerate(queries) for one in query["series"]]  # fmt: skip
    parts = [
        f'<g transform="translate({left} {top})">',
        f'<rect width="{width}" height="{height}" fill="none" stroke="#ccc"/>',
        f'<text x="6" y="17" font-weight="bold">{escape(panel["title"])}</text>',
    ]
    if not found:
        return "\n".join([*parts, f'<text x="6" y="{height // 2 + 8}" fill="#888">no data in this story</text>', "</g>"])
    named = found[: MOST_NAMED if kind not in ("stat",) else 2]
    bottom = height - LINE * len(named) - 6
    values = [value for _name, points in found for _when, value in points]
    low, high = min(0.0, *values), max(values)
    span, unit = (high - low) or 1.0, panel["fieldConfig"]["defaults"]["unit"]
    for value, y in ((high, TOP + 4), (low, bottom)):
        parts.append(f'<text x="{LEFT - 4}" y="{y}" text-anchor="end" fill="#888">{escape(shown(value, unit))}</text>')
    for number, (name, points) in enumerate(found):
        colour = COLOURS[number % len(COLOURS)]
        places = [
            (LEFT + when / seconds * (width - LEFT - RIGHT), bottom - (value - low) / span * (bottom - TOP))
            for when, value in points
        ]
        parts.append(f'<path d="{_path(places, steps=kind != "lines")}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if number < len(named):
            y = bottom + LINE * (number + 1)
            text = f"{_cut(name)}: {shown(points[-1][1], unit)}"
            parts.append(f'<text x="{LEFT}" y="{y}"><tspan fill="{colour}">■</tspan> {escape(text)}</text>')
    return "\n".join([*parts, "</g>"])


def _path(places: Points, *, steps: bool) -> str:
    """As straight lines, or from value to value in steps."""
    words = [f"M{places[0][0]:.1f} {places[0][1]:.1f}"]
    for x, y in places[1:]:
        words.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
    return "".join(words)


def _legend(target: Json, labels: t.Mapping[str, str]) -> str:
    """What Grafana would write: the format of the legend with the labels, all labels where the format names none (tables)."""
    text = target["legendFormat"]
    for label, value in labels.items():
        text = text.replace("{{" + label + "}}", value)
    if target["format"] == "table":
        return " ".join(value for _label, value in sorted(labels.items())) or text
    return text


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def shown(value: float, unit: str) -> str:
    """A value with its unit, in at most five digits."""
    if unit == dashboards.SHARE:
        return f"{value * 100:.4g} %"
    number = f"{value:.5g}" if abs(value) < 100_000 else f"{value:.0f}"
    return {dashboards.DOLLARS: f"${number}", dashboards.SECONDS: f"{number} s"}.get(unit, number)


def texts() -> dict[str, str]:
    """The content of each picture, by its name."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return {f"dashboard-{board.name}.svg": picture(board, data) for board in dashboards.DASHBOARDS}


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
