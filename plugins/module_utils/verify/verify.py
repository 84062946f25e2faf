# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of provider_verify: ask, perhaps rent, report."""

from __future__ import annotations

import json
import os
import typing as t
from decimal import Decimal

from ..core import errors
from ..core.clock import to_text
from ..core.files import replace
from ..core.http import Api
from ..core.task import Task
from ..model import Lane
from ..providers.base import Cloud
from ..providers.registry import CAPABILITIES
from ..units.values import parse_money, print_money
from .ask import CLOUDS, FACTORY, MESHES, OWN, Recording, VerifyTarget, ask_all, open_target, service_named
from .facts.fact import Table
from .own_machines import open_own_machines
from .rented import Budget, Rental, affordable_offers, boot_script, default_lane, end_all, launched_before, machine_name, query_for
from .report import Json, build, failing, markdown, summary

_VENDORS = ("https://cloud.lambda.ai", "https://api.paperspace.com", "https://api.runpod.io", "https://console.vast.ai",
            "https://api.tailscale.com", "https://factory.talos.dev")  # fmt: skip


def verify_run(task: Task) -> Json:
    """The result of the module. TgpError with the report when something does not match."""
    service = service_named(task)
    order = _order(task, service)
    if task.check_mode and order is None and service != OWN:
        return _dry_run(task, _table_before(service), None, [])
    target = open_own_machines(task) if service == OWN else open_target(task, service)
    try:
        if task.check_mode:
            return _dry_run(task, target.table, order, _budgets(task, target, order))
        return _verify(task, target, order)
    finally:
        target.close()


class RentalOrder(t.NamedTuple):
    """What may be rented: a machine of ``lane`` for at most ``cap`` dollars."""

    lane: Lane
    cap: Decimal


def _order(task: Task, service: str) -> RentalOrder | None:
    """None = nothing is rented. InvalidInput for what cannot be rented."""
    cap, lane = _cap(task, service), _lane(task, service)
    return RentalOrder(lane, cap) if cap is not None and lane is not None else None


def _lane(task: Task, service: str) -> Lane | None:
    """The lane of the machine that may be rented."""
    wanted, option = task.params["lane"], task.called("lane")
    if service not in CLOUDS:
        if wanted:
            raise errors.InvalidInput(f"{option}: nothing can be rented from {service}.", remedy=f"It is for {', '.join(CLOUDS)}.")
        return None
    lanes = CAPABILITIES[service].lanes
    if not wanted:
        return default_lane(lanes)
    if wanted not in [lane.value for lane in lanes]:
        raise errors.InvalidInput(
            f"{option} must be {' or '.join(sorted(lane.value for lane in lanes))} for {service}, got {wanted!r}."
        )
    if not task.params["rent"]:
        raise errors.InvalidInput(
            f"{option} chooses what {task.called('rent')} rents, and nothing is rented.",
            remedy=f"Set {task.called('rent')}, or leave {option} out.",
        )
    return Lane(wanted)


def _cap(task: Task, service: str) -> Decimal | None:
    """Dollars that may be spent; None = nothing is rented."""
    cap = task.read("max_cost", parse_money)
    if not task.params["rent"]:
        return None
    if service == OWN:
        raise errors.InvalidInput(
            f"{task.called('rent')}: own machines are never switched by this check.",
            remedy="Try one that is off with tgp.gpu.webhook_machine, first with state present, then with state absent.",
        )
    if service not in CLOUDS:
        raise errors.InvalidInput(
            f"{task.called('rent')}: nothing can be rented from {service}.", remedy=f"It is for {', '.join(CLOUDS)}."
        )
    if not cap:
        raise errors.InvalidInput(
            f"{task.called('max_cost')} must be above 0 with {task.called('rent')}.",
            remedy='Give the dollars that may be spent, such as "1.00".',
        )
    return cap


def _table_before(service: str) -> Table:
    """The table of a service that nobody is asked for; which API a mesh speaks is not known then."""
    if service in CLOUDS:
        return CLOUDS[service]
    if service == FACTORY:
        from .facts import image_factory

        return image_factory.TABLE
    return MESHES[service]


def _budgets(task: Task, target: VerifyTarget, order: RentalOrder | None) -> list[Budget]:
    if order is None or target.cloud is None:
        return []
    cloud, lane = target.cloud, order.lane
    return affordable_offers(cloud, lane, cloud.offers(query_for(cloud, lane)), order.cap, task.called("max_cost"))


def _dry_run(task: Task, table: Table, order: RentalOrder | None, budgets: list[Budget]) -> Json:
    """What would be asked, and what it would cost."""
    calls = [question.described() for question in table.asked(rented=False)]
    lane = order.lane.value if order is not None and budgets else ""
    checked = [fact for fact in table.facts if not fact.needs_another(lane)]
    lines = [f"{table.service}: would check {len(checked)} of {len(table.facts)} facts by {len(calls)} calls that change nothing:"]
    lines += [f"  {call}" for call in calls]
    cost: Json = {}
    if budgets:
        first = budgets[0]
        most = first.spent(first.seconds)
        cost = {
            "machine": first.offer.instance_type,
            "price_hour": print_money(first.price_hour),
            "longest_watch": f"{first.seconds:.0f} s",
            "expected_at_most": print_money(most),
            "max_cost": print_money(first.cap),
        }
        log = ", read the log of its start script" if order is not None and boot_script(table, order.lane) else ""
        lines.append(
            f"  would rent {machine_name(table.service)} for lane {lane}, {first.offer.instance_type} for {print_money(first.price_hour)} $/h, "
            f"for at most {first.seconds:.0f} s: about {print_money(most)} of {print_money(first.cap)} ${log}, and terminate it"
        )
    else:
        lines.append("  would rent nothing and cost nothing")
    for line in lines:
        task.progress(line)
    return {"changed": bool(budgets), "calls": calls, "cost": cost, "report": {}, "markdown": "\n".join(lines) + "\n", "paths": []}


def _verify(task: Task, target: VerifyTarget, order: RentalOrder | None) -> Json:
    cloud, recording = target.cloud, Recording()
    left = _make_good(task, cloud, order) if cloud is not None else []
    ask_all(task, target, recording)
    rental: Rental | None = None
    problem = _unable(target, order, recording)
    if cloud is not None and order is not None and not left and not problem:
        try:
            rental = Rental(task, target, cloud, order.lane, recording, _budgets(task, target, order))
        except errors.TgpError as error:
            problem = f"nothing was rented: {error.kind}"
            task.warn(str(error))
        else:
            rental.run()
            left, problem = rental.left, rental.problem
    report = build(
        target.table,
        recording.replies,
        recording.failures,
        when=to_text(task.clock.now()),
        own_address=_is_own(target.api),
        unasked=recording.unasked,
        lane=rental.lane.value if rental is not None and rental.identity else "",
        cost=_cost(rental),
        left_behind=left,
        problem=problem,
    )
    result: Json = {
        "changed": rental is not None and rental.made,
        "calls": [question.described() for question in target.table.asked(rented=False)],
        "cost": report["cost"],
        "report": report,
        "markdown": markdown(report),
        "paths": _written(task, report),
    }
    _print(task, report, result["paths"])
    if not report["all_match"]:
        raise _not_all(report, result)
    return result


def _unable(target: VerifyTarget, order: RentalOrder | None, recording: Recording) -> str:
    """Why the account cannot rent this, by its own answers; a sentence's end."""
    script = boot_script(target.table, order.lane) if order is not None else None
    why = script.unable(recording.replies) if script is not None else ""
    return f"nothing was rented: {why}" if why else ""


def _make_good(task: Task, cloud: Cloud, order: RentalOrder | None) -> list[str]:
    """End what a call that was killed has left. Without ``rent`` only if this host has recorded a launch."""
    if order is None and not launched_before(task, cloud):
        return []
    return end_all(task, cloud)


def _cost(rental: Rental | None) -> dict[str, str]:
    if rental is None or rental.paid is None:
        return {}
    paid = rental.paid
    return {
        "machine": paid.offer.instance_type,
        "price_hour": print_money(paid.price_hour),
        "spent_about": print_money(rental.spent()),
        "max_cost": print_money(paid.cap),
    }


def _is_own(api: Api) -> bool:
    return not api.base_url.startswith(_VENDORS)


def _written(task: Task, report: Json) -> list[str]:
    """The Markdown at ``path`` and the JSON beside it."""
    path = task.params["path"]
    if not path:
        return []
    stem, ending = os.path.splitext(path)
    texts = {path if ending else f"{path}.md": markdown(report), f"{stem}.json": json.dumps(report, indent=2) + "\n"}
    if len(texts) < 2:
        raise errors.InvalidInput(f"{task.called('path')} must not end with .json: the JSON is written beside the Markdown.")
    for name, text in texts.items():
        replace(name, text.encode())
    return list(texts)


def _print(task: Task, report: Json, paths: t.Sequence[str]) -> None:
    for one in report["left_behind"]:
        task.progress(f"LEFT BEHIND AND BILLED: {one}")
    task.progress(summary(report))
    for row in failing(report):
        task.progress(f"  {row['id']}: expected {row['expected']}, {row['outcome']}: {row['seen']}. {row['consequence']}")
    for path in paths:
        task.progress(f"  written: {path}")


def _not_all(report: Json, result: Json) -> errors.TgpError:
    first = f"Left behind and billed: {', '.join(report['left_behind'])}. " if report["left_behind"] else ""
    problem = f" The paid part ended early: {report['problem']}." if report["problem"] else ""
    names = ", ".join(row["id"] for row in failing(report)) or "none"
    error = errors.TgpError(
        f"{first}{summary(report)}. Not as expected: {names}.{problem}",
        remedy="Compare your power service with its contract in docs/reference/clouds.md."
        if report["service"] == OWN
        else "Attach the report to an issue; it holds no secret, address or id.",
    )
    error.result = result
    return error
