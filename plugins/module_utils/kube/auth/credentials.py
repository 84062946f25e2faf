# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns a kubeconfig's user and cluster into what a connection needs: an authorisation header and a TLS context."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import os
import ssl
import tempfile
import threading
import time
import typing as t
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from ...core.clock import to_text
from ...core.errors import InvalidInput, MissingLibrary, lazy
from ...core.http import CONNECTIONS, Api, check_headers
from ...core.redact import register
from ...core.task import Task
from ..client import Kube, explain
from .kubeconfig import KubeconfigEntry, find
from .official_client import OIDC, ExecPlugin, OidcToken

if t.TYPE_CHECKING:
    import httpx
else:
    httpx = lazy("httpx")


_SKEW = timedelta(minutes=5)  # which authorities allow for when they sign
_TOKEN_FILE_LIFE = 60.0  # mounted tokens rotate, tokens of OpenID Connect end: they are looked at again after this many seconds


@dataclasses.dataclass(frozen=True)
class Access:
    """How to reach and convince a cluster. ``authorize`` puts the credential on a request; ``renewed`` says whether there is another one
    than a request had that was answered 401. ``tls`` is None for plain http."""

    server: str
    source: str
    namespace: str
    authorize: t.Callable[[httpx.Request], httpx.Request]
    renewed: t.Callable[[httpx.Request], bool]
    tls: ssl.SSLContext | None
    server_name: str
    proxy: str


def access(entry: KubeconfigEntry) -> Access:
    """Everything but the connection itself. InvalidInput names file and context."""
    if entry.user.get("as-user-extra"):
        raise InvalidInput(f"{entry.source}: its user relies on as-user-extra, which is not supported here.")
    if (provider := entry.user.get("auth-provider")) and _name_of(provider) != OIDC:
        raise InvalidInput(
            f"{entry.source}: its user relies on an auth-provider ({_name_of(provider) or 'without a name'}), which Kubernetes itself "
            "dropped in 1.26; use an exec plugin instead."
        )
    plugin = ExecPlugin(entry) if entry.user.get("exec") else None
    bearer = _bearer(entry, plugin)
    return Access(
        entry.server,
        entry.source,
        entry.namespace,
        _authorizer(entry, bearer),
        _renewer(bearer),
        _tls(entry, plugin) if entry.server.startswith("https://") else None,
        str(entry.cluster.get("tls-server-name") or ""),
        _proxy(entry),
    )


def _name_of(provider: t.Any) -> str:
    return str(provider.get("name") or "") if isinstance(provider, dict) else ""


def _proxy(entry: KubeconfigEntry) -> str:
    proxy = str(entry.cluster.get("proxy-url") or "")
    if proxy and not proxy.startswith(("http://", "https://", "socks5://")):
        raise InvalidInput(f"{entry.source}: proxy-url {proxy!r} must begin with http://, https:// or socks5://.")
    return proxy


# ---- who we are


class _Bearer(t.Protocol):
    def token(self) -> str: ...

    def another(self, refused: str) -> bool:
        """Look for a token at once; whether it is another one than the cluster has refused."""
        ...


def _authorizer(entry: KubeconfigEntry, bearer: _Bearer | None) -> t.Callable[[httpx.Request], httpx.Request]:
    fixed = _impersonation(entry)
    user = entry.user
    if bearer is None and user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        basic = base64.b64encode(pair.encode()).decode()
        register(str(user.get("password") or ""), basic)
        fixed["authorization"] = f"Basic {basic}"
    check_headers(entry.source, fixed)

    def authorize(request: httpx.Request) -> httpx.Request:
        request.headers.update(fixed)
        if bearer is not None and (token := bearer.token()):
            value = f"Bearer {token}"
            check_headers(entry.source, {"authorization": value})
            request.headers["authorization"] = value
        return request

    return authorize


def _renewer(bearer: _Bearer | None) -> t.Callable[[httpx.Request], bool]:
    def renewed(request: httpx.Request) -> bool:
        refused = request.headers.get("authorization", "").removeprefix("Bearer ")
        return bearer is not None and bearer.another(refused)

    return renewed


def _impersonation(entry: KubeconfigEntry) -> dict[str, str]:
    user = entry.user
    groups = user.get("as-groups") or []
    if len(groups) > 1:
        raise InvalidInput(f"{entry.source}: as-groups with more than one group is not supported here.")
    pairs = (
        ("impersonate-user", user.get("as")),
        ("impersonate-uid", user.get("as-uid")),
        ("impersonate-group", groups[0] if groups else None),
    )
    return {header: str(value) for header, value in pairs if value}


def _bearer(entry: KubeconfigEntry, plugin: ExecPlugin | None) -> _Bearer | None:
    """Precedence as in kubectl: a token file before a token, both before an exec plugin or an auth-provider."""
    if path := entry.user.get("tokenFile"):
        return _ChangingToken(_TokenFile(str(path), entry.source))
    if token := entry.user.get("token"):
        return _Token(str(token).strip())
    if plugin is None and entry.user.get("auth-provider"):
        return _ChangingToken(OidcToken(entry))
    return plugin


class _Token:
    def __init__(self, text: str) -> None:
        register(text)
        self._text = text

    def token(self) -> str:
        return self._text

    def another(self, refused: str) -> bool:
        return False


class _ChangingToken:
    """``look`` gives the token of now."""

    def __init__(self, look: t.Callable[[], str]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._text = ""
        self._read = 0.0

    def token(self) -> str:
        with self._lock:
            if not self._text or time.monotonic() - self._read > _TOKEN_FILE_LIFE:
                self._text = self._look()
                register(self._text)
                self._read = time.monotonic()
            return self._text

    def another(self, refused: str) -> bool:
        """What a 401 means where tokens rotate faster than we look."""
        with self._lock:
            if self._text == refused:
                self._text = ""
        return self.token() != refused


class _TokenFile:
    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source

    def __call__(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                text = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{self._source}: its token file {self._path} cannot be read: {error}.") from error
        if not text:
            raise InvalidInput(f"{self._source}: its token file {self._path} is empty.")
        return text


# ---- whom we trust, and our certificate


def _tls(entry: KubeconfigEntry, plugin: ExecPlugin | None) -> ssl.SSLContext:
    cluster, source = entry.cluster, entry.source
    authority = _decoded(cluster, "certificate-authority", source)
    try:
        # with its own authority the system's are not trusted, as kubectl does
        context = ssl.create_default_context(cadata=authority) if authority else ssl.create_default_context()
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput(f"{source}: its certificate-authority is not a PEM certificate.") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # many cluster authorities predate that rule; Go clients do not ask for it
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an authority below another will do, as for them
    if cluster.get("insecure-skip-tls-verify"):
        if authority:
            raise InvalidInput(f"{source}: insecure-skip-tls-verify and a certificate-authority exclude each other.")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _decoded(entry.user, "client-certificate", source)
    key = _decoded(entry.user, "client-key", source)
    if not certificate and plugin is not None and not (entry.user.get("token") or entry.user.get("tokenFile")):
        certificate, key = plugin.certificate()
    if bool(certificate) != bool(key):
        raise InvalidInput(f"{source}: a client certificate needs both the certificate and its key.")
    if certificate:
        register(key)
        _check_validity(certificate, source)
        try:
            with _file(f"{certificate}\n{key}") as path:
                context.load_cert_chain(path, password="")  # without one OpenSSL asks the terminal, and waits
        except (ssl.SSLError, ValueError, OSError) as error:
            raise InvalidInput(
                f"{source}: its client certificate and key do not fit together, are not PEM, or the key has a passphrase."
            ) from error
    return context


def _check_validity(certificate: str, source: str) -> None:
    """What a server says of an expired certificate is different everywhere, and seldom that."""
    span, now = validity(certificate), datetime.now(timezone.utc)
    if span is not None and span[1] < now:
        raise InvalidInput(
            f"{source}: its client certificate expired on {to_text(span[1])}.",
            remedy="Fetch a new kubeconfig (talosctl kubeconfig, or where this one came from).",
        )
    if span is not None and span[0] > now + _SKEW:
        raise InvalidInput(
            f"{source}: its client certificate is valid from {to_text(span[0])} only.", remedy="Correct the clock of this machine."
        )


def _decoded(section: t.Mapping[str, t.Any], key: str, source: str) -> str:
    """The text of ``<key>-data`` (base64), else of the file ``<key>``, else ""."""
    if data := section.get(f"{key}-data"):
        try:
            return base64.b64decode(str(data), validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidInput(f"{source}: {key}-data is not base64 of PEM text.") from error
    if path := section.get(key):
        try:
            with open(str(path), encoding="ascii") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{source}: {key} {path} cannot be read: {error}.") from error
    return ""


@contextmanager
def _file(text: str) -> t.Iterator[str]:
    """A path with ``text`` behind it, for the TLS library, which takes a private key only by path: memory where the system can
    do that, else a private file that lives for this moment only."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("tgp", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(prefix="tgp-")
    try:
        os.write(descriptor, text.encode())
        yield path
    finally:
        os.close(descriptor)
        os.unlink(path)


# ---- from when to when a certificate holds. Read from its DER form: the library for certificates takes longer to import than a call
# takes

_VERSION = 0xA0
_FORMS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}  # UTCTime, GeneralizedTime
_BEFORE_VALIDITY = 3  # serial number, algorithm, issuer


def validity(pem: str) -> tuple[datetime, datetime] | None:
    """Beginning and end of the first certificate of ``pem``; None when it is of another form."""
    begin = pem.find(ssl.PEM_HEADER)
    end = pem.find(ssl.PEM_FOOTER, begin)
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(ssl.PEM_FOOTER)])
        body = _parts(_parts(der)[0][1])[0][1]  # the outermost sequence, and of it what is signed
        fields = [part for part in _parts(body) if part[0] != _VERSION]
        first, last = _parts(fields[_BEFORE_VALIDITY][1])
        return _time(*first), _time(*last)
    except (ValueError, IndexError):
        return None


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each value in ``data``."""
    parts = []
    while data:
        tag, size, at = data[0], data[1], 2
        if size & 0x80:
            at += size & 0x7F
            size = int.from_bytes(data[2:at], "big")
        if at + size > len(data):
            raise ValueError("cut off")
        parts.append((tag, data[at : at + size]))
        data = data[at + size :]
    return parts


def _time(tag: int, content: bytes) -> datetime:
    moment = datetime.strptime(content.decode("ascii"), _FORMS.get(tag, "")).replace(tzinfo=timezone.utc)
    # two digits are years until 2049 (RFC 5280, 4.1.2.5.1)
    return moment.replace(year=moment.year - 100) if tag == 0x17 and moment.year >= 2050 else moment


# ---- opens the cluster that the options or the environment name

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
            limits=httpx.Limits(**CONNECTIONS),
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
