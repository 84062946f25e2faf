# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services of the sandbox as targets of provider_verify, and answers that deviate from the facts on their way to it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import json
import random
import typing as t
from urllib.parse import parse_qs, quote

import httpx
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState
from ansible_collections.tgp.gpu.plugins.module_utils.verify import ask
from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts import image_factory as factory_facts
from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts import webhook as webhook_facts
from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts.fact import Fact, FactOutcome, Question, Replies, Reply, Table
from ansible_collections.tgp.gpu.plugins.module_utils.verify.own_machines import NOBODY
from ansible_collections.tgp.gpu.plugins.modules import provider_verify

from sandbox import image_factory, tailscale
from sandbox.clock import SimClock
from sandbox.gcp_account import SECRET
from sandbox.tailnet import HEADSCALE, SAAS, Tailnet
from sandbox.world import Machine, World
from sandbox.wsgi import App, Environ, StartResponse
from tests.contract.clouds.stands import KEY, SPEED, LambdaStand, Stand, WebhookStand
from tests.contract.clouds.stands_gcp import GcpStand
from tests.contract.clouds.stands_paperspace import PaperspaceStand
from tests.contract.clouds.stands_runpod import RunpodStand
from tests.contract.clouds.stands_vast import VastStand
from tests.contract.clouds.stands_vultr import VultrStand

STANDS: dict[str, type[Stand]] = {
    kind.service: kind for kind in (GcpStand, LambdaStand, PaperspaceStand, RunpodStand, VastStand, VultrStand)
}
CLOUDS = tuple(STANDS)
VM = ("vast", "kubelet")
LIVES = (*((cloud, "") for cloud in CLOUDS), VM)  # machines that can be rented: cloud and lane, "" = the usual one
HEADSCALE_V2 = "headscale-0.30"  # serves Tailscale's API
OWN = "webhook"
OWN_MACHINES = (1, 2, 3, 4)  # of one, two facts at most can be false and not hide each other
SERVICES = (*CLOUDS, OWN, "tailscale", "headscale", HEADSCALE_V2, "image_factory")
_MESH_URL, _FACTORY_URL = "https://mesh.test", "https://factory.test"


# ---- deviations


@dataclasses.dataclass(frozen=True)
class Deviation:
    """What makes ``fact`` false: the answer to ``question``, changed."""

    fact: str
    question: Question
    change: t.Callable[[Reply], Reply]

    def meets(self, environ: Environ, replies: Replies) -> bool:
        """Whether a request is that question."""
        path, params = ask.filled(self.question, replies)
        asked = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        wanted = {name: [str(value)] for name, value in params.items() if value is not None}
        sent = environ.get("HTTP_AUTHORIZATION", "")
        bad = sent == ask.INVALID["authorization"]
        same = quote(environ.get("PATH_INFO", "")).endswith(path) and environ["REQUEST_METHOD"] == self.question.method
        probe = not sent and path.startswith("/node")  # which API a mesh speaks is asked without a credential
        return (
            same
            and asked == wanted
            and bad is not self.question.credential
            and not probe
            and _same_body(environ, self.question.json)
        )


def _same_body(environ: Environ, wanted: t.Any) -> bool:
    """The body of a search; it is put back for the emulator."""
    if wanted is None:
        return True
    body = environ["wsgi.input"].read()
    environ["wsgi.input"] = io.BytesIO(body)
    return bool(json.loads(body) == wanted)


class OwnCall(t.NamedTuple):
    """A question about an own machine as the power service gets it: the ``nth`` call of this path with this header."""

    path: str
    authorization: str
    nth: int = 1


class Deviating:
    """``app``, whose answers are changed by the deviations. ``own``: the calls of questions whose path is in words; ``pause`` passes the
    world's time before an answer."""

    def __init__(
        self,
        app: App,
        deviations: t.Sequence[Deviation],
        replies: Replies,
        own: t.Mapping[str, OwnCall],
        pause: t.Callable[[float], None],
    ) -> None:
        self._app, self._deviations, self._replies, self._own, self._pause = app, deviations, replies, own, pause
        self._sent: collections.Counter[OwnCall] = collections.Counter()
        self.struck: set[str] = set()

    def _met(self, environ: Environ) -> list[Deviation]:
        if not self._own:
            return [one for one in self._deviations if one.meets(environ, self._replies)]
        call = OwnCall(environ["PATH_INFO"], environ.get("HTTP_AUTHORIZATION", ""))
        self._sent[call] += 1
        nth = call._replace(nth=self._sent[call])
        return [one for one in self._deviations if self._own[one.question.name] == nth]

    def __call__(self, environ: Environ, start_response: StartResponse) -> t.Iterable[bytes]:
        met = self._met(environ)
        if not met:
            return self._app(environ, start_response)
        kept: list[t.Any] = []
        body = b"".join(self._app(environ, lambda status, headers, *_more: kept.extend((status, headers))))
        media = next((value for name, value in kept[1] if name.lower() == "content-type"), "")
        headers = {name.lower(): value for name, value in kept[1]}
        text = body.decode()
        reply = Reply(int(kept[0].split()[0]), _decoded(text), media.partition(";")[0], headers, text)
        for one in met:
            reply = one.change(reply)
            self.struck.add(one.fact)
        content = reply.text if reply.json is None else json.dumps(reply.json)
        sent = {**reply.headers, "content-type": reply.media}
        sent.pop("content-length", None)
        self._pause(float(sent.pop(webhook_facts.SECONDS, 0)))
        start_response(f"{reply.status} Changed", [*sent.items(), ("content-length", str(len(content.encode())))])
        return [content.encode()]


def _decoded(text: str) -> t.Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


ODD: tuple[t.Any, ...] = (7, "~ odd ~", True, {"odd": 1}, ["odd"], None, -7.5)


def places(body: t.Any, place: str) -> list[list[t.Any]]:
    """The paths of everything at ``place``, as keys and numbers."""
    found: list[tuple[list[t.Any], t.Any]] = [([], body)]
    for name in place.split(".") if place else ():
        inner: list[tuple[list[t.Any], t.Any]] = []
        for path, value in found:
            if name == "*" and isinstance(value, (dict, list)):
                keys = list(value) if isinstance(value, dict) else list(range(len(value)))
                inner += [([*path, key], value[key]) for key in keys]
            elif isinstance(value, dict):
                inner.append(([*path, name], value.get(name)))
        found = inner
    return [path for path, _value in found]


def changed(body: t.Any, path: t.Sequence[t.Any], value: t.Any) -> t.Any:
    """``body`` with ``value`` at the path."""
    if not path:
        return value
    copy = body.copy()
    copy[path[0]] = changed(copy[path[0]], path[1:], value) if path[1:] else value
    return copy


def candidates(
    table: Table, fact: Fact, replies: Replies, rng: random.Random
) -> t.Iterator[tuple[str, t.Callable[[Reply], Reply]]]:
    """Changes that may make the fact false, as (question, change)."""
    if fact.id == "paperspace.page.after":
        yield "page_2", lambda _reply: replies["page"]
    own = OF_THEIR_OWN.get(fact.id)
    if own is not None:
        yield own
        return
    question = fact.asks[0]
    rest = fact.id.removeprefix(f"{table.service}.{question}").lstrip(".")
    if rest == "http":
        yield question, lambda reply: dataclasses.replace(reply, status=203 if reply.status < 300 else 418)
    reply = replies[question]
    paths = places(reply.json, rest)
    rng.shuffle(paths)
    for path in paths[:3]:
        for odd in rng.sample(ODD, len(ODD)):

            def put(given: Reply, path: t.Sequence[t.Any] = path, odd: t.Any = odd) -> Reply:
                return dataclasses.replace(given, json=changed(given.json, path, odd))

            yield question, put


def differing(table: Table, replies: Replies) -> set[str]:
    script = table.boot_script
    lane = script.lane if script is not None and script.name in replies else "any"
    return {fact.id for fact in table.facts if fact.verdict(replies, lane=lane).outcome is FactOutcome.DIFFERS}


def with_change(replies: Replies, question: str, change: t.Callable[[Reply], Reply]) -> Replies:
    return {**replies, question: change(replies[question])}


def deviation(table: Table, fact: Fact, replies: Replies, rng: random.Random) -> Deviation | None:
    """One that makes this fact false, and no other; None when there is none."""
    for question, change in candidates(table, fact, replies, rng):
        with contextlib.suppress(KeyError, TypeError, IndexError, AttributeError):
            if differing(table, with_change(replies, question, change)) == {fact.id}:
                known = {one.name: one for one in table.questions}
                return Deviation(fact.id, known.get(question, Question(question, "GET", "")), change)
    return None


def _in_json(path: str, change: t.Callable[[t.Any], t.Any]) -> t.Callable[[Reply], Reply]:
    """A change of what is at ``path`` (names and numbers with dots)."""

    def apply(reply: Reply) -> Reply:
        keys = [int(one) if one.isdecimal() else one for one in path.split(".")] if path else []
        value = reply.json
        for key in keys:
            value = value[key]
        return dataclasses.replace(reply, json=changed(reply.json, keys, change(value)))

    return apply


def _life(**changes: t.Any) -> tuple[str, t.Callable[[Reply], Reply]]:
    return "life", lambda reply: dataclasses.replace(reply, json={**reply.json, **changes})


def _vm(**changes: t.Any) -> tuple[str, t.Callable[[Reply], Reply]]:
    return "vm", lambda reply: dataclasses.replace(reply, json={**reply.json, **changes})


def _gone_as(status: int, body: t.Any) -> tuple[str, t.Callable[[Reply], Reply]]:
    return "rented_gone", lambda reply: dataclasses.replace(reply, status=status, json=body)


def _looks(state: str, **aspects: str) -> list[dict[str, t.Any]]:
    return [{"at": 0, "state": state, **aspects}]


def _header(name: str, value: str) -> t.Callable[[Reply], Reply]:
    return lambda reply: dataclasses.replace(reply, headers={**reply.headers, name: value})


def _media(value: str) -> t.Callable[[Reply], Reply]:
    return lambda reply: dataclasses.replace(reply, media=value)


def _each(change: t.Callable[[dict[str, t.Any]], dict[str, t.Any]]) -> t.Callable[[t.Any], t.Any]:
    return lambda rows: [change(row) for row in rows]


_FACTORY = "image_factory"
OF_THEIR_OWN: dict[str, tuple[str, t.Callable[[Reply], Reply]]] = {
    "lambda.types.keys": ("types", _in_json("data", lambda types: {f"x-{key}": kind for key, kind in types.items()})),
    "lambda.types.memory": (
        "types",
        _in_json(
            "data",
            lambda types: {
                key: {**kind, "instance_type": {**kind["instance_type"], "gpu_description": "a card"}}
                for key, kind in types.items()
            },
        ),
    ),
    "lambda.list.paging": ("list", _in_json("", lambda body: {**body, "page_token": None})),
    "paperspace.page.limit": ("page", _in_json("items", lambda items: [*items, *items])),
    "paperspace.named.filter": ("named", _in_json("items", lambda _none: [{"id": "ps1"}])),
    "paperspace.bad_session.null": (
        "bad_session",
        lambda reply: dataclasses.replace(reply, status=200, json={"user": 1}, text="{}"),
    ),
    "paperspace.availability": ("availability", _in_json("available", lambda _word: "yes")),
    "paperspace.life.address": _life(looks=_looks("ready", publicIp="null")),
    "runpod.gpus.counts": ("gpus", _in_json("gpus.0.maxCount.secure", lambda _count: 4096)),
    "runpod.list.paging": ("list", _in_json("", lambda body: {**body, "pagination": {"next": 2}})),
    "runpod.list.ratelimit": ("list", _header("ratelimit", "41 left")),
    **{f"runpod.{one}.media": (one, _media("application/json")) for one in ("no_product", "unknown_id", "bad_key")},
    "runpod.life.pulling": _life(states=["EXITED", "RUNNING"]),
    "runpod.life.runtime": _life(looks=_looks("RUNNING", runtime="null")),
    "runpod.life.by_id": _life(missing_by_id=300.0),
    "vast.search.order": ("search", _in_json("offers", lambda offers: offers[::-1])),
    "vast.search.cap": ("search", _in_json("offers", lambda offers: offers[-1:] * 65)),
    "vast.search.price": ("search", _in_json("offers", _each(lambda row: {**row, "dph_total": row["dph_total"] + 1}))),
    "vast.single.filter": ("single", _in_json("offers", _each(lambda row: {**row, "num_gpus": 4}))),
    "vast.bids.kind": ("bids", _in_json("offers", _each(lambda row: {**row, "is_bid": False}))),
    "vast.old_list.retired": ("old_list", lambda reply: dataclasses.replace(reply, status=200, json={"instances": []})),
    "vast.unknown_id.gone": ("unknown_id", lambda reply: dataclasses.replace(reply, status=200, json={"instances": {"id": 1}})),
    "vast.bad_key.code": ("bad_key", _in_json("error", lambda _code: "not_found")),
    "vultr.plans.whole": (
        "plans",
        _in_json("plans", _each(lambda row: {**row, "type": "vcg", "gpu_vram_gb": 4} if row["type"] == "vdm" else row)),
    ),
    "vultr.regions.cursor": ("regions", _in_json("meta.links.next", lambda _cursor: "https://api.vultr.com/v2/regions?page=2")),
    "vultr.systems.default": (
        "systems",
        _in_json("os", lambda rows: [row for row in rows if row["name"] != "Ubuntu 24.04 LTS x64"]),
    ),
    "vultr.systems.talos": ("systems", _in_json("os", lambda rows: [*rows, {"id": 9, "name": "Talos 1.13 x64"}])),
    "gcp.types.filter": (
        "types",
        _in_json(
            "items",
            lambda scopes: {**scopes, "zones/x": {"machineTypes": [{"name": "e2-micro", "guestCpus": 2, "memoryMb": 1024}]}},
        ),
    ),
    "tailscale.devices.online": ("devices", _in_json("devices.0", lambda row: {**row, "connectedToControl": "yes"})),
    "tailscale.keys.whole": ("keys", _in_json("keys", lambda keys: [*keys, {"id": "kOther"}])),
    "headscale.policy": ("policy", _in_json("policy", lambda _text: 7)),
    "headscale.bad_key.http": ("bad_key", lambda reply: dataclasses.replace(reply, status=403)),
    f"{_FACTORY}.versions.form": ("versions", _in_json("", lambda versions: ["1.13", *versions])),
    f"{_FACTORY}.extensions.tailscale": (
        "extensions",
        _in_json("", lambda rows: [row for row in rows if row["name"] != "siderolabs/tailscale"]),
    ),
    f"{_FACTORY}.extensions.nvidia": (
        "extensions",
        _in_json("", lambda rows: [row for row in rows if row["name"] != "siderolabs/nvidia-open-gpu-kernel-modules-lts"]),
    ),
    f"{_FACTORY}.schematic.id": ("schematic", lambda reply: dataclasses.replace(reply, text="customization: {}\n\n")),
    **{f"{cloud}.life.listed": _life(listed_after=500.0, unlisted_for=490.0) for cloud in CLOUDS},
    **{f"{cloud}.life.states": _life(states=["booting-up"]) for cloud in CLOUDS},
    **{f"{cloud}.life.price": _life(price_ratio=1.2) for cloud in CLOUDS},
    **{f"{cloud}.life.up": _life(running_after=None) for cloud in CLOUDS},
    **{f"{cloud}.life.end": _life(ended_after=None) for cloud in CLOUDS},
    "gcp.gone.look": _gone_as(404, {"error": {"code": 404, "errors": [{"reason": "forbidden"}]}}),
    "lambda.gone.look": _gone_as(404, {"error": {"code": "global/not-found"}}),
    "paperspace.gone.look": _gone_as(200, {"id": "ps1", "dtDeleted": None}),
    "runpod.gone.look": _gone_as(200, {"id": "p", "status": "EXITED"}),
    "vast.gone.look": _gone_as(200, {"instances": {"id": 1}}),
    "vultr.gone.look": _gone_as(404, {"error": "Invalid API path.", "status": 404}),
    "vast.vm.ran": _vm(end=None),
    "vast.vm.on_console": _vm(console=None),
}
for _number in OWN_MACHINES:
    _name = f"machine_{_number}"
    OF_THEIR_OWN |= {
        f"webhook.{_name}.http": (_name, lambda reply: dataclasses.replace(reply, status=404)),
        f"webhook.{_name}.redirect": (
            _name,
            lambda reply: dataclasses.replace(reply, status=302, headers={**reply.headers, "location": "https://other.test/"}),
        ),
        f"webhook.{_name}.body": (_name, lambda reply: dataclasses.replace(reply, json=["off"])),
        f"webhook.{_name}.word": (_name, _in_json("state", lambda _word: "poweredOff")),
        f"webhook.{_name}.again": (f"again_{_number}", _in_json("state", lambda _word: "ON")),
        f"webhook.{_name}.seconds": (_name, _header(webhook_facts.SECONDS, "7.5")),
    }
OF_THEIR_OWN["webhook.unknown_1"] = ("unknown_1", lambda reply: dataclasses.replace(reply, status=200, json={"state": "off"}))
# the word of a pod's first look is in its course, too
OF_THEIR_OWN["runpod.life.states"] = _life(states=["RUNNING", "booting-up"])


# ---- targets


def own_machines(count: int) -> list[dict[str, t.Any]]:
    """rack-1 and so on, as the option takes them."""
    return [
        {
            "name": f"rack-{number}",
            "gpu_count": 1,
            "scale_up_endpoint": f"/rack-{number}/start",
            "scale_down_endpoint": f"/rack-{number}/stop",
            "status_endpoint": f"/rack-{number}/status",
        }
        for number in range(1, count + 1)
    ]


class Subject:
    """One service of the sandbox, and the module in front of it. ``recording`` is that of the last call."""

    def __init__(self, service: str, speed: float = 200.0, lane: str = "", *, billed: bool = True) -> None:
        """``speed``: of the world's clock where a machine can be rented, slow enough for what is measured in seconds. ``lane``: of the machine
        that is rented, "" = the usual one. ``billed``: machines of the past are on its bill."""
        self.service = service
        self.renting: dict[str, t.Any] = {"rent": True, "max_cost": "5.00", **({"lane": lane} if lane else {})}
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.recording = ask.Recording()
        self.own: dict[str, OwnCall] = {}
        self.stand: Stand | None = None
        self.world = World(SimClock(speed=SPEED))
        if service in STANDS:
            self.stand = STANDS[service]()
            self.world, self.app = self.stand.world, t.cast(App, self.stand.app)
            key = {"gcp_service_account_contents": self.world.secrets[SECRET]} if service == "gcp" else {f"{service}_api_key": KEY}
            self.params: dict[str, t.Any] = {f"{service}_api_url": self.stand.base, **key}
            self.table = ask.CLOUDS[service]
            if billed:
                self._bill()
            self.world.clock.run_at(speed, 0)
        elif service == OWN:
            self._own_machines()
        elif service == "image_factory":
            self.app, self.params = image_factory.app(self.world), {"image_factory_url": _FACTORY_URL}
            self.table = factory_facts.TABLE
        else:
            self._mesh()
        self._deviating: Deviating | None = None

    def _bill(self) -> None:
        """Machines of last month and of this one are on the bill, where the cloud has one that an API shows."""
        stand = t.cast(Stand, self.stand)
        cloud = stand.cloud()
        if cloud.facts.charges_lag is None:
            return
        for number, days in enumerate((31, 0.1)):
            made = cloud.launch(stand.request(name=f"tgp-a1b2c3d4-billed-{number:05}"))
            stand.wait_for(cloud, made, {InstanceState.RUNNING})
            cloud.terminate(made)
            stand.wait_for(cloud, made, {None, InstanceState.TERMINATED})
            self.world.clock.advance(days * 86400)
        cloud.close()
        self.world.writes.clear()
        self.world.calls.clear()

    def _own_machines(self) -> None:
        self.stand = stand = WebhookStand()
        self.world, self.app = stand.world, t.cast(App, stand.app)
        self.world.clock.run_at(1.0, 0)
        self.params = {"webhook_url": stand.base, "webhook_auth_value": KEY, "webhook_machines": own_machines(4)}
        last, now = self.world.machines["rack-3"], self.world.clock.now()
        self.world.machines["rack-4"] = Machine("rack-4", OWN, "rack-4", "rack-4", last.offer, now, state="off", ended=now)
        self.table = webhook_facts.table(
            [True for _number in OWN_MACHINES], [webhook_facts.PowerService(1, named=True, keyed=True)], 5.0
        )
        for number in OWN_MACHINES:
            for nth, name in enumerate(("machine", "again"), 1):
                self.own[f"{name}_{number}"] = OwnCall(f"/rack-{number}/status", KEY, nth)
        self.own |= {
            "unknown_1": OwnCall(f"/{NOBODY}/status", KEY),
            "no_key_1": OwnCall("/rack-1/status", ""),
            "bad_key_1": OwnCall("/rack-1/status", ask.INVALID["authorization"]),
        }

    def _mesh(self) -> None:
        own = self.service != "tailscale"
        tailnet = Tailnet(self.world.clock, self.world.random, lock=self.world.lock, profile=HEADSCALE if own else SAAS)
        tailnet.v1_only = self.service == "headscale"
        self.world.tailnet = tailnet
        self.app = tailscale.app(self.world)
        key = tailnet.create_key("auth", seconds=3600, description="tgp node", ephemeral=True, preauthorized=True, tags=["tag:gpu"])
        tailnet.create_key("auth", seconds=3600, description="tgp other", ephemeral=True, preauthorized=True, tags=["tag:gpu"])
        tailnet.join(key.secret, "tgp-node")
        self.params = {"tailscale_api_url": _MESH_URL, "tailscale_api_token": self.world.secrets["TAILSCALE_API_KEY"]}
        self.table = ask.MESHES["headscale" if self.service == "headscale" else "tailscale"]

    @property
    def secrets(self) -> set[str]:
        given = {str(value) for name, value in self.params.items() if not name.endswith(("_url", "_machines"))}
        return {*given, *(value for value in self.world.secrets.values() if len(value) > 5)}

    def transport(self, _url: str = "") -> httpx.BaseTransport:
        return httpx.WSGITransport(app=self._deviating or self.app)  # type: ignore[arg-type]

    def deviate(self, deviations: t.Sequence[Deviation], replies: Replies) -> Deviating:
        clock = self.world.clock
        self._deviating = Deviating(self.app, deviations, replies, self.own, lambda seconds: clock.advance(seconds * clock.speed))
        return self._deviating

    def run(self, *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        """One call of the module, with the defaults of its options."""
        defaults = {name: option.get("default") for name, option in provider_verify.SPEC["argument_spec"].items()}
        task = Task(
            params={**defaults, "provider": self.service.partition("-")[0], **self.params, **params},
            check_mode=check,
            clock=self.world.clock,
            transport=self.transport,
            warn=self.warnings.append,
            progress=self.lines.append,
        )
        return execute(provider_verify.SPEC, provider_verify.run, task)

    def recorded(self, monkeypatch: t.Any, **params: t.Any) -> Replies:
        """What a call recorded, and the call must match everything."""
        kept: list[ask.Recording] = []
        from ansible_collections.tgp.gpu.plugins.module_utils.verify import verify

        def keep() -> ask.Recording:
            kept.append(ask.Recording())
            return kept[-1]

        with monkeypatch.context() as patch:
            patch.setattr(verify, "Recording", keep)
            result = self.run(**params)
        assert not result.get("failed"), result["msg"]
        return kept[-1].replies

    def names(self) -> list[str]:
        """Machines that are billed."""
        return [one.name for one in self.world.machines.values() if one.ended is None]

    def close(self) -> None:
        if self.stand is not None:
            self.stand.close()
        else:
            self.world.clock.close()


def drawn(table: Table, replies: Replies, seed: int, count: int) -> list[Deviation]:
    """``count`` deviations of facts that need no machine, drawn by seed. None lies inside of another one, which would hide it: a draw with too
    many of these is repeated."""
    rng = random.Random(seed)
    return next(found for _try in range(50) if len(found := _draw(table, replies, rng, count)) == count)


def _draw(table: Table, replies: Replies, rng: random.Random, count: int) -> list[Deviation]:
    facts = [fact for fact in table.facts if not fact.rented]
    rng.shuffle(facts)
    found: list[Deviation] = []
    current = dict(replies)
    for fact in facts:
        if len(found) == count:
            break
        one = deviation(table, fact, replies, rng)
        if one is None:
            continue
        with contextlib.suppress(KeyError, TypeError, IndexError, AttributeError):
            after = dict(with_change(current, one.question.name, one.change))
            same_calls = all(ask.filled(call, after) == ask.filled(call, replies) for call in table.questions)
            if same_calls and differing(table, after) == {*(other.fact for other in found), fact.id}:
                found.append(one)
                current = after
    return found
