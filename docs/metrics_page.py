# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/reference/metrics.md, made of the table in plugins/module_utils/metrics/families.py. ``python docs/metrics_page.py`` writes it."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.tgp.gpu.plugins.module_utils.metrics.families import (
    FAMILIES,
    HISTOGRAM,
    MOST_NAMES,
    OTHER,
    PLAN,
    PROCESS,
    RECORDS,
    RUN,
    Family,
)

FILE = Path(__file__).parent / "reference" / "metrics.md"
_HEAD = f"""# Metrics

<!-- Made by docs/metrics_page.py from plugins/module_utils/metrics/families.py. Change that. -->

This page lists every metric. [Metrics and alerts](../how_to/metrics.md) says how to switch them on. Dollars and seconds are the units; times
are seconds since 1970.

At most {MOST_NAMES} pools, models, regions, teams and playbooks have a name of their own in the labels. The rest share the value `{OTHER}`.
A metric *per machine* is there only with the option `metrics_per_machine`.
"""
_SECTIONS = {
    RECORDS: (
        "Machines, money and documents",
        "Computed from the claims, the ledger and the documents at the end of each run. Their counters need no state of their own:\n"
        "they survive every kill, and are the same on each controller. What `archive.yml` takes from the ledger\n"
        "stays in them ([counters that survive](../how_to/metrics.md#counters-that-survive)).",
    ),
    PLAN: (
        "What the last plan saw",
        "As the last run that planned saw it. `tgp_gpus_demand` and `tgp_pods_waiting` are those of the last `autoscale`.",
    ),
    PROCESS: (
        "Calls and waits",
        "Counted by the processes of runs, and kept in the state folder of the controller (option `state_dir`). Without that folder they\n"
        "begin anew, as after the restart of any program. A step that is killed takes the calls that it made with it. `provider` is a\n"
        "cloud, `tailscale`, `kubernetes` or another service.",
    ),
    RUN: (
        "Runs",
        "Kept in the state folder. A run that did nothing because another one held the lock has the outcome `lock_busy`.",
    ),
    "": ("Names of tgp-operator", "The nine metrics of tgp-operator with its names, labels and buckets, for its dashboards."),
}


def _section(family: Family) -> str:
    return "" if family.name.startswith("tgp_operator_") else family.source


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
    buckets = f" Buckets: {', '.join(f'{bound:g}' for bound in family.buckets)}." if family.kind == HISTOGRAM else ""
    machine = " Per machine." if family.per_machine else ""
    return f"| `{family.shown}` | {family.kind} | {labels} | {family.help}{buckets}{machine} |"


def text() -> str:
    """The whole page."""
    parts = [_HEAD]
    for source, (heading, words) in _SECTIONS.items():
        rows = "\n".join(_row(family) for family in FAMILIES.values() if _section(family) == source)
        parts.append(f"## {heading}\n\n{words}\n\n| metric | kind | labels | what |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
