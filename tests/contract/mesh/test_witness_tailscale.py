# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The official Python client of the Tailscale API against the sandbox's, over a real socket."""

from __future__ import annotations

import asyncio
import base64
import threading
import typing as t

import pytest
from cheroot import wsgi

from sandbox.tailnet import HEADSCALE
from sandbox.tailnet_policy import without_comments
from tests.contract.clouds.witness import installed
from tests.contract.mesh.conftest import Place, build

pytestmark = pytest.mark.witness

aiohttp, official = installed("aiohttp"), installed("tailscale")
NODE = "tgp-a1b2c3d4-training-0k3zq"


class _Here:
    """A session that sends what is meant for Tailscale's own address to the sandbox."""

    def __init__(self, session: t.Any, port: int) -> None:
        self._session, self._port = session, port

    async def request(self, method: str, url: t.Any, **options: t.Any) -> t.Any:
        here = url.with_scheme("http").with_host("127.0.0.1").with_port(self._port)
        return await self._session.request(method, here, **options)


@pytest.fixture(params=["saas", "headscale"])
def served(request: pytest.FixtureRequest) -> t.Iterator[tuple[Place, int]]:
    place = build(request.param)
    server = wsgi.Server(("127.0.0.1", 0), place.wsgi, numthreads=4)
    server.prepare()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield place, server.bind_addr[1]
    server.stop()
    thread.join(5)


def talk(port: int, credential: dict[str, str], work: t.Callable[[t.Any], t.Awaitable[None]]) -> None:
    """Run ``work`` with the official client."""

    async def session() -> None:
        async with aiohttp.ClientSession() as inner:
            client = official.Tailscale(session=_Here(inner, port), **credential)
            await work(client)
            if client._expire_oauth_token_task is not None:
                client._expire_oauth_token_task.cancel()

    asyncio.run(session())


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


def oauth(place: Place) -> dict[str, str]:
    secrets = place.world.secrets
    return {"oauth_client_id": secrets["TS_OAUTH_CLIENT_ID"], "oauth_client_secret": secrets["TS_OAUTH_CLIENT_SECRET"]}


def user(place: Place) -> dict[str, str]:
    return {"api_key": place.world.secrets["TAILSCALE_API_KEY"]}


def test_keys(served: tuple[Place, int]) -> None:
    place, port = served

    async def work(client: t.Any) -> None:
        made = await client.create_key(
            description=f"tgp {NODE}", ephemeral=True, preauthorized=True, tags=["tag:gpu"], expiry_seconds=3600
        )
        assert made.key and made.expiry_seconds == 3600 and made.capabilities.devices.create.tags == ["tag:gpu"]
        listed = {key.key_id: key for key in await client.keys()}
        assert listed[made.key_id].description == f"tgp {NODE}" and not listed[made.key_id].key
        assert (await client.key(made.key_id)).invalid is False
        place.tailnet.join(made.key, NODE)
        assert (await client.key(made.key_id)).invalid is True
        await client.delete_key(made.key_id)
        assert (await client.key(made.key_id)).revoked is not None
        with pytest.raises(official.TailscaleNotFoundError):
            await client.delete_key(made.key_id)

    talk(port, oauth(place), work)


def test_devices(served: tuple[Place, int]) -> None:
    place, port = served

    async def work(client: t.Any) -> None:
        made = await client.create_key(ephemeral=True, preauthorized=True, tags=["tag:gpu"])
        joined = place.tailnet.join(made.key, NODE, advertise_routes=["10.1.0.0/16"])
        (device,) = (await client.devices()).values()
        assert (device.hostname, device.node_id, device.tags) == (NODE, joined.node_id, ["tag:gpu"])
        assert device.addresses == joined.addresses and device.is_ephemeral and device.authorized and device.last_seen is None
        assert device.enabled_routes == ["10.1.0.0/16"]
        place.tailnet.set_online(joined.node_id, False)
        assert (await client.device(joined.node_id)).last_seen is not None
        await client.set_device_tags(joined.node_id, tags=["tag:gpu", "tag:k8s"])
        await client.rename_device(joined.node_id, name="another")
        await client.set_device_key_expiry(joined.node_id, key_expiry_disabled=True)
        device = await client.device(joined.node_id)
        assert device.tags == ["tag:gpu", "tag:k8s"] and device.name.split(".")[0] == "another" and device.key_expiry_disabled
        await client.delete_device(joined.node_id)
        assert await client.devices() == {}
        with pytest.raises(official.TailscaleNotFoundError):
            await client.device(joined.node_id)

    talk(port, oauth(place), work)


def test_user_token_routes_settings_and_policy(served: tuple[Place, int]) -> None:
    place, port = served

    async def work(client: t.Any) -> None:
        made = await client.create_key(ephemeral=True, preauthorized=True, tags=["tag:gpu"])
        joined = place.tailnet.join(made.key, NODE, advertise_routes=["192.168.7.0/24"])
        assert (await client.device_routes(joined.node_id)).enabled_routes == []
        await client.set_device_routes(joined.node_id, routes=["192.168.7.0/24"])
        assert (await client.device_routes(joined.node_id)).enabled_routes == ["192.168.7.0/24"]
        await client.authorize_device(joined.node_id, authorized=True)
        assert (await client.tailnet_settings()).devices_approval_on is False
        policy = await client.policy_file()
        stored = place.tailnet.policy
        shown = without_comments(stored.text) if place.tailnet.profile == HEADSCALE else stored.text
        assert policy.policy == shown and policy.etag == stored.etag

    talk(port, user(place), work)


def test_policy_tests_are_answered_200_even_when_they_fail() -> None:
    place = build()
    server = wsgi.Server(("127.0.0.1", 0), place.wsgi, numthreads=2)
    server.prepare()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()

    async def work(client: t.Any) -> None:
        good = await client.test_policy_file([{"src": "tag:gpu", "accept": ["tag:k8s-cp:6443"], "deny": ["tag:k8s-cp:22"]}])
        assert good.valid
        bad = await client.test_policy_file([{"src": "tag:gpu", "accept": ["tag:k8s-cp:22"]}])
        assert bad.message == "test(s) failed"
        assert bad.data[0].errors == ['address "tag:k8s-cp:22": want: Accept, got: Drop']
        assert (await client.validate_policy_file(place.tailnet.policy.text)).valid
        assert not (await client.validate_policy_file('{"tagOwners": {}, "acls": [{"src": ["tag:x"]}],}')).valid

    try:
        talk(server.bind_addr[1], user(place), work)
    finally:
        server.stop()
        thread.join(5)


def test_refusals(served: tuple[Place, int]) -> None:
    place, port = served

    async def work(client: t.Any) -> None:
        with pytest.raises(official.TailscaleResponseError):
            await client.create_key(tags=["tag:unheard-of"])
        with pytest.raises(official.TailscalePermissionError):
            await client.set_device_routes("1", routes=[])
        place.tailnet.drop_tokens()
        with pytest.raises(official.TailscaleUnauthorizedError):
            await client.devices()
        assert await client.devices() == {}  # it fetched a fresh token by itself

    talk(port, oauth(place), work)


def test_token_endpoint_takes_basic_and_body(served: tuple[Place, int]) -> None:
    place, port = served
    client_id, secret = place.world.secrets["TS_OAUTH_CLIENT_ID"], place.world.secrets["TS_OAUTH_CLIENT_SECRET"]

    async def session() -> None:
        async with aiohttp.ClientSession() as inner:
            url = f"http://127.0.0.1:{port}/api/v2/oauth/token"
            for options in (
                {"headers": basic(client_id, secret), "data": {"grant_type": "client_credentials"}},
                {"data": {"client_id": client_id, "client_secret": secret, "scope": "devices:core:read"}},
            ):
                answer = await inner.post(url, **options)
                body = await answer.json()
                assert answer.status == 200 and body["token_type"] == "Bearer" and body["expires_in"] == 3600
            as_user = basic(body["access_token"], "")
            answer = await inner.get(f"http://127.0.0.1:{port}/api/v2/tailnet/-/devices", headers=as_user)
            assert answer.status == 200
            answer = await inner.get(f"http://127.0.0.1:{port}/api/v2/tailnet/-/keys", headers=as_user)
            assert answer.status == 403  # narrowed away

    asyncio.run(session())
