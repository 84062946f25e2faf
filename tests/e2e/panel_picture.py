# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A picture of the panels' data: each panel of the dashboards over the time of a story, as Prometheus answers its queries. Grafana has no
part in it."""

from __future__ import annotations

import io
import math
import typing as t
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

from .panels import queries
from .prometheus import Monitoring

COLUMNS, WIDTH, HEIGHT = 5, 2.6, 1.6  # inches of one panel
MOST_LINES = 6
Lines = dict[str, list[tuple[float, float]]]


def draw(seen: Monitoring, job: str, began: float, path: Path) -> list[str]:
    """Write the picture of panels that change; all that have a value."""
    shown = {panel: _lines(seen, asked, began) for panel, asked in queries(job).items()}
    shown = {panel: lines for panel, lines in shown.items() if lines}
    moving = {
        panel: lines for panel, lines in shown.items() if any(len(set(dict(points).values())) > 1 for points in lines.values())
    }
    plain = io.BytesIO()
    with mpl.rc_context({"lines.antialiased": False}):  # half of the size
        _figure(moving, began).savefig(plain, dpi=72)
    Image.open(plain).convert("RGB").quantize(20, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    return list(shown)


def _figure(shown: t.Mapping[str, Lines], began: float) -> Figure:
    """Small panels side by side."""
    rows = math.ceil(len(shown) / COLUMNS)
    figure = Figure(figsize=(COLUMNS * WIDTH, rows * HEIGHT), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for axes, (panel, lines) in zip(grid, shown.items(), strict=False):
        axes.set_title(panel.replace("/", ": "), fontsize=8, loc="left")
        axes.tick_params(labelsize=6)
        axes.ticklabel_format(useOffset=False, style="plain")
        axes.spines[["top", "right"]].set_visible(False)
        for label, points in list(lines.items())[:MOST_LINES]:
            axes.plot([when - began for when, _value in points], [value for _when, value in points], linewidth=1, label=label)
        if len(lines) > 1:
            axes.legend(fontsize=6, loc="upper left", frameon=False)
    for axes in grid[len(shown) :]:
        axes.axis("off")
    return figure


def _lines(seen: Monitoring, asked: t.Sequence[str], began: float) -> Lines:
    """By the labels of each series; what is the same in all is left out."""
    found = [one for query in asked for one in seen.course(query, began)]
    same = frozenset.intersection(*(frozenset(labels.items()) for labels, _points in found)) if len(found) > 1 else frozenset()
    lines = {}
    for labels, points in found:
        words = " ".join(
            value for key, value in sorted(labels.items()) if (key, value) not in same and key not in ("job", "instance")
        )
        finite = [(when, value) for when, value in points if math.isfinite(value)]
        if finite:
            lines[words] = finite
    return lines
