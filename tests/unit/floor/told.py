# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads an event log as its schema promises it."""

from __future__ import annotations

import json
import typing as t
from collections import defaultdict
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parents[3]


def schema(name: str) -> t.Any:
    return json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))


def checked_events(path: Path) -> list[dict[str, t.Any]]:
    """All lines; each is valid, the numbers of a run have no gap, and an outcome names an intent before it."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    check = jsonschema.Draft202012Validator(schema("events"), format_checker=jsonschema.FormatChecker())
    for line in lines:
        problems = [f"{list(one.path)}: {one.message}" for one in check.iter_errors(line)]
        assert not problems, (line, problems)
    runs: dict[str, list[dict[str, t.Any]]] = defaultdict(list)
    for line in lines:
        runs[line["run"]].append(line)
    for run, told in runs.items():
        assert [one["seq"] for one in told] == list(range(1, len(told) + 1)), run
        intents = {one["seq"]: one["call"] for one in told if one["kind"] == "intent"}
        for one in told:
            if one["kind"] == "outcome" and "ref" in one:
                assert intents[one["ref"]] == one["call"], one
                assert one["ref"] < one["seq"], one
    return lines
