# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that is not ours drives the emulator over a real socket: PyPI lambda-cloud-client, generated from Lambda's own OpenAPI
document (version 1.4, so it checks the forms that have stayed the same since)."""

from __future__ import annotations

import importlib
import sys
import threading
import typing as t

import pytest
from cheroot.wsgi import Server

from .stands import KEY, LambdaStand


def _client_library() -> t.Any:
    """The library was generated for pydantic 1. Where pydantic 2 is installed, it gets the version 1 that lives inside of it."""
    pydantic = pytest.importorskip("pydantic")
    if pydantic.VERSION.startswith("1."):
        return pytest.importorskip("lambda_cloud_client")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pydantic", importlib.import_module("pydantic.v1"))
        return pytest.importorskip("lambda_cloud_client")


lambda_cloud_client = _client_library()
pytestmark = pytest.mark.witness


@pytest.fixture
def url(lambda_stand: LambdaStand) -> t.Iterator[str]:
    server = Server(("127.0.0.1", 0), lambda_stand.app)
    server.prepare()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.bind_addr[1]}/api/v1"
    server.stop()
    thread.join(5)


def api(url: str, *, bearer: bool = True, key: str = KEY) -> t.Any:
    access = {"access_token": key} if bearer else {"username": key, "password": ""}
    return lambda_cloud_client.DefaultApi(lambda_cloud_client.ApiClient(lambda_cloud_client.Configuration(host=url, **access)))


@pytest.fixture(autouse=True)
def unhurried(lambda_stand: LambdaStand) -> None:
    """The foreign client has no pace of its own."""
    lambda_stand.world.rate_limits = False


def launch(client: t.Any, **changes: t.Any) -> str:
    fields = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["tgp"], "name": "witness"} | changes
    return str(client.launch_instance(lambda_cloud_client.LaunchInstanceRequest(**fields)).data.instance_ids[0])


@pytest.mark.parametrize("bearer", [True, False], ids=["bearer", "basic"])
def test_types(url: str, bearer: bool) -> None:
    types = api(url, bearer=bearer).instance_types().data
    a10 = types["gpu_1x_a10"]
    assert a10.instance_type.price_cents_per_hour == 129
    assert a10.instance_type.specs.vcpus == 30
    assert [region.name for region in a10.regions_with_capacity_available] == ["us-east-1"]
    assert types["gpu_8x_a100_80gb_sxm4"].regions_with_capacity_available == []


def test_launch_list_get_restart(lambda_stand: LambdaStand, url: str) -> None:
    client = api(url)
    made = launch(client)
    assert [one.id for one in client.list_instances().data] == [made]
    young = client.get_instance(made).data
    assert (young.name, young.status, young.region.name, young.ssh_key_names) == ("witness", "booting", "us-east-1", ["tgp"])
    for _turn in range(500):
        seen = client.get_instance(made).data
        if seen.status == "active":
            break
        lambda_stand.world.clock.sleep(5)
    assert seen.ip and seen.hostname and seen.jupyter_token
    again = client.restart_instance(lambda_cloud_client.RestartInstanceRequest(instance_ids=[made]))
    assert [one.id for one in again.data.restarted_instances] == [made]


def test_terminate(lambda_stand: LambdaStand, url: str) -> None:
    """The status ``terminating`` is younger than this client's model of it, so the raw answer is looked at."""
    client = api(url)
    made = launch(client)
    request = lambda_cloud_client.TerminateInstanceRequest(instance_ids=[made])
    raw = client.terminate_instance_with_http_info(request, _preload_content=False).raw_data
    assert made.encode() in raw and b"terminating" in raw
    lambda_stand.world.clock.advance(600)
    with pytest.raises(lambda_cloud_client.ApiException) as caught:
        for _turn in range(100):
            client.get_instance_with_http_info(made, _preload_content=False)
            lambda_stand.world.clock.sleep(20)
    assert caught.value.status == 404
    assert client.list_instances().data == []


def test_keys_and_file_systems(url: str) -> None:
    client = api(url)
    assert [key.name for key in client.list_ssh_keys().data] == ["tgp"]
    made = client.add_ssh_key(lambda_cloud_client.AddSSHKeyRequest(name="made-there")).data
    assert made.private_key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----") and made.public_key.startswith("ssh-ed25519 ")
    client.delete_ssh_key(made.id)
    assert [key.name for key in client.list_ssh_keys().data] == ["tgp"]
    assert client.list_file_systems().data == []


def test_errors_have_the_documented_form(lambda_stand: LambdaStand, url: str) -> None:
    client = api(url)

    def refused(**changes: t.Any) -> tuple[int, str]:
        with pytest.raises(lambda_cloud_client.ApiException) as caught:
            launch(client, **changes)
        body = lambda_cloud_client.ErrorResponseBody.from_json(caught.value.body)
        return caught.value.status, body.error.code.value

    assert refused(region_name="us-west-1") == (400, "instance-operations/launch/insufficient-capacity")
    assert refused(ssh_key_names=["nobody"]) == (404, "global/object-does-not-exist")
    assert refused(instance_type_name="gpu_1x_none") == (404, "global/object-does-not-exist")
    with pytest.raises(lambda_cloud_client.ApiException) as caught:
        api(url, key="secret_wrong_0123456789abcdef").list_instances()
    assert caught.value.status == 401
    with pytest.raises(lambda_cloud_client.ApiException) as caught:
        client.get_instance("not-an-id")
    assert caught.value.status == 400
