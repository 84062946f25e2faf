# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad days of a client: what a cloud may answer at worst, for every cloud alike. Runs on such days: ../act/test_bad_days.py.

=========================  =====================================================================================================
case                       where it is tested (all seven clouds unless said otherwise)
=========================  =====================================================================================================
bad key                    test_every_cloud, here (each verb; a key that dies between two calls)
no balance                 here (RunPod, Vast; the others' answers name none), test_vast and test_runpod L14, test_paperspace
quota                      here (Lambda, Paperspace, RunPod, Vast)
sold out                   here (the rented ones), test_<cloud> L14
malformed lists            test_every_cloud (whole answers), here (single entries)
truncated lists            here; Vast's partial lists in test_vast
HTML for JSON              here (200, 403, 502)
repeated cursors           test_vast, test_runpod, test_paperspace; Lambda and own machines have no pages
redirects                  here (each verb, 301 to 308), and that the key is at no other host
lost answers               creates: test_every_cloud L2; destroys: here
vanish, come back          here
a price that changes       here (the rented ones; own machines cost nothing)
never start, no ports      test_<cloud> (states), test_vast_instance and test_runpod (modules), ../act/test_bad_days
=========================  =====================================================================================================
"""

from __future__ import annotations

import threading
import typing as t
from decimal import Decimal

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState, LaunchRequest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.base import Cloud
from ansible_collections.tgp.gpu.plugins.modules import lambda_instance, paperspace_machine, runpod_pod, vast_instance

from sandbox import gcp_account, lambda_account, paperspace_account, runpod_account, vultr_account
from sandbox.world import Machine

from .stands import KEY, LambdaStand, Stand
from .stands_gcp import GcpStand
from .stands_paperspace import PaperspaceStand
from .stands_runpod import RunpodStand
from .stands_vast import VastStand
from .stands_vultr import VultrStand
from .test_modules import call

HTML = "<!DOCTYPE html><html><body>We will be back soon.</body></html>"
ELSEWHERE = "http://elsewhere.test/"
WRONG = "secret_wrong_ffffffffffffffffffff"
READS: dict[str, t.Callable[[Cloud, LaunchRequest, str], t.Any]] = {
    "check": lambda cloud, _request, _made: cloud.check(),
    "offers": lambda cloud, _request, _made: cloud.offers(),
    "instances": lambda cloud, _request, _made: cloud.instances(),
    "instance": lambda cloud, _request, made: cloud.instance(made),
}
VERBS = {
    **READS,
    "launch": lambda cloud, request, _made: cloud.launch(request),
    "terminate": lambda cloud, _request, made: cloud.terminate(made),
}


class Witnessed(httpx.BaseTransport):
    """Sends everything to the stand, whatever host it is for, and writes down which hosts were called with what."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self.seen: list[tuple[str, str]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append((request.url.host, f"{request.url} {dict(request.headers)}"))
        return self._inner.handle_request(request)


@pytest.fixture(params=[GcpStand, LambdaStand, PaperspaceStand, RunpodStand, VastStand, VultrStand], ids=lambda kind: kind.service)
def rented(request: pytest.FixtureRequest) -> t.Iterator[Stand]:
    """The clouds whose machines are sold; own machines have no market, no quota and no bill."""
    made: Stand = request.param()
    yield made
    made.close()


@pytest.fixture(params=[LambdaStand, PaperspaceStand, RunpodStand, VastStand], ids=lambda kind: kind.service)
def single(request: pytest.FixtureRequest) -> t.Iterator[Stand]:
    """The rented clouds that have a module for one machine."""
    made: Stand = request.param()
    yield made
    made.close()


@pytest.fixture
def witness(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Witnessed:
    """What the stand's clients send from now on."""
    made = Witnessed(stand.transport())
    monkeypatch.setattr(stand, "transport", lambda _url="": made)
    return made


@pytest.fixture
def living(stand: Stand) -> tuple[LaunchRequest, str]:
    """A machine that exists, and what another one would be ordered with."""
    made = stand.cloud().launch(stand.request())
    if stand.service == "webhook":
        return stand.request("rack-2"), made
    return stand.request("tgp-a1b2c3d4-train-other"), made


def break_all(stand: Stand, **rule: t.Any) -> None:
    stand.faults.add({"times": None, **rule})


def asked(stand: Stand, verb: str, living: tuple[LaunchRequest, str], key: str = KEY) -> str:
    """The words of the error a verb ends with, or the state an own machine is left in: one power service that fails concerns its own
    machine only, so that lists and offers go on without it (docs/reference/clouds.md)."""
    cloud, (request, made) = stand.cloud(key=key), living
    if stand.service == "webhook" and verb in ("instances", "offers", "instance"):
        found = VERBS[verb](cloud, request, made)
        listed = found if isinstance(found, list) else [found]
        assert listed, "an own machine is never absent"
        for one in listed:
            assert one.available == 0 if verb == "offers" else one.state is InstanceState.UNKNOWN
        return stand.service
    with pytest.raises(errors.TgpError) as caught:
        VERBS[verb](cloud, request, made)
    return f"{type(caught.value).__name__}: {caught.value} {caught.value.details}"


# ---- redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_follows_no_redirect(stand: Stand, living: tuple[LaunchRequest, str], witness: Witnessed, status: int) -> None:
    """Whatever was asked, the answer names the way out, one host was called, and it is ours."""
    break_all(stand, kind="status", status=status, headers={"Location": f"{ELSEWHERE}api"})
    for verb in VERBS:
        said = asked(stand, verb, living)
        assert KEY not in said
        assert stand.service in said
    assert {host for host, _what in witness.seen} == {httpx.URL(stand.base).host}
    if stand.service != "gcp":  # its key signs, and is sent nowhere
        assert all(KEY in what for _host, what in witness.seen)
    assert stand.billed() == 1


def test_a_redirect_is_named(stand: Stand, living: tuple[LaunchRequest, str]) -> None:
    break_all(stand, kind="status", status=307, headers={"Location": ELSEWHERE})
    for verb in ("check", "launch", "terminate"):
        said = asked(stand, verb, living)
        assert "not followed" in said and "elsewhere.test" in said, said


# ---- answers that are none


@pytest.mark.parametrize("status", [200, 403, 502])
@pytest.mark.parametrize("verb", READS)
def test_a_page_is_no_answer(stand: Stand, living: tuple[LaunchRequest, str], verb: str, status: int) -> None:
    """An outage page never means that there is nothing, that something is gone, or that all is well."""
    break_all(stand, kind="status", status=status, body=HTML)
    said = asked(stand, verb, living)
    assert stand.service in said and KEY not in said
    assert stand.billed() == 1


@pytest.mark.parametrize("status", [200, 403, 404, 502])
def test_a_page_for_a_destroy_ends_nothing(stand: Stand, living: tuple[LaunchRequest, str], status: int) -> None:
    """Clouds that answer an accepted destroy without a body say 2xx and no more; whether it was true, the next look tells."""
    _request, made = living
    break_all(
        stand,
        kind="status",
        method="DELETE" if stand.service in ("gcp", "paperspace", "runpod", "vast", "vultr") else "POST",
        status=status,
        body=HTML,
    )
    cloud = stand.cloud()
    try:
        cloud.terminate(made)
        assert status == 200
    except errors.ApiError as error:
        assert stand.service in str(error)
    found = cloud.instance(made)
    assert found is not None and found.state not in (InstanceState.TERMINATING, InstanceState.TERMINATED)
    stand.faults.clear()
    cloud.terminate(made)
    stand.wait_for(cloud, made, {None, InstanceState.TERMINATED})
    assert stand.billed() == 0


@pytest.mark.parametrize("verb", ["offers", "instances"])
def test_half_a_list_is_no_list(stand: Stand, living: tuple[LaunchRequest, str], verb: str) -> None:
    break_all(stand, kind="truncate")
    asked(stand, verb, living)


@pytest.mark.parametrize("entry", [None, 3, "text", [], {}, {"id": "", "state": "ready", "status": "active"}])
def test_one_odd_entry_spoils_the_list(stand: Stand, living: tuple[LaunchRequest, str], entry: t.Any) -> None:
    """D-16: an entry that is not understood may be a machine that costs money."""
    wrap = {
        "gcp": {"kind": "compute#instanceAggregatedList", "items": {"zones/us-central1-a": {"instances": [entry]}}},
        "lambda": {"data": [entry]},
        "paperspace": {"items": [entry], "hasMore": False},
        "runpod": {"pods": [entry]},
        "vast": {"success": True, "instances": [entry], "next_token": None},
        "vultr": {"instances": [entry], "meta": {"total": 1, "links": {"next": "", "prev": ""}}},
        "webhook": entry,
    }[stand.service]
    break_all(stand, kind="body", method="GET", path=stand.list_path, body=wrap)
    said = asked(stand, "instances", living)
    assert stand.service == "webhook" or said.startswith("BadShape") and "not taken as an empty list" in said


# ---- keys


@pytest.mark.parametrize("verb", VERBS)
def test_a_bad_key_is_told_by_every_verb(stand: Stand, living: tuple[LaunchRequest, str], verb: str) -> None:
    if stand.service == "webhook" and verb in ("instances", "offers", "instance"):
        asked(stand, verb, living, key=WRONG)
        return
    said = asked(stand, verb, living, key=WRONG)
    assert stand.service in said and WRONG not in said
    assert "key" in said.lower() or "auth" in said.lower(), said
    assert stand.billed() == 1


def test_a_key_that_dies_meanwhile_never_means_gone(stand: Stand, living: tuple[LaunchRequest, str]) -> None:
    """The same client, the same machine: it worked, then the key was withdrawn."""
    cloud, (_request, made) = stand.cloud(), living
    assert cloud.instance(made) is not None
    break_all(stand, kind="status", status=401, body={"message": "the key was withdrawn"})
    if stand.service == "webhook":
        found = cloud.instance(made)
        assert found is not None and found.state is InstanceState.UNKNOWN
    else:
        with pytest.raises(errors.Unauthorized):
            cloud.instance(made)
        with pytest.raises(errors.Unauthorized):
            cloud.instances()
    with pytest.raises((errors.Unauthorized, errors.Forbidden)):
        cloud.terminate(made)
    assert stand.billed() == 1


# ---- no room, no money


def _no_quota(stand: Stand) -> str:
    match stand.service:
        case "gcp":
            gcp_account.Account.of(stand.world).gpus_all_regions = 0
        case "lambda":
            lambda_account.Account.of(stand.world).quota = 0
        case "paperspace":
            paperspace_account.Account.of(stand.world).switches.turn({"max_machines": 0})
        case "runpod":
            runpod_account.Account.of(stand.world).spend_limit = Decimal("0.01")
        case "vast":
            t.cast(t.Any, stand).mood(spend_limit=Decimal("0.01"))
        case "vultr":
            vultr_account.Account.of(stand.world).quota = 0
    return {"gcp": "quota", "lambda": "quota", "paperspace": "quota", "vultr": "quota"}.get(
        stand.service, "balance"
    )  # a limit of money is a matter of money


def _no_money(stand: Stand) -> str:
    match stand.service:
        case "gcp":
            gcp_account.Account.of(stand.world).billing = False
        case "lambda":
            lambda_account.Account.of(stand.world).active = False
            return "auth"
        case "paperspace":
            paperspace_account.Account.of(stand.world).switches.turn({"payment_method": False})
            return "balance"
        case "runpod":
            runpod_account.Account.of(stand.world).balance = Decimal(0)
        case "vast":
            t.cast(t.Any, stand).mood(credit=Decimal(0))
        case "vultr":
            vultr_account.Account.of(stand.world).in_credit = False
    return "balance"


@pytest.mark.parametrize("lack", [_no_quota, _no_money])
def test_L14_without_quota_or_money_nothing_is_made(rented: Stand, lack: t.Callable[[Stand], str]) -> None:
    request = rented.request()
    reason = lack(rented)
    with pytest.raises(errors.LaunchRefused) as caught:
        rented.cloud().launch(request)
    assert (caught.value.reason, caught.value.instance_id) == (reason, None), str(caught.value)
    assert rented.service in str(caught.value)
    assert rented.billed() == 0 and rented.cloud().extras() == []


def test_L14_what_is_sold_out_meanwhile_is_told_and_leaves_nothing(rented: Stand) -> None:
    request, cloud = rented.request(), rented.cloud()
    for offer in rented.world.offers:
        offer.stock = 0
    try:
        made = cloud.launch(request)
    except errors.LaunchRefused as refused:
        assert refused.reason in ("capacity", "conflict") and rented.service in str(refused)
    else:  # a cloud that finds out later: its machine fails with a word about it
        rented.wait_for(cloud, made, {InstanceState.FAILED})
        found = cloud.instance(made)
        assert found is not None and "capacity" in found.problem.lower()
        cloud.terminate(made)
        rented.wait_for(cloud, made, {None, InstanceState.TERMINATED})
    assert rented.billed() == 0
    for extra in cloud.extras():
        cloud.discard(extra)
    assert cloud.extras() == []


# ---- lost answers to a destroy


@pytest.mark.parametrize("kind", ["lost_before", "lost_after", "status_after"])
def test_L10_a_lost_answer_to_a_destroy_does_no_harm(stand: Stand, living: tuple[LaunchRequest, str], kind: str) -> None:
    """It may be asked again at once; or the error says that nobody knows. In the end the bill has ended."""
    _request, made = living
    path = {"gcp": "/instances/", "lambda": "terminate$", "webhook": "/stop$"}.get(stand.service, made)
    method = "POST" if stand.service in ("lambda", "webhook") else "DELETE"
    rule = stand.faults.add({"kind": kind, "method": method, "path": path, "status": 502, "times": 1})
    cloud = stand.cloud()
    try:
        cloud.terminate(made)
    except errors.ApiError as error:
        assert stand.service in str(error)
        cloud.terminate(made)
    assert rule.hits == 1
    stand.wait_for(cloud, made, {None, InstanceState.TERMINATED})
    assert stand.billed() == 0


# ---- machines that vanish and come back


def test_what_vanishes_is_gone_and_what_comes_back_is_the_same(rented: Stand) -> None:
    cloud = rented.cloud()
    made = cloud.launch(rented.request())
    rented.wait_for(cloud, made, {InstanceState.RUNNING})
    rented.world.clock.sleep(300)  # a machine this old may not be missing from a list any more
    with rented.world.lock:
        away = rented.world.machines.pop(made)
    assert cloud.instance(made) is None and cloud.instances() == []
    cloud.terminate(made)  # success: it is gone as far as the cloud knows
    assert away.ended is None
    with rented.world.lock:
        rented.world.machines[made] = away
    (found,) = cloud.instances()
    assert (found.id, found.name, found.state) == (made, away.name, InstanceState.RUNNING)
    cloud.terminate(made)
    rented.wait_for(cloud, made, {None, InstanceState.TERMINATED})
    assert rented.billed() == 0


def test_L13_a_price_that_changes_is_seen_on_the_machine(rented: Stand) -> None:
    cloud = rented.cloud()
    made = cloud.launch(rented.request())
    rented.wait_for(cloud, made, {InstanceState.RUNNING})
    before, machine = cloud.instance(made), rented.world.machines[made]
    rented.world.clock.advance(301)  # for so long a price that a machine does not say itself may be remembered
    assert before is not None and before.price_hour is not None
    machine.offer.price_hour += 1
    if "usage_rate" in machine.details:
        machine.details["usage_rate"] += 1
    after = cloud.instance(made)
    rise = 0 if rented.service == "gcp" else 1  # its API has no prices: they are a table
    assert after is not None and after.price_hour == before.price_hour + rise


def test_a_client_serves_many_threads_on_a_bad_day(stand: Stand, living: tuple[LaunchRequest, str]) -> None:
    """Half of all calls fail; what answers, answers right."""
    cloud, (_request, made) = stand.cloud(), living
    for number in range(0, 12, 2):
        stand.faults.add({"kind": "lost_before", "method": "GET", "after_calls": number, "times": 1})
    found: list[t.Any] = []

    def look() -> None:
        try:
            found.append([one.id for one in cloud.instances() if one.id == made])
        except errors.ApiError as error:
            found.append(error)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 6
    assert all(isinstance(one, errors.ApiError) or one == [made] for one in found)


# ---- the modules for one machine


ONE_MACHINE: dict[str, tuple[t.Any, dict[str, t.Any]]] = {
    "lambda": (lambda_instance, {"instance_type": "gpu_1x_a10"}),
    "paperspace": (paperspace_machine, {"machine_type": "A4000"}),
    "runpod": (runpod_pod, {"gpu_type": "RTX 4090", "image": "registry.example/agent:1", "ports": ["22/tcp"]}),
    "vast": (vast_instance, {"gpu_type": "RTX 4090"}),
}


def one_machine(stand: Stand, **params: t.Any) -> dict[str, t.Any]:
    module, spec = ONE_MACHINE[stand.service]
    account = {f"{stand.service}_api_url": stand.base, f"{stand.service}_api_key": KEY}
    return call(module, stand, **{"name": "tgp-bad-day", **spec, **account, **params})


def test_one_machine_that_never_starts_is_late_and_shown(single: Stand) -> None:
    """It may start later, so it stays; the result shows what to give back."""
    for offer in single.world.offers:
        offer.boot_seconds = 1e9
    late = one_machine(single, wait_timeout=60)
    assert late["failed"] and "tgp-bad-day" in late["msg"] and "60 s" in late["msg"], late
    shown = late["instance"]
    assert shown["cloud"] == single.service and shown["id"] in single.world.machines
    assert one_machine(single, state="absent")["changed"]
    assert single.billed() == 0


def test_one_machine_that_vanishes_while_it_is_awaited_is_told(single: Stand) -> None:
    def vanish(machine: Machine) -> None:
        single.world.clock.sleep(300)
        single.world.release(machine)
        machine.state, machine.destroyed = "terminated", machine.ended

    single.world.on_boot = vanish
    told = one_machine(single, wait_timeout=3000)
    assert told["failed"] and "tgp-bad-day ended while it was awaited" in told["msg"], told
    assert single.billed() == 0
    assert not one_machine(single, state="absent")["changed"]


@pytest.mark.parametrize("lack", [_no_quota, _no_money])
def test_one_machine_without_quota_or_money_is_told_and_not_made(single: Stand, lack: t.Callable[[Stand], str]) -> None:
    lack(single)
    told = one_machine(single)
    assert told["failed"] and f"{single.service}: " in told["msg"], told
    assert single.world.machines == {} and single.cloud().extras() == []
