# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SANDBOX_URL: the truth of the world as JSON, and the levers that move it."""

from __future__ import annotations

import ipaddress
import typing as t
from decimal import Decimal

import flask

from . import health_agent, strangers
from .behaviour import Behaviour
from .cluster import KubeError
from .dcgm_exporter import FAULTS
from .faults import Fault
from .market import MarketError, offers, set_price, set_stock
from .mesh_proxy import set_busy
from .picture import device_picture, machine_picture, picture, text
from .tailnet import JoinRefused
from .world import Machine
from .wsgi import Service

if t.TYPE_CHECKING:
    from .box import Box


def app(box: Box) -> flask.Flask:
    """The WSGI application of one sandbox."""
    flask_app = Service("sandbox-control")

    def rules() -> list[t.Any]:
        body = flask.request.get_json(force=True)
        return body if isinstance(body, list) else [body]

    @flask_app.errorhandler(400)
    def bad_json(_error: Exception) -> t.Any:
        return refuse(400, "the body is not JSON")

    @flask_app.errorhandler(404)
    @flask_app.errorhandler(405)
    def no_lever(error: t.Any) -> t.Any:
        rules = (rule for rule in flask_app.url_map.iter_rules() if rule.endpoint != "static")
        known = sorted(f"{method} {rule.rule}" for rule in rules for method in (rule.methods or set()) - {"HEAD", "OPTIONS"})
        return refuse(error.code, f"there is no {flask.request.method} {flask.request.path} here; there are {', '.join(known)}")

    @flask_app.get("/world")
    def show() -> t.Any:
        return picture(box)

    @flask_app.get("/faults")
    def faults() -> t.Any:
        return {"faults": [fault.public() for fault in box.faults.all()]}

    @flask_app.post("/faults")
    def add_faults() -> t.Any:
        try:
            parsed = [Fault.parse(rule) for rule in rules()]
        except ValueError as error:
            return refuse(400, str(error))
        unknown = {fault.service for fault in parsed} - {"", *box.apps}
        if unknown:
            return refuse(400, f"there is no service {', '.join(sorted(unknown))}; services are {', '.join(sorted(box.apps))}")
        for fault in parsed:
            box.faults.add(fault)
        return faults(), 201

    @flask_app.delete("/faults")
    def clear_faults() -> t.Any:
        box.faults.clear()
        return faults()

    @flask_app.post("/behaviours")
    def add_behaviours() -> t.Any:
        try:
            parsed = [Behaviour.parse(rule) for rule in rules()]
        except ValueError as error:
            return refuse(400, str(error))
        for rule in parsed:
            box.machines.behaviours.add(rule)
        return {"added": len(parsed)}, 201

    @flask_app.get("/clock")
    def clock() -> t.Any:
        return {"now": text(box.world.clock.now()), "speed": box.world.clock.speed}

    @flask_app.post("/clock")
    def move_clock() -> t.Any:
        body = flask.request.get_json(force=True)
        wanted = body if isinstance(body, dict) else {}
        if not wanted or set(wanted) - {"advance", "speed"} or not all(_is_number(value) for value in wanted.values()):
            return refuse(400, 'send {"advance": <seconds>} or {"speed": <factor>} or both')
        try:
            box.world.clock.run_at(wanted.get("speed", box.world.clock.speed), wanted.get("advance", 0))
        except ValueError as error:
            return refuse(400, str(error))
        return clock()

    _machine_levers(flask_app, box)
    _gpu_levers(flask_app, box)
    _stranger_levers(flask_app, box)
    _device_levers(flask_app, box)
    _market_levers(flask_app, box)
    return flask_app


def refuse(status: int, message: str) -> t.Any:
    return {"message": message}, status


def _machine_levers(flask_app: flask.Flask, box: Box) -> None:
    """What can be done to one machine."""

    @flask_app.post("/machines/<name>/<what>")
    def strike(name: str, what: str) -> t.Any:
        if what not in ("kill", "vanish", "busy", "traffic", "condition", "gpus", "power"):
            known = (
                "be killed (kill), be taken back by its cloud (vanish), be busy or not (busy), have traffic (traffic), be switched by its "
                "owner (power), and its Node have a condition of a health agent (condition) and fewer GPUs (gpus)"
            )
            return refuse(404, f"a machine can {known}")
        if what == "power":
            return _power(box, name, flask.request.get_json(force=True))
        machine = find(box, name)
        if machine is None:
            return refuse(404, f"no machine that runs is called {name!r}")
        takes_body = what in ("busy", "traffic", "condition", "gpus") and flask.request.get_data()
        body = flask.request.get_json(force=True) if takes_body else {}
        if what in ("condition", "gpus"):
            if problem := _ail(box, machine, what, body if isinstance(body, dict) else {}):
                return refuse(400, problem)
        elif what == "traffic":
            sizes = body if isinstance(body, dict) else {}
            if not sizes or set(sizes) - {"down_gb", "up_gb"} or not all(_is_size(one) for one in sizes.values()):
                return refuse(400, 'send {"down_gb": <GB>} or {"up_gb": <GB>} or both')
            with box.world.lock:
                machine.transfer(*(Decimal(str(sizes.get(key, 0))) for key in ("down_gb", "up_gb")))
        elif what == "busy":
            busy = body.get("busy", True) if isinstance(body, dict) else None
            if not isinstance(busy, bool):
                return refuse(400, 'send {"busy": true} or {"busy": false}')
            set_busy(machine, busy)
        else:
            box.machines.strike(machine, "crash" if what == "kill" else "vanish")
        return machine_picture(machine, box.world.clock.now())


def _power(box: Box, name: str, body: t.Any) -> t.Any:
    """The owner of an own machine switches it by hand, or its power service loses track of it."""
    machine = box.world.machines.get(name)
    if machine is None or machine.cloud != "webhook":
        return refuse(404, f"there is no own machine {name!r}")
    wanted = body if isinstance(body, dict) else {}
    if not wanted or set(wanted) - {"on", "known"} or not all(isinstance(value, bool) for value in wanted.values()):
        return refuse(400, 'send {"on": true}, {"on": false}, or "known": false while its power service cannot tell its state')
    if "known" in wanted:
        machine.details["status_unknown"] = not wanted["known"]
    if "on" in wanted:
        (box.world.power_on if wanted["on"] else box.world.power_off)(machine)
    return machine_picture(machine, box.world.clock.now())


def _gpu_levers(flask_app: flask.Flask, box: Box) -> None:
    """How much the GPUs of a node are used, and their XIDs, as its dcgm-exporter has them (sandbox/dcgm_exporter.yml)."""

    @flask_app.post("/gpus/<node>")
    def use(node: str) -> t.Any:
        body = flask.request.get_json(force=True)
        wanted = body if isinstance(body, dict) else {}
        percent = wanted.get("percent", [])
        shaped = isinstance(percent, list) and all(_is_number(one) and 0 <= one <= 100 for one in percent)
        fault, mig, xids = wanted.get("fault", ""), wanted.get("mig", False), wanted.get("xids", {})
        numbered = isinstance(xids, dict) and all(gpu.isdigit() and type(xid) is int and xid >= 0 for gpu, xid in xids.items())
        if (
            not wanted
            or set(wanted) - {"percent", "fault", "mig", "xids"}
            or not shaped
            or fault not in ("", *FAULTS)
            or not isinstance(mig, bool)
            or not numbered
        ):
            return refuse(400, f'send {{"percent": [40, 0]}}, "mig": true, "xids": {{"0": 79}}, or a "fault": {", ".join(FAULTS)}')
        if box.exporters is None:
            return refuse(409, "this world has no cluster of its own, so no exporter")
        box.exporters.use(node, *percent, mig=mig, fault=fault)
        for gpu, number in xids.items():
            box.exporters.xid(node, int(gpu), number)
        return {"node": node, "percent": percent, "mig": mig, "fault": fault, "xids": xids}


def _ail(box: Box, machine: Machine, what: str, body: dict[str, t.Any]) -> str:
    """Write what is wrong to the Node of a machine; why that cannot be, empty when it was done."""
    client, now = box.cluster.admin(), box.world.clock.now()
    texts = {key: body.get(key, "") for key in ("type", "status", "reason", "message")}
    try:
        if what == "condition":
            named = bool(texts["type"]) and texts["status"] in ("True", "False", "Unknown")
            if set(body) - set(texts) or not named or not all(isinstance(text, str) for text in texts.values()):
                return 'send {"type": "KernelDeadlock", "status": "True"}, and reason and message if you like'
            health_agent.report(client, machine.name, texts["type"], texts["status"], now, texts["reason"], texts["message"])
        else:
            if not {"left"} <= set(body) <= {"left", "capacity"} or not all(type(one) is int and one >= 0 for one in body.values()):
                return 'send {"left": <GPUs that are allocatable>}, and capacity where that stays higher'
            health_agent.show_gpus(client, machine.name, body["left"], body.get("capacity"))
    except KubeError as error:
        return f"{machine.name} has no Node that could show it: {error}"
    return ""


def _stranger_levers(flask_app: flask.Flask, box: Box) -> None:
    """Others who use the same accounts."""

    @flask_app.post("/strangers")
    def rent() -> t.Any:
        body = flask.request.get_json(force=True)
        marks = body.get("marks") or {} if isinstance(body, dict) else None
        if not isinstance(marks, dict) or not all(isinstance(body.get(key), str) for key in ("cloud", "name")):
            return refuse(400, 'send {"cloud": "vast", "name": "tgp-a1b2c3d4-x-00000", "marks": {"cluster": "a1b2c3d4"}}')
        try:
            machine = strangers.rent(box, body["cloud"], body["name"], {str(key): str(value) for key, value in marks.items()})
            if body.get("node"):
                strangers.join(box, machine, str(body["node"]))
        except strangers.NotRented as error:
            return refuse(409, str(error))
        return machine_picture(machine, box.world.clock.now())

    @flask_app.post("/twins")
    def twin() -> t.Any:
        body = flask.request.get_json(force=True) if flask.request.get_data() else {}
        restored = body.get("restored", False) if isinstance(body, dict) else None
        if not isinstance(restored, bool):
            return refuse(400, 'send {"restored": true} or {"restored": false}')
        if box.kube is None:
            return refuse(409, "this world has no cluster of its own that could have a twin")
        return {"kubeconfig": box.twin(restored=restored)}


_JOIN = {"key": str, "hostname": str, "advertise_tags": list, "advertise_routes": list, "accept_routes": bool, "online": bool}
_JOIN_HINT = f'send {{"key": "tskey-auth-...", "hostname": "tgp-a1b2c3d4-x-00000"}}; there are also {", ".join(list(_JOIN)[2:])}'


def _device_levers(flask_app: flask.Flask, box: Box) -> None:
    """Nodes of the tailnet without any machine."""

    @flask_app.post("/devices")
    def join() -> t.Any:
        """Somebody logs in with a key; a refusal comes in the words of a node's log."""
        body = flask.request.get_json(force=True)
        spec = dict(body) if isinstance(body, dict) else {}
        if not {"key", "hostname"} <= set(spec) <= set(_JOIN) or not all(_fits(value, _JOIN[key]) for key, value in spec.items()):
            return refuse(400, _JOIN_HINT)
        if not all(_is_network(one) for one in spec.get("advertise_routes", [])):
            return refuse(400, "advertise_routes are networks like 10.1.0.0/16")
        online = spec.pop("online", True)
        with box.world.lock:
            try:
                device = box.tailnet.join(spec.pop("key"), spec.pop("hostname"), **spec)
            except JoinRefused as refusal:
                return refuse(409, str(refusal))
            device.online = online
            return device_picture(box.tailnet, device), 201

    @flask_app.post("/devices/<name>")
    def connect(name: str) -> t.Any:
        body = flask.request.get_json(force=True)
        online = body.get("online") if isinstance(body, dict) and set(body) == {"online"} else None
        if not isinstance(online, bool):
            return refuse(400, 'send {"online": true} or {"online": false}')
        with box.world.lock:
            found = [one for one in box.tailnet.devices() if name in (one.node_id, one.id, one.label)]
            if not found:
                return refuse(404, f"no device has the id or name {name!r}")
            box.tailnet.set_online(found[0].node_id, online)
            return device_picture(box.tailnet, found[0])


def _fits(value: t.Any, kind: type) -> bool:
    return isinstance(value, kind) and (not isinstance(value, list) or all(isinstance(one, str) for one in value))


def _is_network(value: str) -> bool:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return False
    return True


def _market_levers(flask_app: flask.Flask, box: Box) -> None:
    """What the clouds offer, and at what price."""

    @flask_app.get("/offers")
    def show_offers() -> t.Any:
        return {"offers": offers(box.world)}

    @flask_app.post("/prices")
    def prices() -> t.Any:
        return change(set_price)

    @flask_app.post("/stock")
    def stock() -> t.Any:
        return change(set_stock)

    def change(act: t.Callable[[t.Any, t.Any], t.Any]) -> t.Any:
        try:
            return {"offers": act(box.world, flask.request.get_json(force=True))}
        except MarketError as error:
            return refuse(error.status, str(error))


def find(box: Box, name: str) -> Machine | None:
    """The running machine with this id or name; the newest of several."""
    with box.world.lock:
        found = [m for m in box.world.machines.values() if name in (m.id, m.name, m.hostname) and m.ended is None]
    return max(found, key=lambda m: m.created, default=None)


def _is_size(value: t.Any) -> bool:
    return _is_number(value) and 0 <= value <= 1_000_000


def _is_number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
