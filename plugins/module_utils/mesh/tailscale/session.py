# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One authorised call to the API, and one sure deletion."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.http import Answer, Api
from .credential import Credential
from .refusals import Attempt, explain


class Session:
    """``api`` under one credential. Every refusal gets a cause and a remedy. Safe for use by several threads."""

    def __init__(self, api: Api, credential: Credential) -> None:
        self.api = api
        self.credential = credential

    def bearer(self) -> str:
        """The token for a call; an OAuth client fetches one when it has none."""
        try:
            return self.credential.bearer()
        except errors.ApiError as error:
            explain(error, Attempt(caller=self.credential.name))
            raise

    def call(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        tags: t.Sequence[str] = (),
        headers: t.Mapping[str, str] | None = None,
        **options: t.Any,
    ) -> Answer:
        """One call; ``options`` are those of Api.call, ``scope`` and ``tags`` only make a refusal clearer.

        A 401 with an OAuth token is answered once with a fresh token: nothing was done under the old one.
        """
        token = self.bearer()
        try:
            try:
                return self._send(method, path, token, headers, options)
            except errors.Unauthorized:
                if not self.credential.rejected(token):
                    raise
            return self._send(method, path, self.credential.bearer(), headers, options)
        except errors.ApiError as error:
            explain(error, Attempt(scope, tuple(tags), self.credential.name))
            raise

    def _send(self, method: str, path: str, token: str, headers: t.Mapping[str, str] | None, options: dict[str, t.Any]) -> Answer:
        return self.api.call(method, path, headers={**(headers or {}), "authorization": f"Bearer {token}"}, **options)

    def delete(self, path: str, *, scope: str, there: t.Callable[[], bool]) -> bool:
        """Delete and be sure. True = done now, False = it was gone already.

        A failure of unknown outcome is followed by a look (``there``): the service has been seen to answer 500 for what was deleted
        already, and a slow deletion may be answered 504 after it was done.
        """
        try:
            self.call("DELETE", path, scope=scope, resend_rate_limited=self.api.retry)
            return True
        except errors.NotFound as error:
            if not said_by_service(error):
                raise
            return False
        except (errors.ServerError, errors.LostAnswer) as error:
            if error.status == 501:
                raise
            if not there():
                return True
        try:
            self.call("DELETE", path, scope=scope, idempotent=True)
        except errors.NotFound as error:
            if not said_by_service(error):
                raise
        return True


def said_by_service(error: errors.NotFound) -> bool:
    """True for a "not found" of the API itself; a page of a proxy or of a wrong address has no such body and proves nothing."""
    return isinstance(error.body, dict)
