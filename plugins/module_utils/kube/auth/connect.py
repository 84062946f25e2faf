# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens the cluster that the options or the environment name."""

from __future__ import annotations

import typing as t

from ...core.errors import MissingLibrary
from ...core.http import Api
from ...core.lazy_import import lazy
from ...core.task import Task
from ..client import Kube, explain
from .credentials import Access, access
from .kubeconfig import find

if t.TYPE_CHECKING:
    import httpx
else:
    httpx = lazy("httpx")

#: options of everything that talks to the cluster; their environment fallbacks are read by :func:`connect` itself
CLUSTER_SPEC: dict[str, t.Any] = {
    "kubeconfig": {"type": "str"},
    "context": {"type": "str"},
}


def connect(task: Task) -> Kube:
    """The cluster of the options ``kubeconfig`` and ``context``. No call is made yet; InvalidInput when nothing usable is named."""
    how = access(find(task.params.get("kubeconfig"), task.params.get("context")))
    api = Api(
        "kubernetes",
        how.server,
        auth=_auth(how),
        transport=task.transport(how.server) or _transport(how),
        verify=how.tls if how.tls is not None else False,
        clock=task.clock,
        auth_hint=f"The cluster at {how.server} does not accept the credential of {how.source}; fetch a new kubeconfig or token.",
        explain=explain,
    )
    return Kube(api, how.source)


def _auth(how: Access) -> httpx.Auth:
    """The credential on every request. One that is refused is looked for again, once: nothing was done under the old one."""

    class Auth(httpx.Auth):  # made here, since the library is imported when it is needed
        def auth_flow(self, request: httpx.Request) -> t.Generator[httpx.Request, httpx.Response, None]:
            response = yield how.authorize(request)
            if response.status_code == 401 and how.renewed(request):
                yield how.authorize(request)

    return Auth()


def _transport(how: Access) -> httpx.BaseTransport | None:
    """A transport of its own only where the plain one cannot do it: a proxy of the kubeconfig, another name in the certificate."""
    if not how.proxy and not how.server_name:
        return None
    try:
        inner = httpx.HTTPTransport(
            verify=how.tls if how.tls is not None else False,
            proxy=how.proxy or None,
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=32),
        )
    except ImportError as error:  # httpx speaks to SOCKS by a library of its own
        raise MissingLibrary(
            f"{how.source}: its proxy-url is a SOCKS proxy, for which the Python library socksio is needed.",
            remedy="Install it into the interpreter that runs the module: pip install socksio.",
            library="socksio",
        ) from error
    return t.cast("httpx.BaseTransport", _Named(inner, how.server_name)) if how.server_name else inner


class _Named:
    """Checks the server's certificate against another host name (tls-server-name)."""

    def __init__(self, inner: httpx.BaseTransport, name: str) -> None:
        self._inner, self._name = inner, name

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions = {**request.extensions, "sni_hostname": self._name}
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()
