# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of the panels over the time of a story, as Prometheus answers their queries. docs/panel_pictures.py draws them."""

from __future__ import annotations

import json
import math
import time
import typing as t
from datetime import UTC, datetime
from pathlib import Path

from .panels import queries
from .prometheus import Monitoring

MOST_POINTS, MOST_SERIES, DIGITS = 60, 8, 5
_SAME = ("job", "instance", "__name__")  # labels that say nothing here


def record(seen: Monitoring, job: str, began: float, path: Path) -> list[str]:
    """Write the data of all panels; those that have a value. Times are seconds since ``began``."""
    found = {panel: [{"query": query, "series": _series(seen, query, began)} for query in asked]
             for panel, asked in queries(job).items()}  # fmt: skip
    data = {"date": datetime.now(UTC).date().isoformat(), "seconds": math.ceil(time.time() - began), "job": job, "panels": found}
    path.write_text(
        json.dumps(data, indent=None, separators=(",", ":"), sort_keys=True).replace('},"', '},\n"') + "\n", encoding="utf-8"
    )
    return [panel for panel, asked in found.items() if any(one["series"] for one in asked)]


def _series(seen: Monitoring, query: str, began: float) -> list[dict[str, t.Any]]:
    """Labels and points of each series, those with the highest values first."""
    found = []
    for labels, points in seen.course(query, began):
        finite = [(round(when - began), _rounded(value)) for when, value in points if math.isfinite(value)]
        if finite:
            found.append({"labels": {key: value for key, value in labels.items() if key not in _SAME}, "points": _few(finite)})
    return sorted(found, key=lambda one: (-max(value for _when, value in one["points"]), str(one["labels"])))[:MOST_SERIES]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _few(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Without points that lie between equal ones, and then every so many, with the first and the last."""
    kept = [
        point
        for before, point, after in zip([None, *points[:-1]], points, [*points[1:], None], strict=True)
        if before is None or after is None or not before[1] == point[1] == after[1]
    ]
    step = math.ceil(len(kept) / MOST_POINTS)
    return [point for place, point in enumerate(kept) if place % step == 0 or place == len(kept) - 1]
