# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that is not ours drives the emulator over a real socket: PyPI lambda-cloud-client, generated from Lambda's own OpenAPI
document (version 1.4, so it checks the forms that have stayed the same since), as processes of their own in their own environment."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from .stands import KEY, LambdaStand
from .witness import Dialogue, Home, Notes, home, serving

pytestmark = pytest.mark.witness
PACKAGE = "lambda-cloud-client==1.0.0"
SCRIPT = pathlib.Path(__file__).with_name("lambda_witness_client.py")
MACHINE = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["tgp"], "name": "witness"}


class Refused(Exception):
    """The client raised its ApiException, and read the body as its ErrorResponseBody."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.said = (status, code)


class Client:
    """One process of the foreign client; it lives as long as the test."""

    def __init__(self, who: Home, notes: Notes, folder: pathlib.Path, configuration: dict[str, str]) -> None:
        self._notes = notes
        command = [who.program("python"), "-P", str(SCRIPT)]
        self._dialogue = Dialogue(command, who.environment(HOME=str(folder)), folder)
        self.close = self._dialogue.close
        self._dialogue.write(configuration)

    def call(self, method: str, *words: str, model: str = "", raw: bool = False, **fields: t.Any) -> t.Any:
        """What the method answered under ``data``; Refused when the client raised its ApiException."""
        self._dialogue.write({"method": method, "words": words, "model": model, "fields": fields, "raw": raw})
        answer = self._dialogue.read()
        shown = [json.dumps(word) for word in words] + [f"{name}={json.dumps(value)}" for name, value in fields.items()]
        name = f"{method}_with_http_info" if raw else method
        if "status" in answer:
            self._notes.add(f"{name}({', '.join(shown)})", f"ApiException {answer['status']} {answer['code']}")
            raise Refused(answer["status"], answer["code"])
        self._notes.add(f"{name}({', '.join(shown)})", answer["data"])
        return answer["data"]

    def launch(self, **changes: t.Any) -> str:
        (made,) = self.call("launch_instance", model="LaunchInstanceRequest", **(MACHINE | changes))["instance_ids"]
        return str(made)


Clients = t.Callable[..., Client]


@pytest.fixture
def clients(lambda_stand: LambdaStand, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> t.Iterator[Clients]:
    """Starts processes of the foreign client with a key of their own, all against one emulator."""
    who = home(PACKAGE)
    lambda_stand.world.rate_limits = False  # the foreign client has no pace of its own
    started: list[Client] = []
    with serving(lambda_stand.app) as url:
        notes = Notes(request.node.name, who, url)

        def start(*, bearer: bool = True, key: str = KEY) -> Client:
            access = {"access_token": key} if bearer else {"username": key, "password": ""}
            folder = tmp_path / f"client-{len(started)}"
            folder.mkdir()
            started.append(Client(who, notes, folder, {"host": f"{url}/api/v1", **access}))
            return started[-1]

        yield start
        for one in started:
            one.close()
        notes.close()


@pytest.mark.parametrize("bearer", [True, False], ids=["bearer", "basic"])
def test_types(clients: Clients, bearer: bool) -> None:
    types = clients(bearer=bearer).call("instance_types")
    a10 = types["gpu_1x_a10"]
    assert a10["instance_type"]["price_cents_per_hour"] == 129
    assert a10["instance_type"]["specs"]["vcpus"] == 30
    assert [region["name"] for region in a10["regions_with_capacity_available"]] == ["us-east-1"]
    assert types["gpu_8x_a100_80gb_sxm4"]["regions_with_capacity_available"] == []


def test_launch_list_get_restart(lambda_stand: LambdaStand, clients: Clients) -> None:
    client = clients()
    made = client.launch()
    assert [one["id"] for one in client.call("list_instances")] == [made]
    young = client.call("get_instance", made)
    assert (young["name"], young["region"]["name"], young["ssh_key_names"]) == ("witness", "us-east-1", ["tgp"])
    assert young["status"] in ("booting", "active")  # on a busy machine it is up before it is asked for
    for _turn in range(500):
        grown = client.call("get_instance", made)
        if grown["status"] == "active":
            break
        lambda_stand.world.clock.sleep(5)
    assert grown["ip"] and grown["hostname"] and grown["jupyter_token"]
    again = client.call("restart_instance", model="RestartInstanceRequest", instance_ids=[made])
    assert [one["id"] for one in again["restarted_instances"]] == [made]


def test_terminate(lambda_stand: LambdaStand, clients: Clients) -> None:
    """The status ``terminating`` is younger than this client's model of it, so the raw answer is looked at."""
    client = clients()
    made = client.launch()
    raw = client.call("terminate_instance", model="TerminateInstanceRequest", instance_ids=[made], raw=True)
    assert made in raw and "terminating" in raw
    lambda_stand.world.clock.advance(600)
    with pytest.raises(Refused) as caught:
        for _turn in range(100):
            client.call("get_instance", made, raw=True)
            lambda_stand.world.clock.sleep(20)
    assert caught.value.said[0] == 404
    assert client.call("list_instances") == []


def test_keys_and_file_systems(clients: Clients) -> None:
    client = clients()
    assert [key["name"] for key in client.call("list_ssh_keys")] == ["tgp"]
    made = client.call("add_ssh_key", model="AddSSHKeyRequest", name="made-there")
    assert made["private_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----") and made["public_key"].startswith("ssh-ed25519 ")
    client.call("delete_ssh_key", made["id"])
    assert [key["name"] for key in client.call("list_ssh_keys")] == ["tgp"]
    assert client.call("list_file_systems") == []


def test_errors_have_the_documented_form(clients: Clients) -> None:
    client = clients()

    def refused(**changes: t.Any) -> tuple[int, str]:
        with pytest.raises(Refused) as caught:
            client.launch(**changes)
        return caught.value.said

    assert refused(region_name="us-west-1") == (400, "instance-operations/launch/insufficient-capacity")
    assert refused(ssh_key_names=["nobody"]) == (404, "global/object-does-not-exist")
    assert refused(instance_type_name="gpu_1x_none") == (404, "global/object-does-not-exist")
    with pytest.raises(Refused) as caught:
        clients(key="secret_wrong_0123456789abcdef").call("list_instances")
    assert caught.value.said[0] == 401
    with pytest.raises(Refused) as caught:
        client.call("get_instance", "not-an-id")
    assert caught.value.said[0] == 400
