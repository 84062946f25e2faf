# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is peculiar to Lambda."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import threading
import typing as t
from decimal import Decimal

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors, redact
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState, LaunchRequest

from sandbox.clock import SimClock
from sandbox.lambda_account import Account

from .stands import KEY, LambdaStand, lambda_offer


def error(code: str, message: str = "no") -> dict[str, t.Any]:
    return {"error": {"code": code, "message": message}}


# ---- offers


def test_offers_are_one_per_region_with_capacity_and_one_when_sold_out(lambda_stand: LambdaStand) -> None:
    offers = {one.id: one for one in lambda_stand.cloud().offers()}
    assert set(offers) == {
        "gpu_1x_a10@us-east-1",
        "gpu_8x_a100_80gb_sxm4",
        "gpu_1x_gh200@us-east-3",
        "gpu_8x_v100@us-south-2",
        "cpu_4x_general@us-midwest-1",
    }
    a10 = offers["gpu_1x_a10@us-east-1"]
    assert (a10.price_hour, a10.model, a10.gpu_count, a10.gpu_memory_mib) == (Decimal("1.29"), "A10", 1, 24576)
    assert (a10.region, a10.cloud_region, a10.available, a10.arch) == ("us-east", "us-east-1", None, "amd64")
    assert (a10.vcpus, a10.memory_mib, a10.disk_gib) == (30, 200 * 1024, 1400)
    sold_out = offers["gpu_8x_a100_80gb_sxm4"]
    assert (sold_out.available, sold_out.cloud_region, sold_out.model) == (0, "", "A100-SXM")
    assert sold_out.gpu_memory_mib == 80 * 1024
    assert offers["gpu_1x_gh200@us-east-3"].arch == "arm64"
    assert offers["gpu_8x_v100@us-south-2"].model == "V100-SXM2"
    cpu = offers["cpu_4x_general@us-midwest-1"]
    assert (cpu.gpu_count, cpu.model, cpu.gpu_memory_mib, cpu.region) == (0, "", None, "us-central")


def test_a_model_nobody_knows_keeps_the_words_of_the_cloud(lambda_stand: LambdaStand) -> None:
    strange = lambda_offer("gpu_1x_a10", "us-east-1", gpu_description="R500 (512 GB SXM9)", description="1x R500 (512 GB SXM9)")
    strange.type = "gpu_1x_r500"
    lambda_stand.world.offers = [strange]
    (offer,) = lambda_stand.cloud().offers()
    assert (offer.model, offer.gpu_memory_mib) == ("R500", 512 * 1024)


@pytest.mark.parametrize(
    "entry",
    [
        {"instance_type": {"name": "x"}},
        {
            "instance_type": {"name": "x", "price_cents_per_hour": "129", "specs": {"gpus": 1}},
            "regions_with_capacity_available": [],
        },
        {"instance_type": {"name": "x", "price_cents_per_hour": 129, "specs": {}}, "regions_with_capacity_available": []},
        {
            "instance_type": {"name": "x", "price_cents_per_hour": 129, "specs": {"gpus": 1}},
            "regions_with_capacity_available": None,
        },
        [],
    ],
)
def test_types_of_which_none_can_be_read_are_no_empty_market(lambda_stand: LambdaStand, entry: t.Any) -> None:
    lambda_stand.faults.add({"kind": "body", "path": "instance-types", "body": {"data": {"x": entry}}})
    with pytest.raises(errors.BadShape):
        lambda_stand.cloud().offers()


# ---- launch


def test_a_machine_carries_name_marks_payload_and_time(lambda_stand: LambdaStand) -> None:
    cloud = lambda_stand.cloud()
    marks = {"cluster": "a1b2c3d4", "pool": "default/train", "nonce": "7f3c1e", "tgp.io/Owner_Name": "x"}
    made = cloud.launch(lambda_stand.request(user_data="#cloud-config\n", marks=marks))
    machine = lambda_stand.world.machines[made]
    assert machine.payload == "#cloud-config\n"
    assert machine.hostname == machine.name == "tgp-a1b2c3d4-train-0k3zq"
    assert machine.details["image"] == {"family": "gpu-base-24-04"}
    assert machine.details["ssh_key_names"] == ["tgp"]
    seen = cloud.instance(made)
    assert seen is not None
    assert seen.marks | {"created": ""} == {
        "cluster": "a1b2c3d4",
        "pool": "default/train",
        "nonce": "7f3c1e",
        "owner-name": "x",
        "created": "",
    }
    assert seen.created is not None and abs((seen.created - machine.created).total_seconds()) < 60
    assert (seen.price_hour, seen.region, seen.instance_type, seen.model) == (Decimal("1.29"), "us-east-1", "gpu_1x_a10", "A10")


def test_a_price_other_than_the_shown_one_is_seen_on_the_machine(lambda_stand: LambdaStand) -> None:
    offer = next(one for one in lambda_stand.world.offers if one.type == "gpu_1x_a10")
    offer.details["shown_price"], offer.price_hour = Decimal("1.29"), Decimal("1.50")
    cloud = lambda_stand.cloud()
    request = lambda_stand.request()
    assert request.offer.price_hour == Decimal("1.29")
    seen = cloud.instance(cloud.launch(request))
    assert seen is not None and seen.price_hour == Decimal("1.5")


@pytest.mark.parametrize(
    ("offer_id", "family"),
    [("gpu_1x_gh200@us-east-3", "lambda-stack-24-04"), ("gpu_8x_v100@us-south-2", "lambda-stack-legacy-22-04")],
)
def test_machines_without_a_plain_gpu_image_get_the_one_there_is(lambda_stand: LambdaStand, offer_id: str, family: str) -> None:
    made = lambda_stand.cloud().launch(lambda_stand.request(offer_id=offer_id))
    assert lambda_stand.world.machines[made].details["image"] == {"family": family}


def test_the_class_says_image_and_ssh_key(lambda_stand: LambdaStand) -> None:
    Account.of(lambda_stand.world).add_key("other", "ssh-ed25519 AAAA other")
    settings = {"sshKey": "other", "imageFamily": "ubuntu-24-04"}
    made = lambda_stand.cloud().launch(lambda_stand.request(settings=settings))
    details = lambda_stand.world.machines[made].details
    assert (details["ssh_key_names"], details["image"]) == (["other"], {"family": "ubuntu-24-04"})


@pytest.mark.parametrize("names", [[], ["one", "two"]])
def test_without_a_clear_ssh_key_nothing_is_sent(lambda_stand: LambdaStand, names: list[str]) -> None:
    account = Account.of(lambda_stand.world)
    account.ssh_keys.clear()
    for name in names:
        account.add_key(name, "ssh-ed25519 AAAA x")
    with pytest.raises(errors.LaunchRefused) as caught:
        lambda_stand.cloud().launch(lambda_stand.request())
    assert caught.value.reason == "invalid" and caught.value.remedy
    assert all(name in str(caught.value) for name in names)
    assert not lambda_stand.world.writes


def test_S0_06_the_check_looks_at_ssh_keys(lambda_stand: LambdaStand) -> None:
    account = Account.of(lambda_stand.world)
    account.ssh_keys.clear()
    with pytest.raises(errors.InvalidInput, match="no SSH key"):
        lambda_stand.cloud().check()
    account.add_key("one", "ssh-ed25519 AAAA x")
    assert not lambda_stand.cloud().check().warnings
    with pytest.raises(errors.InvalidInput, match="no SSH key two, but one"):
        lambda_stand.cloud(ssh_key="two").check()
    account.add_key("two", "ssh-ed25519 AAAA x")
    assert not lambda_stand.cloud(ssh_key="two").check().warnings
    assert "one, two" in lambda_stand.cloud().check().warnings[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Not_A_Host"}, "host name"),
        ({"user_data": "x" * 1_000_001}, "1000001 bytes"),
        ({"max_price_hour": Decimal("1.28")}, "1.29"),
    ],
)
def test_what_cannot_work_is_refused_before_the_call(lambda_stand: LambdaStand, change: dict[str, t.Any], words: str) -> None:
    request = dataclasses.replace(lambda_stand.request(), **change)
    with pytest.raises(errors.LaunchRefused, match=words) as caught:
        lambda_stand.cloud().launch(request)
    assert caught.value.reason == "invalid"
    assert not lambda_stand.world.writes


def test_L13_the_price_limit_is_inclusive(lambda_stand: LambdaStand) -> None:
    lambda_stand.cloud().launch(lambda_stand.request(max_price_hour=Decimal("1.29")))
    assert lambda_stand.billed() == 1


# ---- refusals (L-14)


def test_L14_sold_out_between_offer_and_launch_is_capacity(lambda_stand: LambdaStand) -> None:
    request = lambda_stand.request()
    for offer in lambda_stand.world.offers:
        offer.stock = 0
    with pytest.raises(errors.LaunchRefused) as caught:
        lambda_stand.cloud().launch(request)
    assert caught.value.reason == "capacity"


def test_L14_quota(lambda_stand: LambdaStand) -> None:
    Account.of(lambda_stand.world).quota = 1
    cloud = lambda_stand.cloud()
    cloud.launch(lambda_stand.request())
    with pytest.raises(errors.LaunchRefused) as caught:
        cloud.launch(lambda_stand.request())
    assert caught.value.reason == "quota"


def test_L14_an_inactive_account_is_auth(lambda_stand: LambdaStand) -> None:
    request = lambda_stand.request()
    Account.of(lambda_stand.world).active = False
    with pytest.raises(errors.LaunchRefused, match="payment") as caught:
        lambda_stand.cloud().launch(request)
    assert caught.value.reason == "auth"
    with pytest.raises(errors.Forbidden):
        lambda_stand.cloud().check()


def test_L14_a_key_that_does_not_exist_is_invalid(lambda_stand: LambdaStand) -> None:
    with pytest.raises(errors.LaunchRefused) as caught:
        lambda_stand.cloud().launch(lambda_stand.request(settings={"sshKey": "nobody"}))
    assert caught.value.reason == "invalid"


REFUSED, UNKNOWN = errors.LaunchRefused, errors.LaunchUnknown


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (400, error("instance-operations/launch/insufficient-capacity"), REFUSED, "capacity"),
        (400, error("global/quota-exceeded"), REFUSED, "quota"),
        (400, error("global/invalid-parameters"), REFUSED, "invalid"),
        (400, error("global/object-does-not-exist"), REFUSED, "invalid"),
        (400, error("instance-operations/launch/file-system-in-wrong-region"), REFUSED, "invalid"),
        (401, error("global/invalid-api-key"), REFUSED, "auth"),
        (403, error("global/invalid-address"), REFUSED, "auth"),
        (403, "<html>firewall</html>", REFUSED, "auth"),
        (409, error("global/conflict"), REFUSED, "conflict"),
        (429, error("anything"), REFUSED, "rate"),
        (429, None, REFUSED, "rate"),
        (400, error("provider/internal-unavailable"), UNKNOWN, None),
        (409, error("global/internal-error"), UNKNOWN, None),
        (400, "<html>proxy</html>", UNKNOWN, None),
        (400, {"error": {"code": 1015, "message": "a proxy that counts its errors"}}, UNKNOWN, None),
        (400, {"error": {"code": ["global/quota-exceeded"], "message": "odd"}}, UNKNOWN, None),
        (400, {"code": 7, "message": "not Lambda's own form"}, UNKNOWN, None),
        (302, None, UNKNOWN, None),
        (500, error("global/unknown"), UNKNOWN, None),
        (503, None, UNKNOWN, None),
        (200, {"data": {"instance_ids": []}}, UNKNOWN, None),
        (200, {"data": []}, UNKNOWN, None),
        (200, "<html>", UNKNOWN, None),
    ],
)
def test_L14_answers_to_a_launch(lambda_stand: LambdaStand, status: int, body: t.Any, kind: type, reason: str | None) -> None:
    request = lambda_stand.request()
    lambda_stand.faults.add({"kind": "status", "path": "/launch", "status": status, "body": body, "times": None})
    with pytest.raises(kind) as caught:
        lambda_stand.cloud().launch(request)
    assert getattr(caught.value, "reason", None) == reason
    assert lambda_stand.faults.all()[0].hits == 1


def test_two_machines_of_one_name_are_the_callers_business(lambda_stand: LambdaStand) -> None:
    cloud, request = lambda_stand.cloud(), lambda_stand.request()
    assert cloud.launch(request) != cloud.launch(request)
    assert [one.name for one in cloud.instances()] == [request.name] * 2


# ---- reading machines


def test_a_young_machine_lacks_most_fields(lambda_stand: LambdaStand) -> None:
    lambda_stand.world.offers[0].boot_seconds = 100_000.0
    cloud = lambda_stand.cloud()
    made = cloud.launch(lambda_stand.request())
    young = cloud.instance(made)
    assert young is not None and (young.state, young.ip) == (InstanceState.PENDING, "")
    lambda_stand.world.clock.advance(40_000)
    older = cloud.instance(made)
    assert older is not None and older.state is InstanceState.PENDING and older.ip and older.private_ip


def test_only_id_and_status_are_indispensable(lambda_stand: LambdaStand) -> None:
    path = "^/api/v1/instances$"
    lambda_stand.faults.add({"kind": "body", "path": path, "body": {"data": [{"id": "a" * 32, "status": "rebalancing"}]}})
    (one,) = lambda_stand.cloud().instances()
    assert (one.state, one.raw_state, one.price_hour, one.created) == (InstanceState.UNKNOWN, "rebalancing", None, None)
    lambda_stand.faults.add({"kind": "body", "path": path, "body": {"data": [{"id": "a" * 32}]}})
    with pytest.raises(errors.BadShape):
        lambda_stand.cloud().instances()


@pytest.mark.parametrize(
    ("word", "state", "gone"),
    [
        ("unhealthy", InstanceState.RUNNING, False),
        ("preempted", InstanceState.FAILED, False),
        ("terminated", InstanceState.TERMINATED, True),
    ],
)
def test_states(lambda_stand: LambdaStand, word: str, state: InstanceState, gone: bool) -> None:
    cloud = lambda_stand.cloud()
    made = cloud.launch(lambda_stand.request())
    lambda_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    lambda_stand.world.machines[made].state = word
    (seen,) = cloud.instances()
    assert (seen.state, seen.gone, bool(seen.problem)) == (state, gone, not gone)


def test_jupyter_secrets_are_masked_and_not_returned(lambda_stand: LambdaStand) -> None:
    cloud = lambda_stand.cloud()
    made = cloud.launch(lambda_stand.request())
    lambda_stand.wait_for(cloud, made, {InstanceState.RUNNING})
    token = lambda_stand.world.machines[made].details["jupyter_token"]
    assert token not in str(cloud.instance(made))
    assert token not in redact.redact(f"see ?token={token}")


def test_a_404_proves_absence_only_with_the_code_for_it(lambda_stand: LambdaStand) -> None:
    """A wrong address also answers 404; reading that as "gone" would forget a billed machine."""
    cloud = lambda_stand.cloud()
    made = cloud.launch(lambda_stand.request())
    lambda_stand.faults.add({"kind": "status", "path": "/instances/", "status": 404, "body": error("global/not-found")})
    with pytest.raises(errors.NotFound):
        cloud.instance(made)
    lambda_stand.faults.add({"kind": "status", "path": "/terminate", "status": 404, "body": "<html>"})
    with pytest.raises(errors.NotFound):
        cloud.terminate(made)
    assert lambda_stand.billed() == 1


def test_reads_and_terminate_survive_passing_trouble(lambda_stand: LambdaStand) -> None:
    cloud = lambda_stand.cloud()
    made = cloud.launch(lambda_stand.request())
    for kind, status in (("status", 503), ("status", 429), ("lost_before", 500)):
        lambda_stand.faults.add({"kind": kind, "status": status, "method": "GET", "path": "/instances$"})
    assert [one.id for one in cloud.instances()] == [made]
    lambda_stand.faults.add({"kind": "lost_after", "path": "/terminate"})
    cloud.terminate(made)
    assert lambda_stand.billed() == 0


# ---- pace


def test_the_clients_keep_the_limits_of_the_account_together(lambda_stand: LambdaStand) -> None:
    """Four launches from two clients at once are never refused by the limiter, and lie 12 s apart."""
    clients = [lambda_stand.cloud(), lambda_stand.cloud()]
    requests = [lambda_stand.request(name=f"tgp-a1b2c3d4-train-0000{number}") for number in range(4)]
    start = lambda_stand.world.clock.seconds()

    def work(number: int) -> None:
        for request in requests[number::2]:
            clients[number].launch(request)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lambda_stand.billed() == 4
    assert lambda_stand.world.clock.seconds() - start >= 36


_PROCESS = """
import sys
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import from_environment
from ansible_collections.tgp.gpu.plugins.module_utils.core.rate_limit import RateLimiter
from ansible_collections.tgp.gpu.plugins.module_utils.providers.lambda_.cloud import LIMITS
pace, clock = RateLimiter("account", LIMITS), from_environment()
for _turn in range(3):
    pace.wait("launch", clock)
    print(clock.now().timestamp(), flush=True)
"""


def test_two_processes_share_one_pace(tmp_path: pathlib.Path) -> None:
    clock = SimClock(speed=200.0, path=str(tmp_path / "clock"))
    environment = {**os.environ, "TGP_CLOCK_FILE": str(tmp_path / "clock"), "TGP_RUNTIME_DIR": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", _PROCESS], env=environment, stdout=subprocess.PIPE, text=True) for _turn in range(2)
    ]
    moments = sorted(float(line) for one in both for line in one.communicate(timeout=120)[0].split())
    assert len(moments) == 6
    # five distances of 12 s, give or take one wake-up of the slower process
    assert moments[-1] - moments[0] >= 5 * 12 - 0.05 * clock.speed


def test_the_emulator_refuses_who_is_too_fast(lambda_stand: LambdaStand) -> None:
    lambda_stand.world.clock.run_at(1.0)
    with httpx.Client(
        transport=lambda_stand.transport(), base_url=lambda_stand.base, headers={"authorization": f"Bearer {KEY}"}
    ) as raw:
        answers = [raw.get("/api/v1/regions").status_code for _turn in range(3)]
        assert answers[0] == 200 and 429 in answers
        lambda_stand.world.rate_limits = False
        assert raw.get("/api/v1/regions").status_code == 200


def test_a_sold_out_offer_is_refused_without_a_call(lambda_stand: LambdaStand) -> None:
    sold_out = next(one for one in lambda_stand.cloud().offers() if one.available == 0)
    with pytest.raises(errors.LaunchRefused) as caught:
        lambda_stand.cloud().launch(LaunchRequest(name="tgp-a1b2c3d4-train-00000", offer=sold_out))
    assert caught.value.reason == "capacity"
    assert not lambda_stand.world.writes


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("ending", [True, False])
def test_a_second_terminate_that_is_answered_unknown_is_looked_at_again(
    lambda_stand: LambdaStand, status: int, ending: bool
) -> None:
    cloud = lambda_stand.cloud()
    made = cloud.launch(lambda_stand.request())
    if ending:
        cloud.terminate(made)
    unknown = {"error": {"code": "global/unknown", "message": "API request failed."}}
    lambda_stand.faults.add({"kind": "status", "path": "/terminate$", "status": status, "body": unknown, "times": None})
    if ending:
        cloud.terminate(made)
    else:
        with pytest.raises(errors.ApiError, match="global/unknown"):
            cloud.terminate(made)
