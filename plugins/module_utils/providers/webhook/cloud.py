# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own machines that are switched on and off by HTTP calls (L-21).

The contract with a power service: POST to the up or down endpoint switches, and may be repeated; 2xx = done or under way,
409 = already so; redirects are not followed. An optional status endpoint answers GET with JSON ``{"state": ...}``, which is off,
starting, on or stopping. One bulk status endpoint may answer for all machines at once: ``{"machines": [{"name": ..., "state": ...}]}``,
in which a machine that is missing is unknown. With a signing secret each POST carries ``X-Tgp-Timestamp`` (unix seconds) and ``X-Tgp-Signature:
sha256=<hex>``, the HMAC-SHA256 of ``<timestamp>.<body>``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from ansible.module_utils.basic import env_fallback

from ...core import errors, redact
from ...core.clock import Clock, SystemClock
from ...core.http import Answer, Api, check_headers
from ...core.rate_limit import RetryPolicy, resend
from ...core.task import Task
from ...model import Capability, Instance, InstanceState, Lane, LaunchRequest, Machine, Offer, OfferQuery, StateFacts
from ..base import EVERYTHING, CloudCheck, Entry, NothingBeside, Wanted, text_option
from .connections import Connections
from .machines import Origin, bulk_endpoint, faults, key_hosts, machines_of, root_of

if t.TYPE_CHECKING:
    import httpx

# Own machines: whatever is installed on them, or whatever their boot service hands out.
FACTS = Capability(
    cloud="webhook",
    lanes=(Lane.TALOS, Lane.KUBELET),
    stop=True,
    user_data_limit=1_000_000,
    registration_timeout=900,
    billed_until_gone=False,
    states={
        "off": StateFacts(InstanceState.TERMINATED, False),
        "starting": StateFacts(InstanceState.PENDING, True),
        "on": StateFacts(InstanceState.RUNNING, True),
        "stopping": StateFacts(InstanceState.TERMINATING, True),
    },
    credential_env=("WEBHOOK_AUTH_VALUE",),
    rented=False,
    lane_reason="they are whole machines that become nodes",
)
_T = t.TypeVar("_T")
PAYLOADS = ("none", "body")
SETTINGS: dict[str, dict[str, t.Any]] = {
    "payload": {"enum": list(PAYLOADS), "description": "what the power service is sent when a machine is switched on"},
    "bulkStatusEndpoint": {
        "type": "string",
        "minLength": 1,
        "description": "URL that reports the states of all machines in one answer",
    },
}

_SIDE_BY_SIDE = 64  # machines whose states are asked for at the same time
_STATES_SERVE = 10.0  # seconds
_UNLISTED = "is not in the answer of the bulk status endpoint, so its state is unknown."
_OPEN = (errors.ServerError, errors.LostAnswer)  # the call may have had its effect
# Switching is idempotent by contract, so a call whose outcome is open, too, is sent once more.
_SWITCH = RetryPolicy(tries=2, first=2.0, growth=1.0, jitter=(1.0, 1.0), deadline=math.inf, retry_after=(2.0, 60.0))


class WebhookCloud(NothingBeside):
    """A fixed list of machines.

    ``node_ready(node name)``: True = the Node is Ready, False = it is not, None = there is none; it raises when the cluster
    cannot be read. ``in_flight`` names machines of earlier runs that are "starting" or "stopping"; own calls are remembered.
    Without both and without a status endpoint nobody can tell what a machine does, and its state is UNKNOWN.
    ``key_hosts``: where ``auth_value`` and signed calls may go. A machine with another address makes the list unusable: InvalidInput names
    each (targets.py). ``resolve``: the addresses of a name, asked before each call; None = those of the network, where it is used.
    ``bulk_status_endpoint`` answers for all machines in one call; without it their states are asked for side by side.
    ``payload``: "none" posts ``{}``, "body" posts ``{"name": ..., "machineConfig": ...}`` so that a boot service can hand it out.
    """

    facts = FACTS

    def __init__(
        self,
        machines: t.Sequence[Machine],
        *,
        node_ready: t.Callable[[str], bool | None] | None = None,
        in_flight: t.Mapping[str, str] | None = None,
        auth_header: str = "Authorization",
        auth_value: str | None = None,
        signing_secret: str | None = None,
        key_hosts: t.Collection[Origin] = (),
        bulk_status_endpoint: str = "",
        payload: str = "none",
        timeout: float = 5.0,
        resolve: t.Callable[[str], t.Iterable[str]] | None = None,
        transport: t.Callable[[str], httpx.BaseTransport | None] = lambda _url: None,
        clock: Clock | None = None,
    ) -> None:
        if payload not in PAYLOADS:
            raise errors.InvalidInput(f"webhook: payload {payload!r} should be one of {', '.join(PAYLOADS)}.")
        redact.register(auth_value, signing_secret)
        if problems := faults(machines, key_hosts, key=bool(auth_value), signed=bool(signing_secret), bulk=bulk_status_endpoint):
            raise errors.InvalidInput("webhook: the power services cannot be called; no call was made.", problems=problems)
        self._machines = {machine.name: machine for machine in machines}
        self._node_ready = node_ready
        self._in_flight = dict(in_flight or {})
        self._last_read: tuple[list[Instance], datetime | None] = [], None
        self._headers = {auth_header: auth_value} if auth_value else {}
        check_headers("webhook", self._headers)
        self._secret = signing_secret
        self.bulk_status_endpoint = bulk_status_endpoint
        self._payload = payload
        self._clock = clock or SystemClock()
        self.connections = Connections(timeout, transport, resolve, self._clock)

    def check(self) -> CloudCheck:
        """The power of no machine is touched: only status endpoints are asked."""
        if self.bulk_status_endpoint:
            states = self._bulk_states()
            missing = [name for name in self._machines if name not in states]
            count = f"{len(self._machines) - len(missing)} of {len(self._machines)}"
            sentence = f"webhook: the bulk status endpoint lists {count} machines."
            return CloudCheck(sentence, tuple(f"webhook: {name} {_UNLISTED}" for name in missing))
        asked = [machine for machine in self._machines.values() if machine.status_endpoint]
        self._for_each(self._status, asked)
        silent = len(self._machines) - len(asked)
        rest = f"; {silent} without a status endpoint could not be tried" if silent else ""
        return CloudCheck(f"webhook: {len(asked)} of {len(self._machines)} machines answered their status{rest}.")

    def close(self) -> None:
        self.connections.close()

    def queue(self) -> None:
        """Own machines have no pace."""

    # ---- reading

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        """What is off. States that were read a few seconds ago serve here, too: to ask each machine twice for one plan tells nothing new."""
        known, asked = self._last_read
        if asked is None or (self._clock.now() - asked).total_seconds() > _STATES_SERVE:
            known = self.instances()
        return [self._offer(machine, instance) for machine, instance in zip(self._machines.values(), known, strict=True)]

    def _offer(self, machine: Machine, instance: Instance) -> Offer:
        return Offer(
            cloud="webhook",
            id=machine.name,
            instance_type=machine.name,
            model=machine.gpu_type,
            gpu_count=machine.gpu_count,
            price_hour=machine.hourly_cost,
            region=machine.region,
            cloud_region=machine.region,
            gpu_memory_mib=machine.gpu_memory_mib,
            available=1 if instance.state is InstanceState.TERMINATED else 0,
            host_id=machine.name,
            lanes=FACTS.lanes,
            seen=self._clock.now(),
        )

    def instances(self) -> list[Instance]:
        """One call where a bulk status endpoint answers for all, else one for each machine, side by side."""
        machines, asked = list(self._machines.values()), self._clock.now()
        if self.bulk_status_endpoint:
            states = self._listed_states()
            read = [self._instance(machine, *states[machine.name]) for machine in machines]
        else:
            read = self._for_each(lambda machine: self._instance(machine, *self._state(machine)), machines)
        self._last_read = read, asked
        return read

    def instance(self, instance_id: str) -> Instance | None:
        machine = self._machines.get(instance_id)
        return self._instance(machine, *self._state(machine)) if machine else None

    def console(self, instance_id: str) -> str | None:
        return None

    def _for_each(self, ask: t.Callable[[Machine], _T], machines: t.Sequence[Machine]) -> list[_T]:
        """``ask`` of each, at most 64 at a time. The first failure is raised."""
        if len(machines) < 2:
            return [ask(machine) for machine in machines]
        with ThreadPoolExecutor(max_workers=min(_SIDE_BY_SIDE, len(machines)), thread_name_prefix="status") as pool:
            return list(pool.map(ask, machines))

    def _instance(self, machine: Machine, state: str, problem: str) -> Instance:
        return Instance(
            cloud="webhook",
            id=machine.name,
            name=machine.name,
            state=FACTS.read_state(state),
            raw_state=state,
            price_hour=machine.hourly_cost,
            region=machine.region,
            instance_type=machine.name,
            model=machine.gpu_type,
            gpu_count=machine.gpu_count,
            host_id=machine.name,
            problem=problem,
        )

    def _state(self, machine: Machine) -> tuple[str, str]:
        """State word and problem. One silent power service makes its machine unknown, not the whole list."""
        if machine.status_endpoint:
            try:
                return self._status(machine), ""
            except errors.ApiError as error:
                return "unknown", str(error)
        if self.bulk_status_endpoint:
            return self._listed_states()[machine.name]
        asked = self._in_flight.get(machine.name)
        if self._node_ready is None:
            return asked or "unknown", ""
        ready = self._node_ready(machine.node_name or machine.name)
        if asked == "stopping":
            return ("stopping" if ready else "off"), ""
        if ready:
            return "on", ""
        return asked or "off", ""

    @property
    def machines(self) -> tuple[Machine, ...]:
        return tuple(self._machines.values())

    @property
    def key_header(self) -> str:
        """The header that carries the key; empty without a key."""
        return next(iter(self._headers), "")

    def get(self, endpoint: str, *, ok: t.Collection[int], headers: t.Mapping[str, str] | None = None) -> Answer:
        """What a status endpoint answers, whatever it says. ``headers`` replace the one with the key."""
        api, path = self.connections.to(endpoint)
        return api.call("GET", path, headers=self._headers if headers is None else headers, ok=ok)

    def _status(self, machine: Machine) -> str:
        api, path = self.connections.to(machine.status_endpoint)
        return _state_word(api, api.get(path, headers=self._headers), machine.name)

    def _listed_states(self) -> dict[str, tuple[str, str]]:
        """State word and problem of each machine, as the bulk status endpoint reports them. One that it does not list is unknown, not off."""
        try:
            states = self._bulk_states()
        except errors.ApiError as error:
            return dict.fromkeys(self._machines, ("unknown", str(error)))
        return {name: states.get(name, ("unknown", f"{name} {_UNLISTED}")) for name in self._machines}

    def _bulk_states(self) -> dict[str, tuple[str, str]]:
        """By name. A state that is not understood makes its machine unknown; an answer in which it is not clear which machine is meant
        says nothing of any. Machines that are not ours are passed over."""
        api, path = self.connections.to(self.bulk_status_endpoint)
        answer, operation = api.get(path, headers=self._headers), "GET status of all machines"
        entries = api.expect(answer.get("machines") if isinstance(answer, dict) else None, list, operation, "machines")
        states: dict[str, tuple[str, str]] = {}
        for entry in entries:
            name = api.expect(entry.get("name") if isinstance(entry, dict) else None, str, operation, "the name of each machine")
            if name in states:
                raise api.bad_shape(operation, f"it lists {name} twice")
            try:
                states[name] = (_state_word(api, entry, name), "")
            except errors.BadShape as error:
                states[name] = ("unknown", str(error))
        return {name: state for name, state in states.items() if name in self._machines}

    # ---- switching

    def launch(self, request: LaunchRequest) -> str:
        machine = self._machines.get(request.offer.id)
        if machine is None:
            raise errors.LaunchRefused(f"webhook: there is no machine {request.offer.id}.", reason="invalid", cloud="webhook")
        if unknown := sorted(set(request.settings) - set(SETTINGS)):
            raise errors.LaunchRefused(
                f"webhook: unknown setting {', '.join(unknown)}.", reason="invalid", remedy="Known: payload.", cloud="webhook"
            )
        self.switch_on(machine, request.user_data, request.settings.get("payload"))
        return machine.name

    def switch_on(self, machine: Machine, config: str | None = None, payload: str | None = None) -> bool:
        """Call the up endpoint; False = the service says that it was on already. Raises LaunchRefused and LaunchUnknown."""
        body = self._up_body(machine, config, payload or self._payload)
        try:
            changed = self._post(machine.scale_up_endpoint, body)
        except errors.ApiError as error:
            raise _outcome(error, machine) from error
        self._in_flight[machine.name], self._last_read = "starting", ([], None)
        return changed

    def _up_body(self, machine: Machine, config: str | None, mode: str) -> dict[str, t.Any]:
        if mode not in PAYLOADS:
            raise errors.LaunchRefused(
                f"webhook: payload {mode!r} should be one of {', '.join(PAYLOADS)}.", reason="invalid", cloud="webhook"
            )
        if mode == "none" and config is not None:
            raise errors.LaunchRefused(
                f"webhook: {machine.name} is given a machine config that nobody would hand to it.",
                reason="invalid",
                remedy="Set payload to body, or give none.",
                cloud="webhook",
            )
        if mode == "none":
            return {}
        if config is None:
            raise errors.LaunchRefused(
                f"webhook: {machine.name} is to be handed a machine config and there is none.",
                reason="invalid",
                remedy="Set payload to none for machines that are installed already.",
                cloud="webhook",
            )
        return {"name": machine.node_name or machine.name, "machineConfig": config}

    def terminate(self, instance_id: str) -> None:
        machine = self.machine(instance_id)
        asks = machine.status_endpoint or self.bulk_status_endpoint
        if asks and self._in_flight.get(machine.name) != "starting" and self._state(machine)[0] == "off":
            return  # K-01: no call to what is off; one that was switched on may be called off until it is up
        self.switch_off(machine)

    def switch_off(self, machine: Machine) -> bool:
        """Call the down endpoint; False = the service says that it was off already. Raises an ApiError."""
        changed = self._post(machine.scale_down_endpoint, {})
        self._in_flight[machine.name], self._last_read = "stopping", ([], None)
        return changed

    def machine(self, name: str) -> Machine:
        """A configured machine; InvalidInput when there is none of that name."""
        if name not in self._machines:
            raise errors.InvalidInput(
                f"webhook: there is no machine {name}.", remedy=f"Configured are {', '.join(self._machines) or 'none'}."
            )
        return self._machines[name]

    def _post(self, endpoint: str, body: dict[str, t.Any]) -> bool:
        """Send the call, signed anew for each try. False = it was so already."""
        api, path = self.connections.to(endpoint)
        content = json.dumps(body)
        failures: list[errors.ApiError] = []

        def send() -> int:
            try:
                return self._send(api, path, content)
            except errors.ApiError as error:
                failures.append(error)
                raise

        try:
            status = resend(send, _SWITCH, self._clock, when=_may_be_resent)
        except errors.ApiError as last:
            first = failures[0]
            if isinstance(first, _OPEN) and not isinstance(last, _OPEN):
                raise first from last  # a refusal now says nothing about the call before
            raise
        return bool(failures) or status != 409  # "already so" may well be the effect of the first call

    def _send(self, api: Api, path: str, content: str) -> int:
        headers = {"content-type": "application/json", **self._headers}
        if self._secret:
            stamp = str(int(self._clock.now().timestamp()))
            digest = hmac.new(self._secret.encode(), f"{stamp}.{content}".encode(), hashlib.sha256).hexdigest()
            headers |= {"X-Tgp-Timestamp": stamp, "X-Tgp-Signature": f"sha256={digest}"}
        return api.call("POST", path, content=content, headers=headers, ok=(409,), idempotent=False).status


def _state_word(api: Api, entry: t.Any, name: str) -> str:
    """Of a status answer, or of an entry of one for all machines. BadShape when it is not one of ours."""
    state = entry.get("state") if isinstance(entry, dict) else None
    if not isinstance(state, str) or state.lower() not in FACTS.states:
        raise api.bad_shape(f"GET status of {name}", f"state should be one of {', '.join(FACTS.states)}")
    return state.lower()


def _may_be_resent(error: errors.TgpError) -> bool:
    return isinstance(error, (*_OPEN, errors.Unreachable, errors.RateLimited))


def _outcome(error: errors.ApiError, machine: Machine) -> errors.TgpError:
    """Whether the machine is certainly not switched on, or perhaps. An unreachable power service concerns this machine only, so the
    next one is tried (reason capacity)."""
    if isinstance(error, _OPEN):
        return errors.LaunchUnknown(
            f"{error.message} Whether {machine.name} is being switched on is unknown.",
            remedy="Its Node will show; the power service can be asked as well.",
            cloud="webhook",
            status=error.status,
        )
    if isinstance(error, (errors.Unauthorized, errors.Forbidden)):
        reason = "auth"
    elif isinstance(error, errors.RateLimited):
        reason = "rate"
    elif isinstance(error, errors.Unreachable):
        reason = "capacity"
    else:
        reason = "invalid"
    return errors.LaunchRefused(
        f"{machine.name} was not switched on: {error.message}",
        reason=reason,
        remedy=error.remedy,
        cloud="webhook",
        status=error.status,
    )


def _connect(wanted: Wanted) -> WebhookCloud:
    task = wanted.task
    base_url = root_of(ENTRY.option(task, "webhook_url") or "")
    given = ENTRY.option(task, "webhook_auth_value")
    return WebhookCloud(
        machines_of(task, wanted.choice, base_url),
        node_ready=wanted.node_ready,
        in_flight=wanted.in_flight,
        auth_header=ENTRY.option(task, "webhook_auth_header") or "Authorization",
        auth_value=given or wanted.credential,
        signing_secret=ENTRY.option(task, "webhook_signing_secret"),
        key_hosts=key_hosts(task, wanted.choice, base_url, _hosts(task), key_given=bool(given)),
        bulk_status_endpoint=bulk_endpoint(wanted.choice, base_url),
        payload=wanted.setting("payload") or ENTRY.option(task, "webhook_payload") or "none",
        timeout=float(task.params.get("webhook_timeout") or 5),
        transport=task.transport,
        clock=task.clock,
    )


def _hosts(task: Task) -> list[str]:
    given = task.params.get("webhook_hosts")
    return list(given) if given is not None else os.environ.get("WEBHOOK_HOSTS", "").split(",")


def _has_machines(task: Task) -> bool:
    return bool(task.params.get("webhook_machines")) or any(variable.endswith("_GPU_COUNT") for variable in os.environ)


ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "webhook_url": text_option("WEBHOOK_URL"),
        "webhook_hosts": {"type": "list", "elements": "str", "fallback": (env_fallback, ["WEBHOOK_HOSTS"])},
        "webhook_machines": {
            "type": "list",
            "elements": "dict",
            "options": {
                "name": {"type": "str", "required": True},
                "gpu_count": {"type": "int", "required": True},
                "scale_up_endpoint": {"type": "str", "required": True},
                "scale_down_endpoint": {"type": "str", "required": True},
                "status_endpoint": {"type": "str"},
                "gpu_type": {"type": "str"},
                "gpu_memory_mib": {"type": "int"},
                "node_name": {"type": "str"},
                "hourly_cost": {"type": "str"},
                "region": {"type": "str"},
            },
        },
        "webhook_auth_header": text_option("WEBHOOK_AUTH_HEADER"),
        "webhook_auth_value": text_option("WEBHOOK_AUTH_VALUE", no_log=True),
        "webhook_signing_secret": text_option("WEBHOOK_SIGNING_SECRET", no_log=True),
        "webhook_payload": text_option("WEBHOOK_PAYLOAD", choices=list(PAYLOADS)),
        "webhook_timeout": {"type": "float", "default": 5.0},
    },
    key="webhook_auth_value",
    aliases=("webhooks",),
    settings=SETTINGS,
    configured=_has_machines,
)
