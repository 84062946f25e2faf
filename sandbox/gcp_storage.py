# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of Google's Cloud Storage JSON API v1 that an image goes through: buckets that are read, objects, and resumable uploads.

An upload's session has an address that needs no token. A piece may be kept in part only, a session may end before its upload does, and a
token without the scope of Cloud Storage is refused whatever the roles of its account are. Not here: other uploads, copies, lists, versions.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import typing as t
import uuid
from datetime import datetime

import flask

from .gcp_account import EMAIL, STORAGE_SCOPES, Account, Refused, moment
from .world import World

PIECE = 256 * 1024  # what pieces of an upload are multiples of, but for the last one
UPLOAD = "/upload/storage/v1/b/<bucket>/o"
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclasses.dataclass
class StoredObject:
    """What lies in a bucket under a name."""

    name: str
    data: bytes
    created: datetime
    metadata: dict[str, str]


@dataclasses.dataclass
class Session:
    """An upload that has begun."""

    bucket: str
    name: str
    metadata: dict[str, str]
    data: bytearray = dataclasses.field(default_factory=bytearray)
    made: StoredObject | None = None


def storage_routes(service: flask.Flask, world: World, account: Account) -> None:
    def admit(right: str) -> None:
        header = flask.request.headers.get("Authorization", "")
        account.admit_token(world, header)
        if not account.scopes.get(header.removeprefix("Bearer "), frozenset()) & set(STORAGE_SCOPES):
            raise Refused(403, "insufficientPermissions", "Request had insufficient authentication scopes.")
        if not account.bucket_rights:
            message = f"{EMAIL} does not have {right} access to the Google Cloud Storage object."
            raise Refused(403, "forbidden", f"{message} Permission '{right}' denied on resource (or it may not exist).")

    def objects(bucket: str) -> dict[str, StoredObject]:
        if bucket not in account.buckets:
            raise Refused(404, "notFound", "The specified bucket does not exist.")
        return account.buckets[bucket]

    def find(bucket: str, name: str) -> StoredObject:
        if name not in objects(bucket):
            raise Refused(404, "notFound", f"No such object: {bucket}/{name}")
        return account.buckets[bucket][name]

    @service.get("/storage/v1/b/<bucket>/o/<path:name>")
    def show_object(bucket: str, name: str) -> t.Any:
        admit("storage.objects.get")
        with world.lock:
            return _form(bucket, find(bucket, name))

    @service.delete("/storage/v1/b/<bucket>/o/<path:name>")
    def delete_object(bucket: str, name: str) -> t.Any:
        admit("storage.objects.delete")
        with world.lock:
            del account.buckets[bucket][find(bucket, name).name]
        return "", 204

    @service.post(UPLOAD)
    def begin_upload(bucket: str) -> t.Any:
        admit("storage.objects.create")
        name = flask.request.args.get("name", "")
        if flask.request.args.get("uploadType") != "resumable" or not name:
            raise Refused(400, "invalid", "The sandbox takes resumable uploads with a name only.")
        given = flask.request.get_json(silent=True) or {}
        with world.lock:
            objects(bucket)
            number = uuid.uuid4().hex
            account.sessions[number] = Session(bucket, name, dict(given.get("metadata") or {}))
        where = f"{flask.request.host_url}upload/storage/v1/b/{bucket}/o?uploadType=resumable&name={name}&upload_id={number}"
        return "", 200, {"Location": where}

    @service.put(UPLOAD)
    def upload_piece(bucket: str) -> t.Any:
        number = flask.request.args.get("upload_id", "")
        found = _RANGE.fullmatch(flask.request.headers.get("Content-Range", ""))
        data = flask.request.get_data()
        with world.lock:
            if account.lost_sessions > 0 and number in account.sessions and account.sessions[number].data:
                account.lost_sessions -= 1
                del account.sessions[number]
            session = account.sessions.get(number)
            if session is None or session.bucket != bucket:
                raise Refused(410, "gone", "The upload session has ended.")
            if session.made is not None:
                return _form(bucket, session.made)
            if found is None:
                raise Refused(400, "invalid", "Failed to parse Content-Range header.")
            if found[1] is not None:
                _take(account, session, int(found[1]), int(found[2]), found[3], data)
            if found[3] == "*" or len(session.data) < int(found[3]):
                kept = len(session.data)
                return flask.Response("", 308, {"Range": f"bytes=0-{kept - 1}"} if kept else {})
            session.made = StoredObject(session.name, bytes(session.data), world.clock.now(), session.metadata)
            account.buckets[bucket][session.name] = session.made
            return _form(bucket, session.made)


def _take(account: Account, session: Session, first: int, last: int, total: str, data: bytes) -> None:
    """Keep a piece; of some only a part is kept, and the next one has to begin there. The caller holds the world's lock."""
    is_last = total != "*" and last + 1 == int(total)
    if len(data) != last - first + 1 or (len(data) % PIECE and not is_last):
        raise Refused(400, "invalid", "Invalid request. The number of bytes uploaded is required to be a multiple of 262144.")
    if first != len(session.data):
        raise Refused(503, "backendError", "The piece does not begin where the last one has ended.")
    if account.short_pieces > 0 and len(data) > PIECE:
        account.short_pieces -= 1
        data = data[:PIECE]
    session.data += data


def _form(bucket: str, found: StoredObject) -> dict[str, t.Any]:
    return {
        "kind": "storage#object",
        "id": f"{bucket}/{found.name}/1",
        "name": found.name,
        "bucket": bucket,
        "size": str(len(found.data)),
        "md5Hash": base64.b64encode(hashlib.md5(found.data, usedforsecurity=False).digest()).decode(),
        "timeCreated": moment(found.created),
        **({"metadata": found.metadata} if found.metadata else {}),
    }
