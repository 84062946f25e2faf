# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states of many own machines: asked for side by side, or in one call where one endpoint answers for all (L-21)."""

from __future__ import annotations

import re
import threading
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudChoice, Instance, InstanceState, Machine, SecretRef
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook import machines as webhook_machines
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.cloud import WebhookCloud

from sandbox.clock import SimClock

from .stands import WebhookStand

AT_ONCE = 64
ROOT = "https://power.test"
BULK = f"{ROOT}/status"


class Service:
    """A power service that answers each GET with what ``answer`` makes of its path, and counts them. ``most`` were under way at once."""

    def __init__(self, answer: t.Callable[[str], t.Any]) -> None:
        self.paths: list[str] = []
        self.most = self._now = 0
        self._answer, self._lock = answer, threading.Lock()

    def transport(self, _url: str) -> httpx.BaseTransport:
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.paths.append(request.url.path)
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            answer = self._answer(request.url.path)
        finally:
            with self._lock:
                self._now -= 1
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


def machine(name: str, **more: t.Any) -> Machine:
    return Machine(name, 1, f"{ROOT}/{name}/start", f"{ROOT}/{name}/stop", **more)


def connected(service: Service, machines: t.Sequence[Machine], **more: t.Any) -> WebhookCloud:
    return WebhookCloud(machines, transport=service.transport, **{"clock": SimClock(speed=1000.0), **more})


# ---- side by side


@pytest.mark.parametrize("verb", ["instances", "offers", "check"])
def test_states_are_asked_for_side_by_side_and_no_more_than_so_many_at_once(verb: str) -> None:
    together = threading.Barrier(AT_ONCE, timeout=60)

    def answer(_path: str) -> dict[str, str]:
        together.wait()  # broken, and the call with it, unless so many arrive while none is answered
        return {"state": "off"}

    machines = [machine(f"rack-{number}", status_endpoint=f"{ROOT}/rack-{number}/status") for number in range(2 * AT_ONCE)]
    service = Service(answer)
    cloud = connected(service, machines)
    read = getattr(cloud, verb)()
    assert len(service.paths) == len(set(service.paths)) == 2 * AT_ONCE, "each is asked once"
    assert service.most == AT_ONCE
    if verb != "check":
        assert [item.id for item in read] == [one.name for one in machines], "in the order of the class"
        assert len(cloud.connections._apis) == 1, "over one client"


def test_nodes_are_asked_for_side_by_side_where_they_show_the_state() -> None:
    together = threading.Barrier(3, timeout=60)

    def ready(_node: str) -> bool:
        together.wait()
        return True

    cloud = connected(Service(dict), [machine(f"rack-{number}") for number in range(3)], node_ready=ready)
    assert [instance.state for instance in cloud.instances()] == [InstanceState.RUNNING] * 3


def test_a_silent_service_makes_its_machine_unknown_beside_the_others() -> None:
    def answer(path: str) -> t.Any:
        return httpx.Response(500) if "rack-1" in path else {"state": "on"}

    machines = [machine(f"rack-{number}", status_endpoint=f"{ROOT}/rack-{number}/status") for number in range(3)]
    shown = connected(Service(answer), machines).instances()
    assert [instance.state for instance in shown] == [InstanceState.RUNNING, InstanceState.UNKNOWN, InstanceState.RUNNING]
    assert "500" in shown[1].problem


# ---- one call for all


def bulk(answer: t.Any, **more: t.Any) -> tuple[Service, WebhookCloud]:
    service = Service(lambda _path: answer)
    machines = [machine(f"rack-{number}") for number in range(3)]
    return service, connected(service, machines, bulk_status_endpoint=BULK, **more)


def listed(*states: str) -> dict[str, t.Any]:
    return {"machines": [{"name": f"rack-{number}", "state": state} for number, state in enumerate(states)]}


def states(shown: t.Iterable[Instance]) -> list[str]:
    return [instance.raw_state for instance in shown]


def test_L21_one_call_tells_the_states_of_all_machines() -> None:
    service, cloud = bulk(listed("off", "ON", "stopping"))
    assert states(cloud.instances()) == ["off", "on", "stopping"] and service.paths == ["/status"]
    assert [offer.available for offer in cloud.offers()] == [1, 0, 0] and service.paths == ["/status"]
    assert "3 of 3 machines" in cloud.check().sentence and service.paths == ["/status"] * 2


def test_L21_what_is_off_is_read_again_after_ten_seconds_and_after_a_call_of_ours() -> None:
    """The plan reads machines and then what can be switched on: that is one look at each of them."""
    clock = SimClock(speed=0.001)
    service, cloud = bulk(listed("off", "off", "on"), clock=clock)
    cloud.instances()
    cloud.offers()
    clock.advance(9)
    cloud.offers()
    assert len(service.paths) == 1
    clock.advance(2)
    cloud.offers()
    assert len(service.paths) == 2
    cloud.switch_off(machine("rack-2"))
    cloud.offers()
    assert service.paths[2:] == ["/rack-2/stop", "/status"]


def test_L21_a_machine_that_the_answer_lacks_is_unknown_and_not_off() -> None:
    _service, cloud = bulk(listed("off", "off"))
    shown = cloud.instances()[2]
    assert shown.state is InstanceState.UNKNOWN and not shown.gone and "rack-2 is not in the answer" in shown.problem
    assert [offer.available for offer in cloud.offers()] == [1, 1, 0], "nor is it offered"
    check = cloud.check()
    assert "2 of 3 machines" in check.sentence and "rack-2 is not in the answer" in check.warnings[0]


def test_L21_machines_of_others_in_the_answer_are_passed_over() -> None:
    _service, cloud = bulk({"machines": [*listed("off", "off", "on")["machines"], {"name": "desk", "state": "asleep"}], "page": 1})
    assert states(cloud.instances()) == ["off", "off", "on"]


@pytest.mark.parametrize("odd", [{}, {"state": "asleep"}, {"state": None}, {"state": True}])
def test_L21_a_state_that_is_not_understood_concerns_its_machine_only(odd: dict[str, t.Any]) -> None:
    _service, cloud = bulk({"machines": [*listed("off", "on")["machines"], {"name": "rack-2", **odd}]})
    assert states(cloud.instances()) == ["off", "on", "unknown"]
    assert "state should be one of off, starting, on, stopping" in cloud.instances()[2].problem


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([], "machines should be a list"),
        ({}, "machines should be a list"),
        ({"machines": {"rack-0": {"state": "off"}}}, "machines should be a list"),
        ({"machines": ["rack-0"]}, "the name of each machine should be a str"),
        ({"machines": [{"state": "off"}]}, "the name of each machine should be a str"),
        ({"machines": [*listed("off", "off")["machines"], {"name": "rack-0", "state": "on"}]}, "it lists rack-0 twice"),
        (httpx.Response(200, text="<html>"), "it is not JSON"),
        (httpx.Response(302, headers={"location": "https://elsewhere.test/"}), "redirect to https://elsewhere.test/, not followed"),
        (httpx.Response(503), "503"),
    ],
)
def test_L21_an_answer_that_is_not_understood_makes_every_machine_unknown(answer: t.Any, problem: str) -> None:
    _service, cloud = bulk(answer)
    shown = cloud.instances()
    assert states(shown) == ["unknown"] * 3 and all(problem in instance.problem for instance in shown)
    with pytest.raises(errors.ApiError, match=re.escape(problem)):
        cloud.check()


def test_L21_one_machine_is_asked_for_at_its_own_endpoint_where_it_has_one() -> None:
    service = Service(lambda path: listed("off", "off") if path == "/status" else {"state": "on"})
    own = machine("rack-1", status_endpoint=f"{ROOT}/rack-1/status")
    cloud = connected(service, [machine("rack-0"), own], bulk_status_endpoint=BULK)
    assert states(cloud.instances()) == ["off", "off"] and service.paths == ["/status"]
    first, second = cloud.instance("rack-0"), cloud.instance("rack-1")
    assert first is not None and second is not None and (first.raw_state, second.raw_state) == ("off", "on")
    assert service.paths == ["/status", "/status", "/rack-1/status"]


def test_K01_a_machine_that_is_off_by_the_answer_for_all_gets_no_call(webhook_stand: WebhookStand) -> None:
    cloud = webhook_stand.cloud(status=False, bulk_status_endpoint=f"{webhook_stand.base}/status")
    cloud.terminate("rack-1")
    assert not webhook_stand.world.writes
    webhook_stand.world.machines["rack-1"].state = "on"
    cloud.terminate("rack-1")
    assert len(webhook_stand.world.writes) == 1


def test_the_sandbox_answers_for_all_its_own_machines_and_needs_the_key(webhook_stand: WebhookStand) -> None:
    webhook_stand.world.machines["rack-2"].state = "on"
    cloud = webhook_stand.cloud(status=False, bulk_status_endpoint=f"{webhook_stand.base}/status")
    assert states(cloud.instances()) == ["off", "on", "off"] and webhook_stand.world.calls["webhook"] == 1
    assert (
        states(webhook_stand.cloud(None, status=False, bulk_status_endpoint=f"{webhook_stand.base}/status").instances())
        == ["unknown"] * 3
    )


# ---- where it may lead, and who says it


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://elsewhere.test/status", r"settings.bulkStatusEndpoint leads to https://elsewhere.test, and the key"),
        ("http://power.test/status", "settings.bulkStatusEndpoint leads to http://power.test, and the key .* clear text"),
        ("https://169.254.169.254/status", "settings.bulkStatusEndpoint leads to .* link-local"),
        ("ftp://power.test/status", "settings.bulkStatusEndpoint is not an http or https address"),
    ],
)
def test_an_endpoint_for_all_that_must_not_get_the_key_is_refused_before_any_call(
    webhook_stand: WebhookStand, url: str, problem: str
) -> None:
    hosts = webhook_machines.listed(["power.test"])
    with pytest.raises(errors.InvalidInput) as caught:
        webhook_stand.cloud(bulk_status_endpoint=url, key_hosts=hosts)
    (found,) = caught.value.problems
    assert re.search(problem, found), found
    assert not webhook_stand.world.calls


def test_the_key_of_a_class_goes_to_the_endpoint_for_all_that_stands_beside_it() -> None:
    choice = CloudChoice(
        "webhook",
        credentials=SecretRef("power", "key"),
        machines=(machine("rack-0"),),
        settings={"bulkStatusEndpoint": "https://states.test/all"},
        key_for_machines=True,
    )
    where = webhook_machines.origin("https://states.test/")
    assert where in webhook_machines.key_hosts(Task({}), choice, "", (), key_given=False)
    assert where not in webhook_machines.key_hosts(Task({}), choice, "", (), key_given=True)


def test_an_endpoint_for_all_may_be_a_path_below_the_power_service() -> None:
    choice = CloudChoice("webhook", settings={"bulkStatusEndpoint": "/status"})
    assert webhook_machines.bulk_endpoint(choice, "https://power.test/racks") == "https://power.test/racks/status"
    assert webhook_machines.bulk_endpoint(CloudChoice("webhook"), ROOT) == webhook_machines.bulk_endpoint(None, ROOT) == ""
    with pytest.raises(errors.InvalidInput, match="bulkStatusEndpoint is a path"):
        webhook_machines.bulk_endpoint(choice, "")
