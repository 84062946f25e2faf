# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stays, and is billed, when a machine is gone: its disk, where a person has switched ``autoDelete`` off, and an address that a person
has made static."""

from __future__ import annotations

import re
import typing as t

from ...core import errors
from ...core.http import path_segment
from ...model import Extra
from .api import Calls, is_absent
from .records import MANAGED, identity_of, moment

DISK, ADDRESS = "disk", "address"
DISK_FILTER = f"labels.{MANAGED}:*"
_OURS = re.compile(r"tgp-[a-z0-9-]+")
_PATHS = {DISK: "/zones/{}/disks/{}", ADDRESS: "/regions/{}/addresses/{}"}


def unused(calls: Calls) -> list[Extra]:
    """Disks and static addresses of ours that nothing uses. They are called like the machine that they were made for."""
    disks = calls.aggregated("disks", "compute#diskAggregatedList", filter=DISK_FILTER)
    addresses = calls.aggregated("addresses", "compute#addressAggregatedList")
    return [*_read(calls, DISK, disks), *_read(calls, ADDRESS, addresses)]


def _read(calls: Calls, kind: str, entries: t.Sequence[tuple[str, t.Any]]) -> t.Iterator[Extra]:
    operation, expect = f"GET of each {kind}", calls.api.expect
    for place, entry in entries:
        expect(entry, dict, operation, f"a {kind}")
        name = expect(entry.get("name") or None, str, operation, f"name of a {kind}")
        users = expect(entry.get("users", []), list, operation, f"users of {name}")
        labelled = kind == ADDRESS or MANAGED in expect(entry.get("labels", {}), dict, operation, f"labels of {name}")
        if labelled and not users and _OURS.fullmatch(name):
            yield Extra("gcp", kind, identity_of(place, name), name, moment(entry.get("creationTimestamp")))


def discard(calls: Calls, extra: Extra) -> None:
    """Success also when it is gone; Conflict while something uses it."""
    if extra.kind not in _PATHS:
        raise errors.InvalidInput(f"gcp: there is nothing of the kind {extra.kind!r}.")
    place, _slash, name = extra.id.partition("/")
    path = _PATHS[extra.kind].format(path_segment(place, "place"), path_segment(name, extra.kind))
    try:
        calls.send("DELETE", path, idempotent=True)
    except errors.NotFound as error:
        if not is_absent(error, path):
            raise
    except errors.ApiError as error:
        if error.code != "resourceInUseByAnotherResource":
            raise
        raise errors.Conflict(
            f"gcp: {extra.kind} {extra.id} is in use.", remedy="It can go once no machine has it.", service="gcp"
        ) from error
