# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our client against a headscale that has only its own API, and how it finds out which API a server speaks."""

from __future__ import annotations

import re
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import MASK, redact
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.base import find_device
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.connect import Undecided, spoken
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.headscale import Headscale
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.tailscale.client import Tailscale
from ansible_collections.tgp.gpu.plugins.modules import tailscale_device, tailscale_key

from sandbox.tailnet import HEADSCALE, HEADSCALE_V1, JoinRefused
from sandbox.tailnet_policy import Policy
from tests.contract.mesh.conftest import Place, build

NODE = "tgp-a1b2c3d4-training-0k3zq"
TAGS = ["tag:gpu"]
SERVER = {"tailscale_api_url": "https://hs.example"}
POST_KEY = "POST /api/v1/preauthkey"


@pytest.fixture
def old() -> Place:
    return build(HEADSCALE_V1)


def client(place: Place) -> Undecided:
    mesh = place.client(tailscale_api_token=place.world.secrets["TAILSCALE_API_KEY"], **SERVER)
    assert isinstance(mesh, Undecided)
    return mesh


def run(place: Place, module: t.Any, **params: t.Any) -> dict[str, t.Any]:
    nothing = dict.fromkeys(place.oauth(), "")
    return place.run(module, **nothing, tailscale_api_token=place.world.secrets["TAILSCALE_API_KEY"], **SERVER, **params)


# ---- which API


def test_the_server_is_asked_once_and_never_with_the_credential(old: Place) -> None:
    seen: list[str] = []
    inner = httpx.WSGITransport(app=old.wsgi)

    class Listening(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            seen.append(f"{request.url.path} {'authorization' in request.headers}")
            return inner.handle_request(request)

    old.transport = lambda _url: Listening()  # type: ignore[method-assign]
    mesh = client(old)
    assert seen == []  # connecting sends nothing
    mesh.devices()
    mesh.keys()
    assert seen[:3] == ["/api/v2/tailnet/-/settings False", "/api/v1/node False", "/version False"]
    assert seen[3:] == ["/api/v1/node True", "/api/v1/preauthkey True"]
    assert isinstance(mesh.decided(), Headscale)


def test_newer_headscale_and_tailscale_speak_v2() -> None:
    new = build(HEADSCALE)
    assert isinstance(client(new).decided(), Tailscale)
    public = build()
    # a credential of Tailscale's own form leaves nothing to ask
    assert isinstance(public.client(tailscale_api_token=public.world.secrets["TAILSCALE_API_KEY"], **SERVER), Tailscale)


def test_an_oauth_client_at_an_old_server_is_told_what_to_do(old: Place) -> None:
    with pytest.raises(errors.InvalidInput, match="without OAuth clients") as caught:
        old.client(**old.oauth(), **SERVER).check(TAGS)
    assert "headscale apikeys create" in caught.value.remedy


def answering(answers: dict[str, httpx.Response]) -> Api:
    def answer(request: httpx.Request) -> httpx.Response:
        return answers.get(request.url.path, httpx.Response(200, html="<html></html>"))

    return Api("tailscale", "https://hs.example", transport=httpx.MockTransport(answer))


@pytest.mark.parametrize("page", [httpx.Response(200, html="<html>a proxy</html>"), httpx.Response(404, text="404 page not found")])
def test_what_is_neither_is_no_empty_tailnet(page: httpx.Response) -> None:
    with pytest.raises(errors.BadShape) as caught:
        spoken(answering({"/api/v2/tailnet/-/settings": page, "/api/v1/node": page}))
    assert "tailscale_api_url" in caught.value.remedy


@pytest.mark.parametrize(("version", "taken"), [("v0.26.1", False), ("v0.28.0", True), ("v0.29.2", True), ("dev", True)])
def test_too_old_a_headscale_is_refused(version: str, taken: bool) -> None:
    api = answering(
        {"/api/v1/node": httpx.Response(401, text="Unauthorized"), "/version": httpx.Response(200, json={"version": version})}
    )
    if taken:
        assert spoken(api) == "v1"
    else:
        with pytest.raises(errors.InvalidInput, match=version):
            spoken(api)


# ---- the life of a node


def test_key_machine_device_and_back_to_nothing(old: Place) -> None:
    mesh = client(old)
    key = mesh.create_key(NODE, tags=TAGS)
    record = old.tailnet.key(key.id)
    assert record is not None and (record.reusable, record.ephemeral, record.tags) == (False, True, TAGS)
    assert record.expires == key.expires and 3600 <= (key.expires - key.created).total_seconds() + 1 < 3602
    assert redact(key.secret) == MASK and key.secret not in repr(key)
    old.tailnet.join(key.secret, NODE)
    found = find_device(mesh.devices(), hostname=NODE, tags=TAGS, created_after=key.created, ephemeral=True).device
    assert found is not None and found.online is True and found.last_seen is None and found.addresses
    assert mesh.device(found.id) == found
    assert [one.invalid for one in mesh.keys()] == [True]  # used
    assert mesh.delete_device(found.id) is True and mesh.delete_device(found.id) is False
    assert mesh.device(found.id) is None and old.tailnet.devices() == []


def test_a_node_whose_key_is_not_told_is_found_and_its_kind_is_unknown(old: Place) -> None:
    mesh = client(old)
    key = mesh.create_key(NODE, tags=TAGS)
    old.tailnet.join(key.secret, NODE)
    (told,) = mesh.devices()
    old.tailnet.node_keys = False
    (seen,) = mesh.devices()
    assert (told.ephemeral, seen.ephemeral) == (True, None)
    assert find_device(mesh.devices(), hostname=NODE, tags=TAGS, created_after=key.created, ephemeral=True).device == seen


def test_listed_keys_show_their_prefix_only(old: Place) -> None:
    mesh = client(old)
    key = mesh.create_key(NODE, tags=TAGS)
    token = {"authorization": f"Bearer {old.world.secrets['TAILSCALE_API_KEY']}"}
    with httpx.Client(transport=httpx.WSGITransport(app=old.wsgi), base_url="https://hs.example") as plain:
        (listed,) = plain.get("/api/v1/preauthkey", headers=token).json()["preAuthKeys"]
        assert plain.get("/version").json()["version"] == "v0.28.0"
        assert plain.get("/api/v1/node/77", headers=token).json() == {"code": 5, "message": "node not found", "details": []}
    assert listed["key"] == f"{key.secret[:23]}-***" and len(key.secret) == 88


def test_the_keys_of_0_28_have_hyphens_and_underscores_and_are_masked_whole(old: Place) -> None:
    made = [client(old).create_key(f"{NODE}{number}", tags=TAGS).secret for number in range(9)]
    assert all(re.fullmatch(r"hskey-auth-[A-Za-z0-9_-]{12}-[A-Za-z0-9_-]{64}", one) for one in made)
    assert any("_" in one for one in made) and any(one.count("-") > 3 for one in made)
    assert {redact(f"tailscale up: --auth-key={one} is bad") for one in made} == {f"tailscale up: --auth-key={MASK} is bad"}


def test_revoking_expires_and_never_deletes(old: Place) -> None:
    mesh = client(old)
    key, other = mesh.create_key(NODE, tags=TAGS), mesh.create_key("other", tags=TAGS)
    assert mesh.delete_key(key.id) is True and mesh.delete_key(key.id) is False and mesh.delete_key("999") is False
    assert [one.id for one in old.tailnet.live_keys()] == [other.id]
    assert not any(call.startswith("DELETE") for call in old.calls)
    with pytest.raises(JoinRefused, match="authkey expired"):
        old.tailnet.join(key.secret, NODE)


def test_taken_name_gives_a_suffix(old: Place) -> None:
    mesh = client(old)
    for _ in range(2):
        old.tailnet.join(mesh.create_key(NODE, tags=TAGS).secret, NODE)
    found = find_device(mesh.devices(), hostname=NODE, tags=TAGS, created_after=None)
    assert len(found.stale) == 1 and {found.device.name, found.stale[0].name} == {NODE, f"{NODE}-1"}  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["lost_after", "lost_before", "truncate", "status_after"])
def test_lost_create_answer_leaves_exactly_one_key(old: Place, kind: str) -> None:
    mesh = client(old)
    mesh.devices()
    old.faults.add({"kind": kind, "status": 502, "method": "POST", "path": "/preauthkey$"})
    key = mesh.create_key(NODE, tags=TAGS)
    assert [one.id for one in old.tailnet.live_keys()] == [key.id] and old.count(POST_KEY) == 2


def test_a_lost_create_answer_leaves_the_keys_of_other_machines(old: Place) -> None:
    mesh = client(old)
    other = mesh.create_key("tgp-a1b2c3d4-training-9x8yz", tags=TAGS)
    old.world.clock.advance(60)
    old.faults.add({"kind": "lost_after", "method": "POST", "path": "/preauthkey$"})
    key = mesh.create_key(NODE, tags=TAGS)
    assert {one.id for one in old.tailnet.live_keys()} == {other.id, key.id}


def test_wrong_key_and_missing_tag_say_what_to_do(old: Place) -> None:
    mesh = old.client(tailscale_api_token="hskey-api-0123456789ab-madeUpMadeUpMadeUp", **SERVER)
    with pytest.raises(errors.Unauthorized) as caught:
        mesh.devices()
    assert caught.value.details["cause"] == "auth" and caught.value.remedy
    with pytest.raises(errors.InvalidInput, match="no tags"):
        client(old).create_key(NODE, tags=[])


def test_a_server_whose_clock_is_ahead_is_found_out(old: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = client(old)
    real = old.tailnet.create_key

    def later(*args: t.Any, **fields: t.Any) -> t.Any:
        made = real(*args, **fields)
        made.created = made.created.replace(year=made.created.year + 1)
        return made

    monkeypatch.setattr(old.tailnet, "create_key", later)
    with pytest.raises(errors.ApiError, match="over when it was made") as caught:
        mesh.create_key(NODE, tags=TAGS)
    assert "time synchronisation" in caught.value.remedy


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ('{"tagOwners": {"tag:gpu": []}}', "its policy defines tag:gpu"),
        ('{"tagOwners": {"tag:other": []}, /* none */}', "does not define tag:gpu"),
    ],
)
def test_check_tells_of_the_policy_and_changes_nothing(old: Place, policy: str, words: str) -> None:
    old.tailnet.policy = Policy(policy)
    assert words in client(old).check(TAGS)
    assert not old.tailnet.live_keys() and all(call.startswith("GET") for call in old.calls)


# ---- modules


def test_modules_work_on_it_and_say_what_it_cannot(old: Place) -> None:
    made = run(old, tailscale_key, nodes=[NODE], tags=TAGS)["tailscale_keys"][0]
    old.tailnet.join(made["key"], NODE)
    assert run(old, tailscale_device, state="present", hostnames=[NODE], tags=["tag:k8s"])["changed"] is True
    refused = run(old, tailscale_device, state="present", hostnames=[NODE], key_expiry=True)
    assert refused["failed"] and "expiry" in refused["msg"]
    assert run(old, tailscale_device, state="absent", hostnames=[NODE])["removed"]
    by_node = run(old, tailscale_key, state="absent", nodes=[NODE])
    assert by_node["failed"] and "keeps no descriptions" in by_node["msg"]
    fresh = run(old, tailscale_key, nodes=[NODE], tags=TAGS)["tailscale_keys"][0]
    assert run(old, tailscale_key, state="absent", ids=[fresh["id"]])["changed"] is True
    assert old.tailnet.live_keys() == []
