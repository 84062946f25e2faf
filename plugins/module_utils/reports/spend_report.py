# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_report: the books and the claims in the desired form. Clouds are asked for images of Talos, for existing volumes,
and on demand for their bills, and for nothing else."""

from __future__ import annotations

import json
import typing as t
from datetime import date, datetime
from decimal import Decimal

from ..core.errors import InvalidInput, TgpError
from ..core.files import replace
from ..core.task import Task
from ..model import CloudChoice, Ledger, Volume
from ..observe.clients import cloud_credential
from ..observe.context import Context, open_context
from ..operations.ledger_archive import read_archive
from ..operations.talos_image import account_images
from ..planner.cost.cost import books, read_ledger
from ..planner.cost.spend_report import owned_parts, report
from ..planner.offers import account_volumes
from ..providers.disk_images import DiskImage, month_cost, storage_cost
from ..providers.registry import CAPABILITIES, ENTRIES
from ..store.records import ledger_key
from ..units.calendar import period_of, zone
from ..units.values import parse_time
from .page import page
from .provider_bills import ask, bills_data, bills_lines
from .status import spending
from .text import ImageCost, ImageCosts, as_csv, data, table, teams_csv, volumes_data, volumes_text

FORMATS = ("table", "json", "csv", "csv_teams", "html")


def report_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_report. Nothing but the file ``path`` is written, and that not in check mode."""
    params = task.params
    if params["format"] == "html" and not params["path"]:
        raise InvalidInput("A page needs a file.", remedy=f"Give {task.called('path')}, for example report.html.")
    task.read("time_zone", zone)
    context = open_context(task, documents_required=False, read_only=True)
    try:
        return _report(context)
    finally:
        context.close()


def _report(context: Context) -> dict[str, t.Any]:
    task, params, now = context.task, context.task.params, context.clock.now()
    zone_name, (first, last) = params["time_zone"], (task.called("since"), task.called("until"))
    since, until = moment(params["since"], zone_name, called=first), moment(params["until"], zone_name, called=last, end=True)
    if since and until and since >= until:
        raise InvalidInput(f"{first} {params['since']} is not before {last} {params['until']}.", remedy="Exchange them.")
    claims = context.store.claims()
    ledger = _ledger(context)
    last_moment = min(until or now, now)
    lines = books(ledger, claims, now, CAPABILITIES)
    totals = report(lines, since, last_moment, params["time_zone"])
    money, images = spending(context, ledger, claims, now), image_costs(context, since, last_moment)
    kept = volumes_data(*_volumes(context))
    bills = ask(context, claims, lines, totals) if params["provider_bills"] else ()
    result = {
        **data(totals, money, ledger.torn, context.cluster_id, images),
        "volumes": kept,
        "provider_bills": bills_data(bills) if params["provider_bills"] else None,
    }
    for place in ledger.torn:
        task.warn(f"A line of the ledger is torn; every sum is at least what is said: {place}")
    if params["format"] == "table":
        shown = [*table(totals, money, ledger.torn, images), *(f"  {text}" for text in filter(None, [volumes_text(kept)]))]
        shown += ["", *bills_lines(bills)] if bills else []
        text = "\n".join(shown) + "\n"
    elif params["format"] == "json":
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    elif params["format"] == "csv":
        text = as_csv(totals)
    elif params["format"] == "csv_teams":
        text = teams_csv(owned_parts(lines, totals.since, totals.until, totals.time_zone))
    else:
        text = page(totals, result, now, images)
    if not params["path"]:
        for line in text.splitlines():
            task.progress(line)
    changed = bool(params["path"]) and _write(task, params["path"], text.encode())
    return {"changed": changed, "report": result, "path": params["path"] or ""}


def _volumes(context: Context) -> tuple[list[Volume], tuple[str, ...]]:
    """The existing volumes that classes name, each once, and the providers whose volumes could not be read. A provider is asked only where
    a class names a volume of it."""
    rows: list[Volume] = []
    unread: list[str] = []
    for name, choices in sorted(account_volumes.wanted(context.specs).items()):
        try:
            rows += account_volumes.costs(choices, context.clients.volumes(name))
        except TgpError as error:
            unread.append(name)
            context.task.warn(f"The volumes of {name} could not be read, so what they cost is not known: {error}")
    return rows, tuple(unread)


def _ledger(context: Context) -> Ledger:
    """The books, with what was moved to the file ``archive``; a line that stands in both is one."""
    path = context.task.params["archive"]
    if not path:
        return context.records.ledger()
    lines, torn = context.store.ledger_records()
    here = {ledger_key(line) for line in lines}
    return read_ledger(
        [*lines, *(line for line in read_archive(path) if ledger_key(line) not in here)], [record.place for record in torn]
    )


def _write(task: Task, path: str, text: bytes) -> bool:
    """Write the file, unless it says so already; whether it changes."""
    try:
        with open(path, "rb") as file:
            if file.read() == text:
                return False
    except OSError:
        pass  # it is not there yet, or the writing below says what is wrong with it
    if not task.check_mode:
        replace(path, text, mode=0o644)
        task.progress(f"  written to {path}")
    return True


def moment(text: str | None, time_zone: str, *, called: str = "", end: bool = False) -> datetime | None:
    """A time, or a day of that place: its beginning, or (``end``) its end. InvalidInput for what is neither, by the name ``called``."""
    zone(time_zone)
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        try:
            return parse_time(text)
        except InvalidInput as error:
            raise InvalidInput(f"{called}: {error.message}" if called else error.message, remedy=error.remedy) from None
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=zone(time_zone))
    try:
        period = period_of("day", noon, time_zone)
    except OverflowError:
        raise InvalidInput(f"{text} has no end that could be counted.", remedy="Give a nearer day.") from None
    return period.end if end else period.start


# ---- images of Talos are in no ledger, so their providers are asked, where a class boots one; those that were removed are not known any more


def image_costs(context: Context, since: datetime | None, until: datetime) -> ImageCosts:
    """Those with the stamp of this cluster, and those that its classes name. One account that cannot be read hides no other."""
    found: list[ImageCost] = []
    problems: list[str] = []
    for (cloud, _project), (choice, named) in sorted(_accounts(context).items()):
        try:
            credential = cloud_credential(context.task, context.kube, cloud, choice)
            images, price, basis = account_images(context.task, choice, credential)
        except TgpError as error:
            problems.append(f"what images of Talos cost at {cloud} is unknown: {error.message}")
            continue
        own = [image for image in images if image.of.cluster == context.cluster_id or {image.id, image.link} & named]
        found += [_cost(cloud, image, price, basis, since, until) for image in own]
    return ImageCosts(tuple(found), tuple(problems))


def _accounts(context: Context) -> dict[tuple[str, str], tuple[CloudChoice, set[str]]]:
    """By cloud and project: how the account is reached, and the images that classes name in it."""
    accounts: dict[tuple[str, str], tuple[CloudChoice, set[str]]] = {}
    for choice in (choice for one in context.specs.classes.values() for choice in one.clouds if choice.enabled):
        setting = ENTRIES[choice.cloud].image_setting if choice.cloud in ENTRIES else ""
        if not setting or not {"imagePolicy", setting} & set(choice.settings):
            continue
        _choice, named = accounts.setdefault((choice.cloud, str(choice.settings.get("project") or "")), (choice, set()))
        named.update({str(choice.settings[setting])} if setting in choice.settings else ())
    return accounts


def _cost(cloud: str, image: DiskImage, price: Decimal, basis: str, since: datetime | None, until: datetime) -> ImageCost:
    cost = storage_cost(image.size, price, image.created, since, until)
    return ImageCost(cloud, image.name, image.created, cost, month_cost(image.size, price), basis)
