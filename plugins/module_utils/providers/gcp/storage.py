# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bucket of Cloud Storage that an image goes through. An upload is sent in pieces: one whose answer is lost, or that was kept in part only,
goes on where the bucket says that it ended. The address of an upload is a secret: whoever knows it may send."""

from __future__ import annotations

import base64
import hashlib
import re
import typing as t
from urllib.parse import parse_qs, quote, urlsplit

from ...core import errors
from ...core.clock import Clock
from ...core.http import Answer, Api, path_segment
from ...core.redact import register
from .api import RETRY, explain
from .service_account import AccessTokens, ServiceAccount

if t.TYPE_CHECKING:
    import httpx

URL = "https://storage.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
UNIT = 256 * 1024  # what pieces are multiples of, but for the last one
PIECE = 32 * UNIT
_PIECE_TIMEOUT = 300.0
_TRIES, _SESSIONS = 6, 3  # pieces without progress one after the other; uploads that are begun
_KEPT = re.compile(r"bytes=0-(\d+)")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


def check_bucket(name: str) -> None:
    """InvalidInput for what cannot be the name of a bucket."""
    if not _BUCKET.fullmatch(name):
        raise errors.InvalidInput(
            f"gcp: {name!r} cannot be the name of a bucket.", remedy="Give it without gs:// and without a folder."
        )


def open_bucket(
    account: ServiceAccount,
    name: str,
    url: str,
    token_url: str,
    transport: httpx.BaseTransport | None,
    token_transport: httpx.BaseTransport | None,
    clock: Clock,
    *,
    piece: int = 0,
) -> StorageBucket:
    """The bucket, with tokens of its own: those for machines do not open it."""
    check_bucket(name)
    token_api = Api("gcp", token_url, transport=token_transport, retry=RETRY, clock=clock, explain=explain)
    tokens = AccessTokens(account, token_api, SCOPE)

    def sign(request: httpx.Request) -> httpx.Request:
        request.headers["authorization"] = f"Bearer {tokens.bearer()}"
        return request

    api = Api("gcp", url, auth=sign, transport=transport, timeout=60.0, retry=RETRY, clock=clock, explain=explain)
    return StorageBucket(api, token_api, tokens, name, account.email, clock, piece=piece or PIECE)


class _Lost(Exception):
    """The upload's session has ended before it."""


class StorageBucket:
    """One bucket. ``piece``: bytes of a piece."""

    def __init__(
        self, api: Api, token_api: Api, tokens: AccessTokens, name: str, email: str, clock: Clock, *, piece: int = PIECE
    ) -> None:
        self.name = name
        self._api, self._token_api, self._tokens, self._email, self._clock, self._piece = (
            api,
            token_api,
            tokens,
            email,
            clock,
            piece,
        )

    def size_of(self, name: str) -> int | None:
        """Bytes of an object; None when there is none."""
        operation = f"GET of the object {name}"
        try:
            body = self._call("GET", self._path(name)).json
        except errors.NotFound as error:
            if "No such object" in error.message:
                return None
            raise self._refused(error) from error
        size = self._api.expect(self._api.expect(body, dict, operation).get("size"), str, operation, "size")
        if not size.isdecimal():
            raise self._api.bad_shape(operation, "its size is not a number")
        return int(size)

    def delete(self, name: str) -> bool:
        """Whether there was such an object."""
        try:
            self._call("DELETE", self._path(name), idempotent=True)
        except errors.NotFound:
            return False
        return True

    def upload(self, name: str, read: t.Callable[[int, int], bytes], size: int, tell: t.Callable[[int], None]) -> None:
        """Send ``size`` bytes of ``read(first, last)``. ``tell`` is given how many of them are kept. The object is there once all are."""
        for session in range(1, _SESSIONS + 1):
            try:
                return self._send(self._begin(name), name, read, size, tell)
            except _Lost:
                if session == _SESSIONS:
                    raise errors.ApiError(
                        f"gcp: the upload of {name} to bucket {self.name} ended {_SESSIONS} times before all was sent.",
                        remedy="Run it again later.",
                        service="gcp",
                    ) from None

    def close(self) -> None:
        self._api.close()
        self._token_api.close()

    # ---- inside

    def _path(self, name: str) -> str:
        return f"/storage/v1/b/{path_segment(self.name, 'bucket')}/o/{quote(name, safe='')}"

    def _begin(self, name: str) -> str:
        path = f"/upload/storage/v1/b/{path_segment(self.name, 'bucket')}/o"
        body = {"metadata": {"tgp-managed": "true"}, "contentType": "application/gzip"}
        try:
            answer = self._call("POST", path, params={"uploadType": "resumable", "name": name}, json=body, idempotent=True)
        except errors.NotFound as error:
            raise self._refused(error) from error
        parts = urlsplit(answer.headers.get("location", ""))
        register(*parse_qs(parts.query).get("upload_id", ()))
        if f"{parts.scheme}://{parts.netloc}" != self._api.base_url or not parts.query:
            raise self._api.bad_shape(f"POST {path}", "it leads to no upload at this address")
        return f"{parts.path}?{parts.query}"

    def _send(self, address: str, name: str, read: t.Callable[[int, int], bytes], size: int, tell: t.Callable[[int], None]) -> None:
        kept, stuck, digest = 0, 0, hashlib.md5(usedforsecurity=False)
        while True:
            data = read(kept, min(kept + self._piece, size) - 1)
            now, stored = self._sent(address, kept, data, size)
            if not kept <= now <= kept + len(data):
                raise self._api.bad_shape("PUT of a piece", f"{now} bytes are kept, and {kept} to {kept + len(data)} were sent")
            digest.update(data[: now - kept])
            if stored is not None:
                return self._check(stored, name, size, base64.b64encode(digest.digest()).decode())
            stuck = 0 if now > kept else stuck + 1
            if stuck >= _TRIES:
                raise errors.ApiError(
                    f"gcp: the upload of {name} to bucket {self.name} makes no progress after {now} of {size} bytes.",
                    remedy="Run it again later.",
                    service="gcp",
                )
            if stuck:
                self._clock.sleep(2.0**stuck)
            kept = now
            tell(kept)

    def _sent(self, address: str, first: int, data: bytes, size: int) -> tuple[int, dict[str, t.Any] | None]:
        """How many bytes are kept now, and the object once it is there. After a lost answer the bucket is asked."""
        headers = {"content-range": f"bytes {first}-{first + len(data) - 1}/{size}", "content-type": "application/octet-stream"}
        try:
            answer = self._put(address, data, headers)
        except (errors.LostAnswer, errors.ServerError, errors.RateLimited, errors.Unreachable):
            answer = self._put(address, b"", {"content-range": f"bytes */{size}"}, idempotent=True)
        if answer.status != 308:
            return size, self._api.expect(answer.json, dict, "PUT of a piece")
        found = _KEPT.fullmatch(answer.headers.get("range", ""))
        if found is None and answer.headers.get("range"):
            raise self._api.bad_shape("PUT of a piece", "what it keeps is not understood")
        return (int(found[1]) + 1 if found else 0), None

    def _put(self, address: str, data: bytes, headers: dict[str, str], **options: t.Any) -> Answer:
        try:
            return self._call("PUT", address, content=data, headers=headers, ok=(308,), timeout=_PIECE_TIMEOUT, **options)
        except errors.NotFound as error:  # 404 or 410
            raise _Lost from error

    def _check(self, stored: dict[str, t.Any], name: str, size: int, digest: str) -> None:
        """One that came in damaged is removed: an image made of it would fail, or boot something else."""
        if stored.get("size") == str(size) and stored.get("md5Hash", digest) == digest:
            return
        self.delete(name)
        raise self._api.bad_shape("PUT of a piece", f"the object {name} is not what was sent, so it was removed")

    def _call(self, method: str, path: str, **options: t.Any) -> Answer:
        """A token that is refused is fetched anew, once."""
        bearer = self._tokens.bearer()
        try:
            return self._api.call(method, path, **options)
        except errors.Unauthorized:
            self._tokens.rejected(bearer)
            return self._api.call(method, path, **options)
        except errors.Forbidden as error:
            raise self._refused(error) from error

    def _refused(self, error: errors.ApiError) -> errors.ApiError:
        """What the service account or the bucket lacks."""
        error.remedy = (
            f"Give {self._email} the role Storage Object Admin (or Storage Object User) on bucket {self.name}, or name another bucket."
            if isinstance(error, errors.Forbidden)
            else f"Make the bucket {self.name}, in the region of your machines, or name another one."
        )
        return error
