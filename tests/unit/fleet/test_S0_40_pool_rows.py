# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of status for classes, pools and requests, and what each says comes next."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, Ledger, PausedPool, Phase, Pool, Specs, SpendingBudget
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.budgets import open_purses
from ansible_collections.tgp.gpu.plugins.module_utils.reports.pool_rows import Known, class_rows, pool_rows, tables

from .build import CAPABILITIES, NOON, at, claim, node_class, pool, seen, specs

A, B, C = (f"tgp-a1b2c3d4-p-0000{letter}" for letter in "abc")
IDLE = at("11:55")


def known(*claims: t.Any, wanted: Specs | None = None, paused: tuple[PausedPool, ...] = ()) -> Known:
    documents = wanted or specs()
    world = seen(claims=claims)
    purses = open_purses(documents, Settings(), Ledger(), claims, NOON, CAPABILITIES)
    return Known(documents, world, tuple(claims), purses, {one.pool: one for one in paused})


def row(*claims: t.Any, **more: t.Any) -> dict[str, t.Any]:
    (only,) = pool_rows(known(*claims, **more))
    return only


def test_S0_40_status_has_a_line_for_each_class_and_pool() -> None:
    budget = SpendingBudget("day", Decimal(5))
    documents = specs(
        pool(max_nodes=3, replicas=2, budget=budget),
        pool("r", request=True, node_class="d"),
        classes=(node_class(max_nodes=4, max_hourly_cost=Decimal("2.50")), node_class("d")),
    )
    going = claim(B, Phase.TERMINATING, deletion=Deletion("Expired", NOON))
    there = known(claim(A, idle_since=IDLE), going, claim(C, Phase.JOINING), wanted=documents)
    mine, request = pool_rows(there)
    assert (mine["name"], mine["kind"], mine["node_class"], mine["wanted"], mine["max_nodes"]) == (
        "default/p",
        "GPUNodePool",
        "c",
        2,
        3,
    )
    assert (mine["ready"], mine["launching"], mine["terminating"], mine["price_hour"]) == (1, 1, 1, "1.26")
    assert (mine["budget"], mine["spent"], mine["period"], mine["idle_since"]) == ("5.00", "1.26", "day", "2026-08-20T11:55:00Z")
    assert (request["kind"], request["wanted"], request["ready"], request["budget"]) == ("GPURequest", 1, 0, "")
    first, second = class_rows(there)
    assert (first["name"], first["pools"], first["ready"], first["max_nodes"], first["max_hourly_cost"]) == ("c", 1, 1, 4, "2.50")
    assert (second["name"], second["price_hour"], second["max_hourly_cost"]) == ("d", "0.00", "")
    lines = tables([first, second], [mine, request])
    assert lines[0].split() == ["class", "pools", "ready", "launching", "ending", "max", "$/h", "max", "$/h"], (
        "no class has a budget"
    )
    assert lines[4] == "" and "$1.26 of $5.00 per day" in lines[7] and tables([], []) == []


@pytest.mark.parametrize(
    ("facts", "claims", "then"),
    [
        ({}, [], ""),
        ({"min_nodes": 2}, [claim(A)], "launch 1"),
        ({"min_nodes": 1}, [claim(A, Phase.JOINING)], f"join {A}"),
        ({}, [claim(A), claim(B, deletion=Deletion("Empty", NOON))], f"terminate {B}"),
        ({}, [claim(A), claim(B)], ""),
        ({}, [claim(A, idle_since=IDLE), claim(B)], f"terminate {A} (Empty) from 2026-08-20T12:05:00Z on"),
        ({"min_age": 7200}, [claim(A, idle_since=IDLE)], f"terminate {A} (Empty) from 2026-08-20T13:10:00Z on"),
        ({"min_nodes": 1}, [claim(A, idle_since=IDLE)], ""),
        ({"consolidation_policy": "Never"}, [claim(A, idle_since=IDLE)], ""),
        ({"consolidate_after": None}, [claim(A, idle_since=IDLE)], ""),
        ({"replicas": 0, "consolidation_policy": "Never"}, [claim(A, idle_since=IDLE)], f"terminate {A} (Empty) from 2026-08-20T11:55:00Z on"),
        ({"expire_after": 7200}, [claim(A)], f"terminate {A} (Expired) from 2026-08-20T13:00:00Z on"),
    ],
)  # fmt: skip
def test_what_comes_next(facts: dict[str, t.Any], claims: list[t.Any], then: str) -> None:
    assert row(*claims, wanted=specs(pool(**facts)))["next"] == then


def test_what_keeps_a_pool_from_going_on() -> None:
    pause = PausedPool("default/p", "it is paused: maintenance", 1, Decimal(1))
    assert row(claim(A, deletion=Deletion("Empty", NOON)), paused=(pause,))["next"] == "nothing: it is paused: maintenance"
    faulty = dataclasses.replace(specs(), pools=(), paused={"default/p": "its document is faulty"})
    assert row(claim(A), wanted=faulty)["next"] == "no launch: its document is faulty"
    gone = dataclasses.replace(specs(), pools=())
    found = row(claim(A), wanted=gone)
    assert (found["next"], found["node_class"], found["max_nodes"]) == (
        "no document: its machines go by their own limits",
        "c",
        None,
    )
    many = [claim(name, deletion=Deletion("Empty", NOON)) for name in (C, A, B)]
    assert row(*many)["next"] == f"terminate {A} and 2 more"
    closed = dataclasses.replace(specs(), deleted=frozenset({"default/p"}))
    assert row(wanted=dataclasses.replace(closed, pools=(pool(min_nodes=2),)))["wanted"] == 0


def test_of_several_idle_machines_the_dearest_goes_first() -> None:
    later = at("11:59")
    dear = claim(B, idle_since=later, price_paid=Decimal(3))
    found = row(claim(A, idle_since=IDLE), dear, wanted=specs(Pool("default", "p", "c", min_nodes=1)))
    assert found["next"].startswith(f"terminate {B} (Empty) from ") and found["idle_since"] == "2026-08-20T11:55:00Z"
    assert NOON - later == timedelta(minutes=1)
