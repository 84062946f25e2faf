# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-51: existing volumes of an account in the machines of a class: checked before anything is rented, mounted, kept, and billed on."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from sandbox.lambda_account import Account as LambdaAccount
from sandbox.runpod_account import Account as RunpodAccount

from .rig import SCENARIO, Rig
from .test_service import RUNPOD, documents

Build = t.Callable[..., Rig]
DATA = {"name": "datasets", "region": "us-south-2", "gb": 500}
MOUNT = {"name": "datasets", "mountPath": "/data/sets"}
NETWORK = {"name": "models", "size": 1200, "dataCenter": "US-TX-3"}
MODELS = {"name": "models", "mountPath": "/models"}


def with_files(build: Build, *mounts: dict[str, str], systems: t.Sequence[dict[str, t.Any]] = (DATA,)) -> Rig:
    """A class of Lambda that mounts file systems; without them the cheapest offer is in us-west-1."""
    rig = build(**{"lambda": {"offers": SCENARIO["lambda"], "file_systems": list(systems)}})
    rig.demo_class["providers"] = [{"name": "lambda", "settings": {"sshKey": "tgp"}, "volumes": list(mounts or (MOUNT,))}]
    return rig


def with_network_volume(build: Build, *mounts: dict[str, str], volumes: t.Sequence[dict[str, t.Any]] = (NETWORK,)) -> Rig:
    """A class of RunPod whose containers mount a network volume; there is a cheaper data centre without it."""
    elsewhere = {**RUNPOD["offers"][0], "region": "EU-RO-1"}
    rig = build(runpod={"offers": [elsewhere, *RUNPOD["offers"]], "network_volumes": list(volumes)})
    rig.documents = documents("runpod")
    rig.documents[0]["spec"]["providers"][0]["volumes"] = list(mounts or (MODELS,))
    return rig


def why(rig: Rig, pool: str = "training") -> str:
    """Why a run that wants one machine rents none."""
    plan = rig.plan("provision", pools=[pool], nodes=1)
    rig.unlock(plan["run_id"])
    assert not rig.machines()
    return " ".join([*rig.lines, *rig.warnings, str(plan)])


def test_L51_a_machine_is_rented_where_its_file_system_is_and_mounts_it(build: Build) -> None:
    rig = with_files(build)
    rig.rent()
    machine = rig.machine()
    (system,) = LambdaAccount.of(rig.world).file_systems
    assert machine.offer.region == "us-south-2", "the dearer one, beside its data"
    assert machine.details["file_system_names"] == ["datasets"]
    assert machine.details["file_system_mounts"] == [{"mount_point": "/data/sets", "file_system_id": system["id"]}]


def test_L51_a_container_mounts_a_network_volume_of_its_data_centre(build: Build) -> None:
    rig = with_network_volume(build)
    rig.rent(pool="llm")
    machine = rig.machine()
    (identity,) = RunpodAccount.of(rig.world).volumes
    assert machine.offer.region == "US-TX-3"
    assert machine.details["mount_form"] == {"network": [{"volumeId": identity, "path": "/models"}]}


def test_L51_a_volume_may_be_named_by_its_id(build: Build) -> None:
    rig = with_network_volume(build, volumes=(NETWORK, NETWORK))
    first, _second = RunpodAccount.of(rig.world).volumes
    rig.documents[0]["spec"]["providers"][0]["volumes"] = [{"name": first, "mountPath": "/models"}]
    rig.rent(pool="llm")
    assert rig.machine().details["mount_form"]["network"][0]["volumeId"] == first


@pytest.mark.parametrize(
    ("mounts", "systems", "words"),
    [
        ((), (), "the account has no volume datasets; it has none"),
        ((MOUNT, {"name": "more", "mountPath": "/data/more"}), (DATA,), "the account has no volume more; it has datasets ("),
        (
            (MOUNT, {"name": "more", "mountPath": "/data/more"}),
            (DATA, {**DATA, "name": "more", "region": "us-east-1"}),
            "no region has all of its volumes (datasets in us-south-2; more in us-east-1)",
        ),
    ],
)
def test_L51_what_cannot_be_mounted_rents_nothing_and_is_said(
    build: Build, mounts: tuple[dict[str, str], ...], systems: tuple[dict[str, t.Any], ...], words: str
) -> None:
    rig = with_files(build, *mounts, systems=systems)
    assert f"lambda: {words}" in why(rig)
    assert rig.creates() == 0
    with pytest.raises(InvalidInput, match="Machines could not mount their volumes") as refusal:
        rig.run("validate")
    assert words in str(refusal.value)


def test_L51_two_volumes_of_one_name_and_region_have_to_be_told_apart(build: Build) -> None:
    rig = with_network_volume(build, volumes=(NETWORK, NETWORK))
    assert "several volumes of one region are called models; name one by its id" in why(rig, "llm")


def test_L51_volumes_that_cannot_be_read_rent_nothing(build: Build) -> None:
    rig = with_files(build)
    rig.fault("status", "lambda", "GET", "/api/v1/file-systems", status=403)
    found = why(rig)
    assert "its volumes could not be read, so nothing is rented there in this run" in found
    assert "The volumes of lambda could not be read" in found and rig.creates() == 0


def test_L51_validate_says_where_a_class_rents(build: Build) -> None:
    rig = with_files(build)
    checks = {one["what"]: one for one in rig.run("validate")["checks"]}
    assert checks["volumes of lambda"]["message"] == "demo rents in us-south-2 only"


@pytest.mark.parametrize("cloud", ["lambda", "runpod"])
def test_L51_the_volume_stays_and_is_billed_when_the_machine_is_gone(build: Build, cloud: str) -> None:
    rig = with_files(build) if cloud == "lambda" else with_network_volume(build)
    account = LambdaAccount.of(rig.world) if cloud == "lambda" else RunpodAccount.of(rig.world)
    rig.rent(pool="training" if cloud == "lambda" else "llm")
    rig.outlast_list_delay()
    rig.destroy()
    assert not rig.machines()
    rig.check_bill()
    before = account.storage.cost(rig.clock.now())
    rig.advance(24 * 3600)
    assert len(account.storage.rates) == 1 and account.storage.cost(rig.clock.now()) > before
    assert rig.left() == {}


def test_L51_the_report_has_volumes_once_and_beside_the_machines(build: Build) -> None:
    rig = with_network_volume(build)
    rig.rent(pool="llm", nodes=2)
    rig.advance(3600)
    assert len(rig.machines()) == 2
    found = rig.run("report")["report"]
    (row,) = found["volumes"]["volumes"]
    assert (row["cloud"], row["name"], row["region"], row["size_gb"]) == ("runpod", "models", "US-TX-3", "1200")
    assert (row["month"], found["volumes"]["month"]) == ("80.00", "80.00"), (
        "1000 GB for 0.07 and 200 for 0.05, once for two machines"
    )
    assert RunpodAccount.of(rig.world).storage.month == Decimal(80)
    machines = sum((one.cost(rig.clock.now()) for one in rig.machines()), Decimal(0))
    assert abs(Decimal(found["total"]) - machines) < Decimal("0.05"), "no sum over machines contains it"
    assert any("Volumes are not in these sums" in line and "$80.00 a month" in line for line in rig.lines)
    page = rig.folder / "report.html"
    rig.run("report", format="html", path=str(page))
    assert "Volumes are not in these sums" in page.read_text()


def test_L51_a_price_that_no_list_tells_is_unknown_or_the_users(build: Build) -> None:
    rig = with_files(build)
    assert rig.run("report")["report"]["volumes"]["month"] is None
    rig.demo_class["providers"][0]["volumes"][0]["pricePerGBMonth"] = "0.20"
    found = rig.run("report")["report"]["volumes"]
    assert found["month"] == "100.00" and Decimal(found["month"]) == LambdaAccount.of(rig.world).storage.month
    rig.fault("status", "lambda", "GET", "/api/v1/file-systems", status=403)
    found = rig.run("report")["report"]["volumes"]
    assert (found["month"], found["unread"]) == (None, ["lambda"])


def test_L51_a_provider_without_volumes_refuses_them(build: Build) -> None:
    rig = build()
    rig.demo_class["providers"] = [{"name": "vast", "volumes": [MOUNT]}]
    with pytest.raises(InvalidInput, match="vast mounts no existing volumes in this version"):
        rig.plan("provision", pools=["training"], nodes=1)
