# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's Google Cloud as a client meets it that does things wrong. What our client sends: ../../contract/clouds/test_gcp.py."""

from __future__ import annotations

import base64
import copy
import json
import threading
import typing as t

import httpx
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from sandbox import gcp_cloud
from sandbox.clock import SimClock
from sandbox.gcp_account import EMAIL, GRANT, PROJECT, SCOPES, TOKEN_URI, Account, key_pair
from sandbox.gcp_catalogue import gcp_offer
from sandbox.scenario_reader import ScenarioError
from sandbox.world import World

ZONE = "us-central1-a"
MACHINES = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances"
UUID = "6f1c1a5e-8c0e-4a55-9d2c-0d4a7f2f3b11"
BODY: dict[str, t.Any] = {
    "name": "tgp-x",
    "machineType": f"zones/{ZONE}/machineTypes/g2-standard-4",
    "labels": {"tgp-cluster": "lab"},
    "disks": [
        {
            "boot": True,
            "autoDelete": True,
            "initializeParams": {
                "sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
                "diskSizeGb": "50",
                "diskType": f"zones/{ZONE}/diskTypes/pd-balanced",
            },
        }
    ],
    "scheduling": {"onHostMaintenance": "TERMINATE", "automaticRestart": False},
}


class Project:
    """The emulator over a world of two machine types, whose machines never boot, and a client that has a token."""

    def __init__(self) -> None:
        self.world = World(SimClock(speed=1.0))
        self.world.offers += [gcp_offer({"type": kind, "zone": ZONE, "stock": 3}) for kind in ("g2-standard-4", "a4-highgpu-8g")]
        self.account = Account.of(self.world)
        self.account.turn({"gpus_all_regions": 32, "gpus_per_region": 32, "operation_seconds": 0.0})
        transport = httpx.WSGITransport(app=gcp_cloud.app(self.world))
        self.client = httpx.Client(transport=transport, base_url="https://gcp.test")
        self.client.headers["authorization"] = f"Bearer {self.token().json()['access_token']}"

    def token(self, name: str = "sandbox", kid: str = "sandbox-0123456789abcdef", **claims: t.Any) -> httpx.Response:
        now = int(self.world.clock.seconds())
        usual = {"iss": EMAIL, "aud": TOKEN_URI, "scope": SCOPES[0], "iat": now, "exp": now + 3600, **claims}
        header = {"alg": claims.pop("alg", "RS256"), "typ": "JWT", "kid": kid}
        pieces = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, usual)]
        key = serialization.load_pem_private_key(key_pair(name)[0].encode(), password=None)
        assert isinstance(key, rsa.RSAPrivateKey)
        signature = base64.urlsafe_b64encode(key.sign(b".".join(pieces), padding.PKCS1v15(), hashes.SHA256()))
        form = {"grant_type": GRANT, "assertion": b".".join((*pieces, signature)).decode()}
        return self.client.post("/token", data=form)

    def create(self, request_id: str = "", **changes: t.Any) -> httpx.Response:
        body = copy.deepcopy({**BODY, **changes})
        return self.client.post(MACHINES, json=body, params={"requestId": request_id} if request_id else None)


@pytest.fixture
def project() -> t.Iterator[Project]:
    made = Project()
    yield made
    made.world.clock.close()
    for thread in threading.enumerate():
        if thread.name.startswith("terminate-tgp-x"):
            thread.join(5)


def reason(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["errors"][0]["reason"]


# ---- tokens


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"name": "withdrawn"}, "Invalid JWT Signature"),
        ({"kid": "of-a-key-that-was-deleted"}, "Invalid JWT Signature"),
        ({"alg": "HS256"}, "unsupported algorithm"),
        ({"iss": "nobody@example.com"}, "account not found"),
        ({"aud": "https://compute.googleapis.com/"}, "audience"),
        ({"scope": "https://www.googleapis.com/auth/devstorage.read_only"}, "Invalid OAuth scope"),
        ({"iat": 1, "exp": 3601}, "reasonable timeframe"),
        ({"exp": 4_000_000_000}, "short-lived"),
        ({"iat": "now"}, "short-lived"),
    ],
)
def test_an_assertion_that_is_wrong_gets_no_token(project: Project, claims: dict[str, t.Any], words: str) -> None:
    answer = project.token(**claims)
    assert answer.status_code == 400 and words in answer.json()["error_description"]
    assert answer.json()["error"] in ("invalid_grant", "invalid_scope")


def test_a_token_ends_after_an_hour(project: Project) -> None:
    assert project.client.get(f"/compute/v1/projects/{PROJECT}").status_code == 200
    project.world.clock.advance(3700)
    assert reason(project.client.get(f"/compute/v1/projects/{PROJECT}")) == (401, "authError")


# ---- making machines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "0x"}, "resource.name"),
        ({"labels": {"tgp.io/cluster": "lab"}}, "resource.labels"),
        ({"labels": {"pool": "Default"}}, "resource.labels"),
        ({"scheduling": {}}, "do not support live migration"),
        ({"scheduling": {**BODY["scheduling"], "provisioningModel": "SPOT", "automaticRestart": True}}, "Automatic restart"),
        ({"scheduling": {**BODY["scheduling"], "maxRunDuration": {"seconds": "5"}}}, "120 days"),
        ({"scheduling": {**BODY["scheduling"], "instanceTerminationAction": "DELETE"}}, "limit of its run time"),
        ({"guestAccelerators": [{"acceleratorType": "x/nvidia-l4", "acceleratorCount": 1}]}, "accelerators of its own"),
        ({"machineType": f"zones/{ZONE}/machineTypes/a4-highgpu-8g"}, "not compatible"),
        ({"metadata": {"items": [{"key": "user-data", "value": "x" * 262_145}]}}, "too large"),
        ({"disks": []}, "boot disk"),
    ],
)
def test_what_is_refused_at_once(project: Project, change: dict[str, t.Any], words: str) -> None:
    answer = project.create(**change)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"], answer.text
    assert project.world.machines == {}


def test_done_is_not_success(project: Project) -> None:
    project.account.gpus_per_region = 0
    operation = project.create().json()
    assert (operation["status"], operation["error"]["errors"][0]["code"]) == ("DONE", "QUOTA_EXCEEDED")
    assert project.world.machines == {}
    project.account.operation_seconds = 0.2
    project.account.gpus_per_region = 8
    waiting = project.create().json()
    path = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/operations/{waiting['name']}"
    assert waiting["status"] != "DONE" and project.client.post(f"{path}/wait").json()["status"] == "DONE"
    assert "error" not in project.client.get(path).json()


def test_a_request_id_is_remembered_and_a_name_is_unique(project: Project) -> None:
    first, again = project.create(UUID).json(), project.create(UUID).json()
    assert first["name"] == again["name"] and len(project.world.machines) == 1
    assert reason(project.create()) == (409, "alreadyExists")
    assert reason(project.create("00000000-0000-0000-0000-000000000000")) == (400, "invalid")


def test_a_fingerprint_keeps_changes_of_others(project: Project) -> None:
    project.create()
    shown = project.client.get(f"{MACHINES}/tgp-x").json()
    good, stale = shown["labelFingerprint"], "c3RhbGU="
    body = {"labels": {"team": "ml"}, "labelFingerprint": stale}
    assert reason(project.client.post(f"{MACHINES}/tgp-x/setLabels", json=body)) == (412, "conditionNotMet")
    assert project.client.post(f"{MACHINES}/tgp-x/setLabels", json={**body, "labelFingerprint": good}).status_code == 200
    assert project.client.get(f"{MACHINES}/tgp-x").json()["labels"] == {"team": "ml"}


def test_a_spot_machine_that_only_stops_leaves_its_disk(project: Project) -> None:
    scheduling = {**BODY["scheduling"], "provisioningModel": "SPOT", "instanceTerminationAction": "STOP"}
    project.create(scheduling=scheduling)
    (machine,) = project.world.machines.values()
    project.world.on_taken["gcp"](machine)
    assert project.client.get(f"{MACHINES}/tgp-x").json()["status"] == "TERMINATED" and machine.ended is None
    assert 0 < machine.rate() < machine.price_hour and len(project.account.disks) == 1


def test_an_empty_list_has_no_items_and_a_project_no_quota(project: Project) -> None:
    shown = project.client.get(f"/compute/v1/projects/{PROJECT}/aggregated/disks").json()
    assert all(list(scope) == ["warning"] for scope in shown["items"].values())
    assert Account().gpus_all_regions == Account().gpus_per_region == 0


@pytest.mark.parametrize("entry", [{"type": "g9-x", "zone": ZONE}, {"type": "g2-standard-4", "zone": "mars1-a"}, {"zone": ZONE}])
def test_a_scenario_names_what_there_is_not(entry: dict[str, t.Any]) -> None:
    with pytest.raises(ScenarioError):
        gcp_offer(entry)
