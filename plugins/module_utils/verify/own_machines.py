# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The power services of own machines as a target: only their status endpoints are asked."""

from __future__ import annotations

import dataclasses
import typing as t
from urllib.parse import SplitResult, quote, unquote, unquote_plus, urlsplit

from ..core import errors
from ..core.http import Answer
from ..core.task import Task
from ..model import CloudChoice, Machine
from ..observe.documents import load
from ..providers.registry import connect
from ..providers.webhook.cloud import ENTRY, WebhookCloud
from .ask import ANSWERS, INVALID, INVALID_KEY, VerifyTarget
from .facts import webhook
from .facts.fact import Question

NOBODY = "tgp-verify-no-such-machine"


@dataclasses.dataclass(frozen=True)
class StatusCall:
    """``headers``: in place of the one with the key; None = as the client sends it."""

    endpoint: str
    headers: t.Mapping[str, str] | None = None


@dataclasses.dataclass(kw_only=True)
class OwnMachines(VerifyTarget):
    """``calls`` by the name of the question."""

    calls: t.Mapping[str, StatusCall]
    power: WebhookCloud

    def call(self, question: Question, path: str, params: t.Mapping[str, t.Any]) -> Answer:
        """One call as the client makes it: within its timeout, sent once."""
        call, clock = self.calls[question.name], self.api.clock
        before = clock.now()
        answer = self.power.get(call.endpoint, ok=ANSWERS | set(question.also), headers=call.headers)
        seconds = (clock.now() - before).total_seconds() / clock.speed  # real ones, as those of the client's timeout
        return dataclasses.replace(answer, headers={**answer.headers, webhook.SECONDS: str(seconds)})


def open_own_machines(task: Task) -> OwnMachines:
    """The machines of the documents, else of the option, else of the environment. Nothing is asked yet."""
    cloud = t.cast(WebhookCloud, connect("webhook", task, choice=_choice(task)))
    machines = cloud.machines
    asked = [machine for machine in machines if machine.status_endpoint]
    if not asked and not cloud.bulk_status_endpoint:
        cloud.close()
        raise errors.InvalidInput(
            "webhook: no machine has a status endpoint, so nothing can be asked.",
            remedy="Set statusEndpoint (status_endpoint, P_STATUS_ENDPOINT) or settings.bulkStatusEndpoint, or try one machine with "
            "tgp.gpu.webhook_machine.",
        )
    for number, machine in enumerate(machines, 1):
        task.progress(f"webhook: machine {number} is {machine.name}")
    bulk = cloud.bulk_status_endpoint
    calls = {webhook.BULK: StatusCall(bulk)} if bulk else dict[str, StatusCall]()
    first: dict[str, int] = {}  # by service, the number of its first machine
    for number, machine in enumerate(machines, 1):
        if machine.status_endpoint:
            calls |= {f"{name}_{number}": StatusCall(machine.status_endpoint) for name in ("machine", "again")}
            first.setdefault(_service(machine), number)
    services = []
    for number, place in enumerate(first.values(), 1):
        machine = machines[place - 1]
        endpoint, unknown = machine.status_endpoint, _of_nobody(machine)
        services.append(webhook.PowerService(place, bool(unknown), bool(cloud.key_header or urlsplit(endpoint).username)))
        calls[f"unknown_{number}"] = StatusCall(unknown)
        calls[f"no_key_{number}"] = StatusCall(_as_user(endpoint, ""), {})
        calls[f"bad_key_{number}"] = _with_invalid_key(endpoint, cloud.key_header)
    return OwnMachines(
        webhook.table(
            [bool(machine.status_endpoint) for machine in machines],
            services,
            cloud.connections.timeout,
            [machine.name for machine in machines] if bulk else (),
        ),
        cloud.connections.client(bulk or asked[0].status_endpoint),
        closing=cloud.close,
        calls=calls,
        power=cloud,
    )


def _choice(task: Task) -> CloudChoice | None:
    """The own machines of all classes in the documents; None without documents."""
    if not task.params.get("documents"):
        return None
    specs = load(task, None, strict=False)
    problems = [source.problem for source in specs.sources.values() if source.problem and not source.quiet]
    problems += [sentence for sentences in specs.faults.values() for sentence in sentences]
    choices = [
        choice
        for node_class in specs.classes.values()
        for choice in node_class.clouds
        if choice.cloud == "webhook" and choice.enabled and choice.machines
    ]
    if not choices:
        raise errors.InvalidInput(
            f"{task.called('documents')}: no class has provider webhook with machines.",
            problems=problems,
            remedy="Give the file of a GPUNodeClass that lists machines, or leave it out and set webhook_machines or the environment.",
        )
    for problem in problems:
        task.warn(problem)
    if any(choice.credentials is not None for choice in choices) and not ENTRY.option(task, "webhook_auth_value"):
        raise errors.InvalidInput(
            f"{task.called('documents')}: credentialsRef names a Secret, and this check reads no cluster.",
            remedy="Set WEBHOOK_AUTH_VALUE, and WEBHOOK_HOSTS to the hosts that get it.",
        )
    machines = {machine.name: machine for choice in choices for machine in choice.machines}
    return dataclasses.replace(choices[0], machines=tuple(machines.values()), credentials=None, key_for_machines=False)


def _service(machine: Machine) -> str:
    parts = urlsplit(machine.status_endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def _of_nobody(machine: Machine) -> str:
    """The machine's address with another name in it; empty where neither a segment of the path nor a value of the query is its name."""
    parts = urlsplit(machine.status_endpoint)
    names = {machine.name, machine.node_name} - {""}
    segments = [NOBODY if unquote(one) in names else one for one in parts.path.split("/")]
    pairs = [one.partition("=") for one in parts.query.split("&")]
    query = "&".join(f"{name}{equals}{NOBODY if unquote_plus(value) in names else value}" for name, equals, value in pairs)
    changed = parts._replace(path="/".join(segments), query=query)
    return changed.geturl() if changed != parts else ""


def _as_user(endpoint: str, user: str) -> str:
    parts = urlsplit(endpoint)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{user}@{host}" if user else host).geturl()


def _with_invalid_key(endpoint: str, header: str) -> StatusCall:
    parts: SplitResult = urlsplit(endpoint)
    if parts.username:  # the client sends these in place of the header
        return StatusCall(_as_user(endpoint, f"{quote(unquote(parts.username), safe='')}:{INVALID_KEY}"))
    return StatusCall(endpoint, INVALID if header.lower() == "authorization" else {header or "authorization": INVALID_KEY})
