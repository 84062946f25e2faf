# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Vast checks before it makes a contract of an offer, and the making."""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing as t
from decimal import Decimal

from . import vast_life as life
from .vast_account import Account, living
from .vast_errors import Refused, invalid, no_such_ask
from .vast_rows import disk_hour, premium_hour
from .world import Machine, Offer, World

LEAST_DISK, LONGEST_LABEL, LONGEST_IMAGE = 8, 256, 1024
LONGEST_SCRIPT, LONGEST_VARIABLE, LONGEST_ENVIRONMENT, MOST_PORTS = 4048, 256, 32768, 64
HIGHEST_PORT, FIRST_IDENTITY = 65535, 70000  # from the latter on: some free port of the host, the same inside and outside
VM_IMAGES = "docker.io/vastai/kvm:"
_RUNTYPES = {"args", "ssh", "ssh_proxy", "ssh_direct", "ssh_direc", "jupyter", "jupyter_proxy", "jupyter_direct", "jupyter_direc"}
_PORT = re.compile(r"-p\s+(?:\d+:)?(\d+)(?:/(tcp|udp))?")


@dataclasses.dataclass
class CreateRequest:
    """A checked request. ``ports`` are like 22/tcp, identity ports like 70000/tcp; ``price`` None = on demand."""

    image: str
    disk: float
    label: str | None
    variables: dict[str, str]
    options: dict[str, str]
    ports: list[str]
    onstart: str
    arguments: list[str]
    runtype: str
    price: Decimal | None
    vm: bool
    running: bool
    cancel: bool


def create(world: World, number: int, body: t.Any) -> dict[str, t.Any]:
    """Make a contract of the offer; the answer, or the documented refusal. The caller holds the lock."""
    spec, account = _checked(body), Account.of(world)
    offer = next((one for one in world.offers if one.cloud == "vast" and one.type == str(number)), None)
    if offer is None:
        raise no_such_ask(number, gone=False)
    if spec.price is not None and not Decimal("0.001") <= spec.price <= 128:
        raise Refused(400, "invalid_price", "price must be between 0.001 and 128 $/hr.")
    if offer.stock <= 0:
        raise no_such_ask(number, gone=spec.cancel)
    if spec.disk > offer.details["row"]["disk_space"]:
        raise invalid(f"disk: {spec.disk:g} GB is more than the {offer.details['row']['disk_space']:g} GB that are free.")
    if spec.vm:
        _check_vm(spec, offer, account)
    _check_money(world, account, offer, spec)
    if spec.price is not None and spec.price < offer.details["min_bid"]:
        machine = world.store(_machine(world, account, offer, spec), disk_hour(offer, spec.disk))
        machine.details["intended"] = "stopped"
        said = f"Bid {spec.price} is below the minimum of {offer.details['min_bid']}."
        raise Refused(account.switches.low_bid_status, "bid_too_low", said, new_contract=int(machine.id))
    if spec.running and account.switches.start_failures > 0:
        account.switches.start_failures -= 1
        if spec.cancel:
            raise no_such_ask(number, gone=True)
        spec.running = False
    machine = _machine(world, account, offer, spec)
    if spec.running:
        world.rent(machine)
    else:
        world.store(machine, disk_hour(offer, spec.disk))
        machine.details["intended"] = "stopped"
    return {"success": True, "new_contract": int(machine.id), "instance_api_key": machine.details["key"]}


def _checked(body: t.Any) -> CreateRequest:
    """Form and limits of every field."""
    if not isinstance(body, dict):
        raise invalid("the body must be an object")
    if body.get("client_id") != "me":
        raise invalid("client_id must be 'me'")
    image = body.get("image")
    if body.get("template_hash_id"):
        raise invalid("template_hash_id: no such template")
    if not isinstance(image, str) or not image or len(image) > LONGEST_IMAGE:
        raise invalid("image is required: 1 to 1024 characters")
    disk = body.get("disk", LEAST_DISK)
    if isinstance(disk, bool) or not isinstance(disk, (int, float)) or not disk >= LEAST_DISK:
        raise invalid(f"disk must be a number of at least {LEAST_DISK} GB")
    label = body.get("label")
    if label is not None and (not isinstance(label, str) or len(label) > LONGEST_LABEL):
        raise invalid(f"label must be text of at most {LONGEST_LABEL} characters")
    variables, options = _environment(body.get("env"))
    onstart, arguments = _script(body)
    runtype = body.get("runtype") or "ssh"
    if not isinstance(runtype, str) or not set(runtype.split()) <= _RUNTYPES:
        raise invalid(f"runtype: unknown type {runtype!r}")
    target = body.get("target_state", "running")
    if target not in ("running", "stopped"):
        raise invalid("target_state must be running or stopped")
    price = body.get("price")
    if price is not None and (isinstance(price, bool) or not isinstance(price, (int, float))):
        raise Refused(400, "invalid_price", "price must be a number.")
    for name in ("vm", "cancel_unavail"):
        if not isinstance(body.get(name), (bool, type(None))):
            raise invalid(f"{name} must be true or false")
    vm = bool(body.get("vm")) or image.startswith(VM_IMAGES)
    if body.get("volume_info"):
        raise invalid("volume_info: virtual machines have no volumes" if vm else "volume_info: no such volume")
    cancel = body.get("cancel_unavail")
    return CreateRequest(
        image=image,
        disk=float(disk),
        label=label,
        variables=variables,
        options=options,
        ports=_ports(options, runtype),
        onstart=onstart,
        arguments=arguments,
        runtype=runtype,
        price=None if price is None else Decimal(str(price)),
        vm=vm,
        running=target == "running",
        cancel=(target == "running" and price is None) if cancel is None else cancel,
    )


def _environment(env: t.Any) -> tuple[dict[str, str], dict[str, str]]:
    """Variables, and docker's options. Text instead of an object is taken and not applied."""
    if env is None or isinstance(env, str):
        return {}, {}
    if not isinstance(env, dict):
        raise invalid("env must be an object")
    found = {str(name): value if isinstance(value, str) else str(value) for name, value in env.items()}
    for name, value in found.items():
        if len(name) > LONGEST_VARIABLE or len(value) > LONGEST_VARIABLE:
            raise invalid(f"env: {name[:40]} is longer than {LONGEST_VARIABLE} characters")
    if sum(len(name) + len(value) for name, value in found.items()) > LONGEST_ENVIRONMENT:
        raise invalid(f"env is longer than {LONGEST_ENVIRONMENT} characters")
    options = {name: value for name, value in found.items() if name.startswith("-") and not name.startswith("-e ")}
    if wrong := [name for name in options if name.split()[0] not in ("-p", "-h", "-v", "-n")]:
        raise invalid(f"env: docker option {wrong[0][:40]} is not supported")
    variables = {name: value for name, value in found.items() if not name.startswith("-")}
    for name in (name for name in found if name.startswith("-e ")):
        key, _equals, value = name[3:].strip().partition("=")
        variables[key] = value
    return variables, options


def _script(body: dict[str, t.Any]) -> tuple[str, list[str]]:
    onstart, listed, text = body.get("onstart") or "", body.get("args") or [], body.get("args_str") or ""
    if isinstance(listed, str):
        listed = [listed]
    if not isinstance(onstart, str) or not isinstance(text, str) or not isinstance(listed, list):
        raise invalid("onstart and args_str must be text, args a list")
    arguments = [str(one) for one in listed] + (shlex.split(text) if text else [])
    if len(onstart) + len(text) + sum(len(str(one)) + 1 for one in listed) > LONGEST_SCRIPT:
        raise invalid(f"onstart and args together are longer than {LONGEST_SCRIPT} characters")
    return onstart, arguments


def _ports(options: dict[str, str], runtype: str) -> list[str]:
    found = []
    for name in options:
        if name.startswith("-p"):
            match = _PORT.fullmatch(name.strip())
            if match is None:
                raise invalid(f"env: {name[:40]} is not a port mapping")
            if not (1 <= int(match[1]) <= HIGHEST_PORT or int(match[1]) >= FIRST_IDENTITY):
                raise invalid(f"env: {name[:40]}: a port is 1 to {HIGHEST_PORT}, an identity port {FIRST_IDENTITY} or more")
            found.append(f"{int(match[1])}/{match[2] or 'tcp'}")
    if runtype.startswith(("ssh", "jupyter")):
        found.append("22/tcp")
    if runtype.startswith("jupyter"):
        found.append("8080/tcp")
    ports = list(dict.fromkeys(found))
    if len(ports) > MOST_PORTS:
        raise invalid(f"at most {MOST_PORTS} ports can be open")
    return ports


def _check_vm(spec: CreateRequest, offer: Offer, account: Account) -> None:
    if not spec.image.startswith(VM_IMAGES):
        raise invalid(f"image: a virtual machine needs an image of {VM_IMAGES}*")
    if not offer.details["row"]["vms_enabled"]:
        raise invalid("This machine does not support virtual machines.")
    if not spec.runtype.startswith("ssh"):
        raise invalid("runtype: virtual machines can only be reached by ssh")
    if any(name.startswith("-v") for name in spec.options):
        raise invalid("env: virtual machines have no volumes")
    if not account.keys():
        raise Refused(400, "no_ssh_key_for_vm", "A virtual machine needs an SSH key in your account before it is created.")


def _check_money(world: World, account: Account, offer: Offer, spec: CreateRequest) -> None:
    gpus = offer.price_hour if spec.price is None else spec.price
    hour = gpus + premium_hour(offer, bid=spec.price is not None) + disk_hour(offer, spec.disk)
    if account.left(world) <= 0:
        raise Refused(400, "insufficient_credit", "Your account lacks credit; see the billing page.")
    limit = account.switches.spend_limit
    if limit and sum((machine.rate() for machine in living(world)), hour) > limit:
        raise Refused(400, "spend_rate_limit", f"New accounts can spend at most ${limit} per hour.")


def _machine(world: World, account: Account, offer: Offer, spec: CreateRequest) -> Machine:
    number, now = account.next_contract(), world.clock.now()
    facts = offer.details["row"]
    key, host = f"{world.random.getrandbits(256):064x}", 20 + facts["machine_id"] % 200
    base = 40_000 + (number * 64) % 20_000
    outside = {port: str(base + index) for index, port in enumerate(spec.ports) if index < facts["direct_port_count"]}
    inside = {port: _inside(port, outside.get(port)) for port in spec.ports}
    public = f"203.0.113.{host}"
    hostname = next((name[2:].strip() for name in spec.options if name.startswith("-h")), f"C.{number}")
    details: dict[str, t.Any] = {
        "system": "ubuntu" if spec.vm else "container",
        "addresses": (public, f"172.17.{number // 250 % 250}.{number % 250 + 2}"),
        "image": spec.image,
        "runtype": spec.runtype,
        "onstart": spec.onstart,
        "disk": spec.disk,
        "bid": spec.price,
        "premium": premium_hour(offer, bid=spec.price is not None),
        "label": spec.label,
        "image_args": spec.arguments,
        "extra_env": [*spec.variables.items(), *spec.options.items()],
        "wanted_ports": list(inside.values()),
        "mapped": {inside[port]: free for port, free in outside.items()},
        "key": key,
        "intended": "running",
        "queued": False,
        "outbid": False,
        "up": None,
        "booted": now.timestamp(),
        "end": now.timestamp() + facts["duration"],
        "ssh_keys": [dict(one) for one in account.keys()],
    }
    if spec.vm:
        details["environment"] = account.variables | spec.variables
    else:
        details["command"] = _command(spec)
        details["when_done"] = "exit" if spec.runtype == "args" else "stay"  # Vast's own start-up goes on after onstart
        details["ports"] = [int(port.split("/")[0]) for port in inside.values()]
        given = {f"VAST_{port.split('/')[1].upper()}_PORT_{port.split('/')[0]}": free for port, free in outside.items()}
        given |= {"PUBLIC_IPADDR": public, "CONTAINER_ID": str(number), "VAST_CONTAINERLABEL": f"C.{number}"}
        details["environment"] = {**account.variables, **spec.variables, **given, "CONTAINER_API_KEY": key}
    script = spec.onstart if spec.vm and spec.onstart.startswith("#!") else None  # a guest runs only what has a shebang
    name = spec.label or ""
    machine = Machine(str(number), "vast", name, hostname, offer, now, payload=script, details=details)
    machine.traffic_prices = offer.details["traffic"]
    life.follow(world, machine)
    return machine


def _inside(port: str, outside: str | None) -> str:
    """The port of the machine itself: for an identity port the one that the host has free."""
    number, _slash, protocol = port.partition("/")
    return f"{outside}/{protocol}" if outside and int(number) >= FIRST_IDENTITY else port


def _command(spec: CreateRequest) -> str:
    """What the container runs: the start script, or its entry point with the arguments."""
    if spec.runtype != "args":
        return spec.onstart
    shell = spec.onstart.strip() in ("/bin/sh", "/bin/bash", "sh", "bash", "")
    if shell and len(spec.arguments) == 2 and spec.arguments[0] == "-c":
        return spec.arguments[1]
    return " ".join(part for part in (spec.onstart, shlex.join(spec.arguments)) if part)
