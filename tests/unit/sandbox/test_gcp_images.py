# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of the sandbox's Google Cloud, from the Image Factory's file over a bucket: uploads in pieces, imports that fail although accepted."""

from __future__ import annotations

import typing as t

import pytest

from sandbox import image_files
from sandbox.gcp_account import EMAIL, PROJECT, SCOPES, STORAGE_SCOPES, Account
from sandbox.gcp_storage import PIECE
from sandbox.world import World

SCHEMATIC = "ab" * 32
DATA = image_files.content(SCHEMATIC, "v1.13.9", "gcp-amd64.raw.tar.gz")
IMAGES = f"/compute/v1/projects/{PROJECT}/global/images"
OBJECT = "/storage/v1/b/tgp-images/o/talos.raw.tar.gz"
BODY = {
    "name": "tgp-talos-v1-13-9-abababababab",
    "family": "tgp-talos",
    "labels": {"tgp-managed": "true"},
    "rawDisk": {"source": "https://storage.googleapis.com/tgp-images/talos.raw.tar.gz"},
}


class Stand:
    """A project with one bucket, and a token for everything."""

    def __init__(self) -> None:
        from sandbox import gcp_cloud

        self.world = World()
        self.client = gcp_cloud.app(self.world).test_client()
        self.account = Account.of(self.world)
        self.account.turn({"bucket": "tgp-images"})
        self.token = self.account.token_of_a_person(self.world)
        self.account.scopes[self.token] = frozenset((*STORAGE_SCOPES, *SCOPES))

    def call(self, method: str, path: str, **options: t.Any) -> t.Any:
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return self.client.open(path, method=method, headers=headers, **options)

    def begin(self, name: str = "talos.raw.tar.gz") -> str:
        answer = self.call("POST", f"/upload/storage/v1/b/tgp-images/o?uploadType=resumable&name={name}", json={})
        assert answer.status_code == 200
        return t.cast(str, answer.headers["Location"].removeprefix("http://localhost"))

    def put(self, session: str, first: int, data: bytes, total: int = len(DATA)) -> t.Any:
        """Without a token: whoever knows the address of a session may send."""
        content_range = f"bytes {first}-{first + len(data) - 1}/{total}" if data else f"bytes */{total}"
        return self.client.put(session, data=data, headers={"Content-Range": content_range})

    def upload(self) -> None:
        assert self.put(self.begin(), 0, DATA).status_code == 200

    def wait(self, operation: dict[str, t.Any]) -> dict[str, t.Any]:
        self.world.clock.advance(301)
        path = f"/compute/v1/projects/{PROJECT}/global/operations/{operation['name']}"
        return t.cast("dict[str, t.Any]", self.call("GET", path).json)


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_an_upload_goes_on_where_the_last_piece_ended(stand: Stand) -> None:
    stand.account.turn({"short_pieces": 1})
    session = stand.begin()
    assert stand.put(session, 0, b"").headers.get("Range") is None, "nothing is kept yet"
    assert stand.put(session, 0, DATA[: 2 * PIECE]).status_code == 308
    assert stand.put(session, 0, b"").headers["Range"] == f"bytes=0-{PIECE - 1}", "of the first piece one half was kept"
    assert stand.put(session, 2 * PIECE, DATA[2 * PIECE : 3 * PIECE]).status_code == 503
    assert stand.put(session, PIECE, DATA[PIECE : PIECE + 1000]).status_code == 400, "no multiple"
    assert stand.put(session, PIECE, DATA[PIECE:]).json["size"] == str(len(DATA))
    assert stand.call("GET", OBJECT).json["size"] == str(len(DATA))
    assert stand.put(session, 0, b"").json["size"] == str(len(DATA)), "whoever lost the answer asks again"
    assert stand.call("DELETE", OBJECT).status_code == 204 and stand.call("GET", OBJECT).status_code == 404


def test_a_session_can_be_lost(stand: Stand) -> None:
    stand.account.turn({"lost_sessions": 1})
    session = stand.begin()
    assert stand.put(session, 0, DATA[:PIECE]).status_code == 308
    assert stand.put(session, PIECE, DATA[PIECE:]).status_code == 410


def test_storage_wants_its_scope_its_right_and_its_bucket(stand: Stand) -> None:
    path = "/upload/storage/v1/b/{}/o?uploadType=resumable&name=x"
    assert "bucket does not exist" in stand.call("POST", path.format("other"), json={}).json["error"]["message"]
    stand.account.turn({"bucket_rights": False})
    refused = stand.call("POST", path.format("tgp-images"), json={}).json["error"]
    assert refused["code"] == 403 and EMAIL in refused["message"] and "storage.objects.create" in refused["message"]
    stand.account.scopes.clear()
    assert "scopes" in stand.call("POST", path.format("tgp-images"), json={}).json["error"]["message"]


def test_an_image_is_pending_and_then_ready_and_of_its_family(stand: Stand) -> None:
    stand.upload()
    request = f"{IMAGES}?requestId=7d1f0a54-1f0a-4e2b-9c2b-0a541f0a4e2b"
    operation = stand.call("POST", request, json=BODY).json
    assert stand.call("POST", request, json=BODY).json["name"] == operation["name"], "the same call again makes no other image"
    assert stand.call("POST", IMAGES, json=BODY).status_code == 409
    assert stand.call("GET", f"{IMAGES}/{BODY['name']}").json["status"] == "PENDING"
    assert stand.call("GET", f"{IMAGES}/family/tgp-talos").status_code == 404
    assert stand.wait(operation)["status"] == "DONE"
    (listed,) = stand.call("GET", IMAGES).json["items"]
    assert (listed["status"], listed["archiveSizeBytes"], listed["labels"]) == ("READY", str(len(DATA)), BODY["labels"])
    assert stand.call("GET", f"{IMAGES}/family/tgp-talos").json["name"] == BODY["name"]
    assert stand.call("DELETE", f"{IMAGES}/{BODY['name']}").json["kind"] == "compute#operation"
    assert "items" not in stand.call("GET", IMAGES).json


@pytest.mark.parametrize("why", ["fails", "cut"])
def test_a_failed_import_is_done_and_leaves_no_image(stand: Stand, why: str) -> None:
    stand.upload()
    if why == "fails":
        stand.account.turn({"failing_imports": 1})
    else:
        stored = stand.account.buckets["tgp-images"]["talos.raw.tar.gz"]
        stored.data = stored.data[:-1]
    done = stand.wait(stand.call("POST", IMAGES, json=BODY).json)
    assert done["status"] == "DONE" and done["error"]["errors"][0]["code"] == "INVALID_IMAGE"
    assert stand.call("GET", f"{IMAGES}/{BODY['name']}").status_code == 404


def test_an_import_can_go_on_for_ever_or_be_forbidden(stand: Stand) -> None:
    stand.upload()
    stand.account.turn({"stuck_imports": True})
    operation = stand.call("POST", IMAGES, json=BODY).json
    assert stand.wait(operation)["status"] == "RUNNING" and stand.wait(operation)["status"] == "RUNNING"
    stand.account.turn({"image_rights": False})
    assert "compute.images.create" in stand.call("POST", IMAGES, json={**BODY, "name": "other"}).json["error"]["message"]
    missing = {**BODY, "rawDisk": {"source": "https://storage.googleapis.com/tgp-images/none.tar.gz"}}
    stand.account.turn({"image_rights": True})
    assert stand.call("POST", IMAGES, json={**missing, "name": "other"}).status_code == 404
