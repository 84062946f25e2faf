# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paid part of provider_verify: a cap that holds, and nothing that stays, also after a kill."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import time
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.ensure_instance import NamedInstance
from ansible_collections.tgp.gpu.plugins.module_utils.verify import ask, rented
from ansible_collections.tgp.gpu.plugins.module_utils.verify.rented import Rental, machine_name

from sandbox.lagging import set_list_after

from .stage import CLOUDS, Subject

RENT: dict[str, t.Any] = {"rent": True, "max_cost": "5.00"}


class Killed(BaseException):
    """The process is gone: no line of code after it runs, the cleaning up included."""


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> t.Iterator[Subject]:
    made = Subject(request.param)
    yield made
    made.close()


@pytest.fixture
def lambda_() -> t.Iterator[Subject]:
    made = Subject("lambda")
    yield made
    made.close()


def kill_at(moment: str, patch: pytest.MonkeyPatch) -> None:
    """The process dies at the moment, so its ``finally`` does nothing either."""
    dead: list[bool] = []

    def die(*_given: t.Any, **_more: t.Any) -> t.Any:
        dead.append(True)
        raise Killed

    end, look, launch = Rental._end, Rental._look, NamedInstance.present

    def end_unless_dead(self: Rental) -> None:
        if dead or moment == "before the end":
            die()
        end(self)

    def present_and_die(self: NamedInstance, *given: t.Any, **more: t.Any) -> t.Any:
        result = launch(self, *given, **more)
        return die(result)

    def look_and_die(self: Rental, *given: t.Any) -> None:
        look(self, *given)
        if moment == "first look" or len(self.life.looks) > 4:
            die()

    patch.setattr(Rental, "_end", end_unless_dead)
    match moment:
        case "before the call":
            patch.setattr(NamedInstance, "present", die)
        case "call sent":
            # the answer is lost to the process: it dies between the call and the record of its id
            from ansible_collections.tgp.gpu.plugins.module_utils.providers.ensure_instance import _Launching

            patch.setattr(_Launching, "created", die)
        case "launched":
            patch.setattr(NamedInstance, "present", present_and_die)
        case "first look" | "later look":
            patch.setattr(Rental, "_look", look_and_die)
        case "during the end":
            from ansible_collections.tgp.gpu.plugins.module_utils.providers.termination import Termination

            patch.setattr(Termination, "wait_until_gone", die)
            patch.setattr(Rental, "_end", end)


MOMENTS = ("before the call", "call sent", "launched", "first look", "later look", "before the end", "during the end")


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left_after_the_next_call(cloud: Subject, moment: str) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        kill_at(moment, patch)
        cloud.run(**RENT)
    if moment not in ("before the call", "during the end"):
        assert cloud.names() == [machine_name(cloud.service)]
    again = cloud.run()  # without rent: the record of this host is enough
    assert cloud.names() == [] and not again["report"]["left_behind"]


def test_another_host_ends_it_with_rent(cloud: Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: t.Any) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        kill_at("launched", patch)
        cloud.run(**RENT)
    monkeypatch.setenv("TGP_STATE_DIR", str(tmp_path / "another"))
    cloud.run()
    assert len(cloud.names()) == 1, "without a record and without rent nothing is ended"
    assert not cloud.run(**RENT).get("failed")
    assert cloud.names() == []


def test_the_cap_holds_during_the_watch(lambda_: Subject) -> None:
    """A machine that never comes up is ended when the cap is near, and has cost less."""
    assert lambda_.stand is not None
    lambda_.world.on_boot = lambda _machine: None
    result = lambda_.run(rent=True, max_cost="0.15")
    assert lambda_.names() == [] and result["failed"]
    facts = {row["id"]: row for row in result["report"]["facts"]}
    assert "cost cap" in facts["lambda.life.up"]["seen"]
    (machine,) = lambda_.world.machines.values()
    assert machine.cost(lambda_.world.clock.now()) <= Decimal("0.15")


def test_a_machine_that_is_dearer_than_its_offer_is_ended_at_once(lambda_: Subject) -> None:
    app = lambda_.app

    def dearer(environ: t.Any, start_response: t.Any) -> t.Iterable[bytes]:
        if not environ["PATH_INFO"].startswith("/api/v1/instances"):
            return app(environ, start_response)
        kept: list[t.Any] = []
        body = b"".join(app(environ, lambda status, headers, *_more: kept.extend((status, headers))))
        body = re.sub(rb'("price_cents_per_hour": ?)\d+', rb"\g<1>900", body)
        start_response(kept[0], [(name, value) for name, value in kept[1] if name.lower() != "content-length"])
        return [body]

    lambda_.app = dearer
    result = lambda_.run(**RENT)
    assert result["failed"] and "ended early" in result["msg"] and lambda_.names() == []
    assert result["report"]["left_behind"] == [] and result["changed"]
    assert "costs more than its offer" in result["msg"]


def test_an_error_while_watching_ends_the_machine(cloud: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError

    def fail(*_given: t.Any) -> None:
        raise TgpError("something is wrong")

    monkeypatch.setattr(Rental, "_look", fail)
    result = cloud.run(**RENT)
    assert result["failed"] and "ended early" in result["msg"] and cloud.names() == []


def test_an_interrupt_ends_the_machine(cloud: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_given: t.Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Rental, "_look", interrupt)
    result = cloud.run(**RENT)
    assert result["failed"] and "ended early: interrupted" in result["msg"] and cloud.names() == []


def test_what_cannot_be_ended_is_the_first_line(lambda_: Subject) -> None:
    assert lambda_.stand is not None
    lambda_.stand.faults.add({"kind": "status", "method": "POST", "path": "/terminate$", "status": 500, "times": None})
    result = lambda_.run(**RENT)
    assert result["failed"] and len(lambda_.names()) == 1
    assert result["markdown"].splitlines()[0].startswith("**LEFT BEHIND AND BILLED: lambda, machine tgp-verify-lambda")
    assert result["msg"].startswith("Left behind and billed: lambda, machine tgp-verify-lambda")
    lambda_.stand.faults.clear()
    assert not lambda_.run(**RENT).get("failed") and lambda_.names() == []


def test_machines_of_others_are_not_touched(lambda_: Subject) -> None:
    """One of the name that this collection did not make stays, and is reported."""
    assert lambda_.stand is not None
    cloud = lambda_.stand.cloud()
    request = lambda_.stand.request(name=machine_name("lambda"), marks={})
    cloud.launch(request)
    (machine,) = lambda_.world.machines.values()
    machine.details["tags"] = []
    result = lambda_.run(**RENT)
    assert result["failed"] and len(lambda_.names()) == 1


def test_sigterm_ends_the_machine_and_a_second_one_does_not_disturb_that(lambda_: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(*_given: t.Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)  # the handler ends this

    def end_disturbed(*given: t.Any) -> list[str]:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        return end(*given)

    end = rented.end_all
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Rental, "_look", terminated)
    monkeypatch.setattr(rented, "end_all", end_disturbed)
    result = lambda_.run(**RENT)
    assert "ended early: interrupted" in result["msg"]
    assert lambda_.names() == [] and signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("service", ["paperspace", "vast"])
def test_the_machine_is_found_on_a_later_page(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(service)
    assert subject.stand is not None and subject.table.watch is not None
    try:
        for name in ("tgp-a1b2c3d4-train-00001", "tgp-a1b2c3d4-train-00002"):
            subject.stand.cloud().launch(subject.stand.request(name=name))
        looks = dataclasses.replace(subject.table.watch, list_params={"limit": 1})
        monkeypatch.setitem(ask.CLOUDS, service, dataclasses.replace(subject.table, watch=looks))
        result = subject.run(**RENT)
        assert not result.get("failed"), result["msg"]
        assert len(subject.names()) == 2 and machine_name(service) not in subject.names()
    finally:
        subject.close()


CREATE = {
    "gcp": ("POST", r"/instances\?"),
    "lambda": ("POST", "/instance-operations/launch$"),
    "paperspace": ("POST", "/machines$"),
    "runpod": ("POST", "/pods$"),
    "vast": ("PUT", "/asks/"),
    "vultr": ("POST", "/instances$"),
}


def listed(subject: Subject, *, after: float) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """The result with a list that shows a new machine so late, and what it says of that."""
    set_list_after(subject.world, subject.service, after)
    result = subject.run(**RENT)
    facts = {row["id"]: row for row in result["report"]["facts"]}
    return result, facts[f"{subject.service}.life.listed"]


def test_a_slow_answer_to_the_create_call_is_no_part_of_the_delay_of_the_list(cloud: Subject) -> None:
    """The machine is made after 45 s, and is in the list as late as it may be: 45 s later than it may be after the launch."""
    assert cloud.stand is not None
    method, path = CREATE[cloud.service]
    fault = cloud.stand.faults.add({"kind": "delay", "seconds": 45.0, "method": method, "path": path})
    result, fact = listed(cloud, after=cloud.stand.cloud().facts.list_delay)
    assert fault.hits == 1 and not result.get("failed"), result["msg"]
    assert fact["outcome"] == "matches", fact["seen"]


def test_a_list_that_is_later_than_the_facts_say_is_reported(cloud: Subject) -> None:
    assert cloud.stand is not None
    result, fact = listed(cloud, after=cloud.stand.cloud().facts.list_delay + 45.0)
    assert result["failed"] and fact["outcome"] == "differs", fact["seen"]
