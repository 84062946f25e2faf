# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk image of the Image Factory, read in parts, so that the whole of it is never held. The factory leads to its store, whose address is
signed and ends after a while; then the factory is asked again."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import urlsplit

from ...core import errors
from ...core.http import Answer, Api
from ...core.rate_limit import RetryPolicy
from ...core.redact import register
from .factory import ImageFactory

_BUILD = 900.0  # seconds: the first request for an image makes it
_PART = 300.0
_LED = (301, 302, 303, 307, 308)
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_REDIRECTS = 3


def prepare(factory: ImageFactory, path: str) -> None:
    """Have the image made: whoever fetches it later fetches it once. InvalidInput when the factory does not make it."""
    try:
        factory.api.call("HEAD", path, ok=_LED, timeout=_BUILD)
    except errors.ApiError as error:
        if error.status in (400, 404):
            raise errors.InvalidInput(
                f"The Image Factory {factory.url} does not make the image {path}: it answers {error.status}.",
                remedy="Check schematic, release and architecture; an extension of the schematic may not exist for the release.",
            ) from error
        raise


class RemoteImage:
    """One file below ``path`` of the factory. ``open_api`` opens the store that it leads to."""

    def __init__(self, factory: ImageFactory, path: str, open_api: t.Callable[[str], Api]) -> None:
        self._factory, self._path, self._open = factory, path, open_api
        self._store: tuple[Api, str] | None = None
        self.size = self._measure()

    def close(self) -> None:
        if self._store is not None and self._store[0] is not self._factory.api:
            self._store[0].close()
        self._store = None

    def _measure(self) -> int:
        answer = self._part(0, 0)
        return int(self._found(answer)[3])

    def read(self, first: int, last: int) -> bytes:
        """Bytes ``first`` to ``last``, both included."""
        answer = self._part(first, last)
        found = self._found(answer)
        if (int(found[1]), int(found[2]), int(found[3])) != (first, last, self.size) or len(answer.body) != last - first + 1:
            raise self._factory.api.bad_shape(f"GET {self._path}", f"another part came than bytes {first} to {last}")
        return answer.body

    def _found(self, answer: Answer) -> re.Match[str]:
        found = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        if answer.status != 206 or found is None:
            raise errors.BadShape(
                f"image factory: {self._path} comes as a whole only, not in parts.",
                remedy="Download the image, copy it into the bucket, and give its address (gs://BUCKET/OBJECT) as source.",
                service="image factory",
            )
        return found

    def _part(self, first: int, last: int) -> Answer:
        """A signed address that has ended is asked for again, once."""
        known = self._store is not None
        try:
            return self._ask(first, last)
        except (errors.Forbidden, errors.NotFound, errors.Unauthorized):
            if not known:
                raise
            self.close()
            return self._ask(first, last)

    def _ask(self, first: int, last: int) -> Answer:
        headers = {"range": f"bytes={first}-{last}", "accept-encoding": "identity", "accept": "*/*"}
        api, address = self._store or (self._factory.api, self._path)
        for _redirect in range(_REDIRECTS):
            answer = api.call("GET", address, headers=headers, ok=_LED, timeout=_PART if self._store else _BUILD)
            if answer.status not in _LED:
                self._store = (api, address)
                return answer
            parts = urlsplit(answer.headers.get("location", ""))
            if (
                not parts.netloc
                or parts.scheme not in ("http", "https")
                or (parts.scheme == "http" and self._factory.url.startswith("https"))
            ):
                raise api.bad_shape(f"GET {self._path}", "it leads to no address")
            register(parts.query)
            if api is not self._factory.api:
                api.close()
            api, address = self._open(f"{parts.scheme}://{parts.netloc}"), f"{parts.path}?{parts.query}".rstrip("?")
        raise api.bad_shape(f"GET {self._path}", "it leads from one address to another without an end")


def open_store(url: str, transport: t.Any, clock: t.Any) -> Api:
    """The store that the factory leads to."""
    return Api("image store", url, transport=transport, retry=RetryPolicy(tries=4), clock=clock)
