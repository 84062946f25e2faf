# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report: fact, expected, seen, consequence. It can be attached to an issue, so it holds no value of the account: no key, address, id,
name or mail address."""

from __future__ import annotations

import re
import typing as t
from collections import Counter

from ..core.redact import redact, redact_all
from .facts.fact import Fact, FactOutcome, Replies, Table

MASK = "(removed)"
_PRIVATE = (
    re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+"),
    re.compile(r"(?<![\w.])\d{1,3}(\.\d{1,3}){3}(?![\w.])"),
    re.compile(r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{0,4}(?![\w:])"),
    re.compile(r"(?i)\b[0-9a-f]{24,}\b"),
    re.compile(r"(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    re.compile(r"https?://\S+"),
)
_FAILING = (FactOutcome.DIFFERS, FactOutcome.NO_ANSWER, FactOutcome.NOT_SEEN)
Json = dict[str, t.Any]


def scrub(text: str) -> str:
    """``text`` without secrets, addresses and ids; a second line of defence, since facts tell types and words only."""
    text = redact(text)
    for pattern in _PRIVATE:
        text = pattern.sub(MASK, text)
    return text


def build(
    table: Table,
    replies: Replies,
    failures: t.Mapping[str, str],
    *,
    when: str,
    own_address: bool,
    lane: str,
    unasked: t.Collection[str] = (),
    cost: t.Mapping[str, t.Any] | None = None,
    left_behind: t.Sequence[str] = (),
    problem: str = "",
) -> Json:
    """The report as JSON. ``own_address``: not the vendor's own. ``lane``: of the machine that was rented, "" = none. ``unasked``: questions
    that earlier answers left without a path. ``left_behind``: machines by provider and name. ``problem``: why the paid part ended early."""
    rows = [_row(fact, replies, failures, lane, set(unasked)) for fact in table.facts]
    _mark_hidden(table, rows, set(unasked))
    counts = Counter(row["outcome"] for row in rows)
    return t.cast(
        Json,
        redact_all(
            {
                "format": "tgp.gpu/verify-provider/v1",
                "service": table.service,
                "when": when,
                "own_address": own_address,
                "rented": bool(lane),
                "lane": lane,
                "left_behind": [scrub(one) for one in left_behind],
                "problem": scrub(problem),
                "cost": dict(cost or {}),
                "counts": {outcome.value: counts.get(outcome.value, 0) for outcome in FactOutcome},
                "all_match": not left_behind and not problem and all(row["outcome"] not in _FAILING for row in rows),
                "facts": rows,
            }
        ),
    )


def _row(fact: Fact, replies: Replies, failures: t.Mapping[str, str], lane: str, unasked: set[str]) -> Json:
    found = fact.verdict(replies, lane=lane)
    outcome, seen = found.outcome, found.seen
    if outcome is FactOutcome.NO_ANSWER:
        why = {name: failures.get(name, "it was not asked") for name in fact.asks if name not in replies}
        seen = "; ".join(f"{name}: {text}" for name, text in why.items())
        if unasked & set(why):
            outcome = FactOutcome.NOT_SEEN
    return {
        "id": fact.id,
        "statement": fact.statement,
        "expected": fact.expected,
        "seen": scrub(seen),
        "outcome": outcome.value,
        "consequence": fact.consequence,
        "source": fact.source,
        "basis": fact.basis.value,
        "hidden_by": "",
    }


def _mark_hidden(table: Table, rows: list[Json], unasked: set[str]) -> None:
    """A fact that is not seen because another one of the same answer differs counts as part of that one."""
    asks = {fact.id: set(fact.asks) for fact in table.facts}
    wrong = [row["id"] for row in rows if row["outcome"] == FactOutcome.DIFFERS.value]
    for row in rows:
        if row["outcome"] == FactOutcome.NOT_SEEN.value:
            dependent = bool(asks[row["id"]] & unasked)
            row["hidden_by"] = next((one for one in wrong if dependent or asks[one] & asks[row["id"]]), "")


def failing(report: Json) -> list[Json]:
    """Facts that do not match, without those that only another one hides."""
    return [row for row in report["facts"] if row["outcome"] in _FAILING and not row["hidden_by"]]


def summary(report: Json) -> str:
    """One sentence."""
    counts = report["counts"]
    text = ", ".join(f"{counts[outcome.value]} {outcome.value}" for outcome in FactOutcome if counts[outcome.value])
    return f"{report['service']}: of {len(report['facts'])} facts {text}"


def markdown(report: Json) -> str:
    """What was left behind is the first line, then what does not match, then everything else."""
    lines = [f"**LEFT BEHIND AND BILLED: {one}. Terminate it in the provider's console.**" for one in report["left_behind"]]
    lines += [""] if lines else []
    place = "at an address of the user's" if report["own_address"] else "at the vendor's address"
    machine = f"with a rented machine of lane {report['lane']}" if report["lane"] else "without a rented machine"
    lines += [
        f"# Facts of {report['service']}",
        "",
        f"{summary(report)}.",
        f"Checked at {report['when']}, {place}, {machine}.",
    ]
    if report["problem"]:
        lines.append(f"The paid part ended early: {report['problem']}")
    if report["cost"]:
        lines.append(", ".join(f"{key.replace('_', ' ')} {value}" for key, value in report["cost"].items()) + ".")
    wrong = failing(report)
    lines += ["", "## Does not match", ""]
    lines += _table(wrong) if wrong else ["Nothing."]
    for title, wanted in (
        ("Not seen because of the above", lambda row: bool(row["hidden_by"])),
        ("Not checked", lambda row: row["outcome"] == FactOutcome.NOT_CHECKED.value),
        ("Matches", lambda row: row["outcome"] == FactOutcome.MATCHES.value),
    ):
        rows = [row for row in report["facts"] if wanted(row)]
        if rows:
            lines += ["", f"## {title}", "", *_table(rows)]
    return "\n".join(lines) + "\n"


def _table(rows: t.Sequence[Json]) -> list[str]:
    """One row for each fact."""
    head = ["| fact | expected | seen | consequence when false | basis |", "|---|---|---|---|---|"]
    cells = [
        (
            f"`{_cell(row['id'])}`: {_cell(row['statement'])}",
            _cell(row["expected"]),
            _seen(row),
            _cell(row["consequence"]),
            row["basis"],
        )
        for row in rows
    ]
    return head + [f"| {' | '.join(one)} |" for one in cells]


def _seen(row: Json) -> str:
    seen = _cell(row["seen"])
    return seen if row["outcome"] in (FactOutcome.MATCHES.value, FactOutcome.DIFFERS.value) else f"{row['outcome']}: {seen}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
