# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dummy cloud's own side: its API over a world of the sandbox."""

from __future__ import annotations

import itertools
import typing as t
from decimal import Decimal

import flask

from sandbox.world import Machine, Offer, World

WORDS = {"booting": "coming", "active": "up", "unhealthy": "broken", "preempted": "broken", "terminating": "going"}
_COUNT = itertools.count(1)


def dummy_offer(kind: str, place: str, price: str, gpus: int = 1, stock: int = 3) -> Offer:
    return Offer("dummy", kind, place, Decimal(price), gpus, "RTX4090", 24_564, stock, 20.0)


def app(world: World) -> flask.Flask:
    """Its whole API: offers, and machines to list, show, make and end."""
    api = flask.Flask("dummy")

    @api.before_request
    def check_key() -> t.Any:
        if flask.request.headers.get("x-key") != world.secrets["DUMMY_API_KEY"]:
            return {"code": "bad_key", "message": "nobody knows this key"}, 401
        return None

    def listed() -> list[Machine]:
        return [one for one in world.machines.values() if one.cloud == "dummy" and one.destroyed is None]

    def show(one: Machine) -> dict[str, t.Any]:
        return {
            "id": one.id,
            "name": one.name,
            "state": WORDS[one.state],
            "made": int(one.created.timestamp()),
            "price": str(one.offer.price_hour),
            "ip": one.ip,
            "place": one.offer.region,
            "kind": one.offer.type,
            "tags": one.details["tags"],
        }

    def missing() -> t.Any:
        return {"code": "no_such_machine", "message": "there is no such machine"}, 404

    @api.get("/offers")
    def offers() -> t.Any:
        return [
            {
                "id": f"{one.type}@{one.region}",
                "kind": one.type,
                "place": one.region,
                "gpu": one.model,
                "gpus": one.gpu_count,
                "memory_mib": one.memory_mib,
                "price": str(one.price_hour),
                "free": one.stock,
            }
            for one in world.offers
            if one.cloud == "dummy"
        ]

    @api.get("/machines")
    def machines() -> t.Any:
        with world.lock:
            return [show(one) for one in listed()]

    @api.get("/machines/<identity>")
    def machine(identity: str) -> t.Any:
        with world.lock:
            return next((show(one) for one in listed() if one.id == identity), None) or missing()

    @api.post("/machines")
    def make() -> t.Any:
        body = flask.request.get_json()
        offer = next(one for one in world.offers if one.cloud == "dummy" and f"{one.type}@{one.region}" == body["offer"])
        number = next(_COUNT)
        details = {"tags": body["tags"], "shelf": body["shelf"], "addresses": (f"203.0.113.{number}", f"10.77.0.{number}")}
        made = Machine(
            f"d-{number}", "dummy", body["name"], body["name"], offer, world.clock.now(), payload=body["script"], details=details
        )
        try:
            world.rent(made)
        except LookupError:
            return {"code": "sold_out", "message": "somebody was faster"}, 409
        return {"id": made.id}, 201

    @api.delete("/machines/<identity>")
    def end(identity: str) -> t.Any:
        with world.lock:
            found = next((one for one in listed() if one.id == identity), None)
        if found is None:
            return missing()
        world.release(found)
        found.state, found.destroyed = "terminated", found.ended
        return {}, 200

    return api
