# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connected clouds and the mesh, each at its first use, and reads that threads share: made once, or as one list for all.

No lock is held by a read but that of its own key, so a cloud that answers slowly holds up only those who ask it.
"""

from __future__ import annotations

import threading
import typing as t
from datetime import datetime

from ..core.clock import Clock
from ..core.errors import InvalidInput, NotFound, TgpError
from ..core.redact import register
from ..core.task import Task
from ..kube.client import Kube, read_secret
from ..mesh.base import Mesh
from ..mesh.connect import connect as connect_mesh
from ..model import Claim, CloudChoice, Instance, Node, Phase, Specs, Volume
from ..providers.base import Cloud, HasVolumes
from ..providers.registry import CAPABILITIES, ENTRIES
from ..providers.registry import connect as connect_cloud
from .audit import told_cloud, told_mesh

_T = t.TypeVar("_T")


class Once:
    """Values by key, each read at the first call with its key.

    Callers of one key wait for one read; other keys go on meanwhile. A read that fails is raised to its caller and not remembered: the next
    caller reads again. A read may ask for other keys, as long as none of them asks for its own.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()  # of the two maps; never held while something is read
        self._reading: dict[t.Hashable, threading.RLock] = {}
        self._values: dict[t.Hashable, t.Any] = {}

    def __call__(self, key: t.Hashable, read: t.Callable[[], _T]) -> _T:
        """``read()`` at the first call with this key, the same value afterwards."""
        with self._guard:
            if key in self._values:
                return t.cast(_T, self._values[key])
            reading = self._reading.setdefault(key, threading.RLock())
        with reading:
            with self._guard:
                if key in self._values:
                    return t.cast(_T, self._values[key])
            value = read()
            with self._guard:
                if self._reading.get(key) is reading:  # else it was forgotten or replaced meanwhile
                    self._values[key] = value
            return value

    def put(self, key: t.Hashable, value: t.Any) -> None:
        """The value from now on, whatever a read that is under way finds."""
        with self._guard:
            self._reading.pop(key, None)
            self._values[key] = value

    def forget(self, *keys: t.Hashable) -> None:
        """Read these, or everything, anew at the next call."""
        with self._guard:
            for key in keys or (*self._reading, *self._values):
                self._reading.pop(key, None)
                self._values.pop(key, None)


class Listing(t.NamedTuple, t.Generic[_T]):
    """A list, when it was asked for, and when its answer came. What came to be since ``asked`` may not be in it, so that moment is its date:
    what it lacks is missing only if it existed by then. It may have existed until ``answered``."""

    items: tuple[_T, ...]
    asked: datetime
    answered: datetime


class Feed(t.Generic[_T]):
    """A list that is read again when it is older than ``max_age`` seconds, by one caller at a time.

    Its age counts from when its answer came, else a list that takes longer than that would be read once for each of its callers. A failed
    read keeps the last good list and its date; ``problem`` says what went wrong until a read succeeds.
    """

    def __init__(self, read: t.Callable[[], t.Sequence[_T]], clock: Clock, max_age: float = 5.0) -> None:
        self._read = read
        self._clock = clock
        self._max_age = max_age
        self._lock = threading.Lock()
        self._asked: datetime | None = None  # when the last read began, and when its answer or failure came
        self._answered: datetime | None = None
        self._good: Listing[_T] | None = None
        self._failure: TgpError | None = None

    @property
    def problem(self) -> str:
        return str(self._failure or "")

    def listing(self, since: datetime | None = None) -> Listing[_T] | None:
        """The newest list there is. It is read again if it was asked for before ``since``; None when no read ever succeeded. A ``since``
        that is still to come, by the clock of another host, means now."""
        with self._lock:
            now = self._clock.now()
            if self._asked is None or self._is_old(now) or (since is not None and self._asked < min(since, now)):
                self._asked, self._answered = now, None
                try:
                    items = tuple(self._read())
                    self._good, self._failure = Listing(items, now, self._clock.now()), None
                except TgpError as error:
                    self._failure = error
                self._answered = self._clock.now()
            return self._good

    def items(self, since: datetime | None = None) -> tuple[_T, ...] | None:
        """What :meth:`listing` lists."""
        listing = self.listing(since)
        return None if listing is None else listing.items

    def items_since(self, since: datetime) -> tuple[_T, ...]:
        """The same for callers to whom an older list proves nothing: raises what kept it from being read."""
        since = min(since, self._clock.now())
        listing = self.listing(since)
        if listing is not None and listing.asked >= since:
            return listing.items
        raise self._failure or TgpError("The list could not be read.")

    def _is_old(self, now: datetime) -> bool:
        return self._answered is None or (now - self._answered).total_seconds() >= self._max_age


class Clients:
    """The clouds and the mesh of one module call. ``specs`` and ``claims`` give the documents and claims as they are known by then."""

    def __init__(self, task: Task, kube: Kube, specs: t.Callable[[], Specs], claims: t.Callable[[], t.Iterable[Claim]]) -> None:
        self._task = task
        self._kube = kube
        self._specs = specs
        self._claims = claims
        self._clouds = Once()  # by name: the connected cloud, or why it cannot be connected
        self._volumes = Once()  # by the name of the cloud
        self._guard = threading.Lock()  # of the lists below; never held during a call
        self._opened: list[Cloud] = []
        self._feeds: dict[str, Feed[Instance]] = {}
        self._connecting = threading.RLock()  # to the mesh
        self._mesh: Mesh | None = None

    # ---- clouds

    def cloud_names(self) -> tuple[str, ...]:
        """Clouds to look at: those of the documents and those that live claims were rented from."""
        wanted = {choice.cloud for node_class in self._specs().classes.values() for choice in node_class.clouds if choice.enabled}
        wanted |= {claim.cloud for claim in self._claims() if claim.cloud}
        return tuple(sorted(name for name in wanted if name in CAPABILITIES))

    def cloud(self, name: str) -> Cloud:
        """The connected cloud; a failure to connect is remembered and raised again."""
        connected: Cloud | TgpError = self._clouds(name, lambda: self._opened_cloud(name))
        if isinstance(connected, TgpError):
            raise connected
        return connected

    def volumes(self, name: str) -> tuple[Volume, ...]:
        """The existing volumes of a cloud's account, read once in a run; a failure is raised to each caller. For clouds that mount some."""
        return self._volumes(name, lambda: tuple(t.cast(HasVolumes, self.cloud(name)).volumes()))

    def give_up(self, name: str, error: TgpError) -> None:
        """Ask nothing more of a cloud in this run: it does not take our credential."""
        self._clouds.put(name, error)

    def _opened_cloud(self, name: str) -> Cloud | TgpError:
        try:
            cloud = self._connect(name)
        except TgpError as error:
            return error
        with self._guard:
            self._opened.append(cloud)
        return cloud

    def _connect(self, name: str) -> Cloud:
        choice = self._specs().choice(name) or self._remembered_choice(name)
        credential = cloud_credential(self._task, self._kube, name, choice)
        in_flight = {claim.name: word for claim in self._claims() if claim.cloud == name and (word := _in_flight(claim))}
        cloud = connect_cloud(
            name, self._task, credential=credential, choice=choice, node_ready=self._node_ready, in_flight=in_flight
        )
        return cloud if self._task.events is None else told_cloud(cloud, self._task, name)

    def _remembered_choice(self, cloud: str) -> CloudChoice | None:
        """Where the key of a cloud stands that no valid document names any more, as its claims remember it."""
        secret_refs = (claim.limits.credentials for claim in self._claims() if claim.cloud == cloud and claim.limits is not None)
        credentials = next(filter(None, secret_refs), None)
        return CloudChoice(cloud, credentials=credentials) if credentials is not None else None

    def _node_ready(self, node: str) -> bool | None:
        from ..kube.nodes import get_node

        current: Node | None = get_node(self._kube, node)
        return None if current is None else bool(current.ready)

    def instances(self, cloud: str, since: datetime | None = None) -> tuple[Instance, ...] | None:
        """A list of a cloud's machines that came a few seconds ago at most, asked for not before ``since``; None when it could not be read,
        also because the cloud cannot be connected: that ends no wait for machines of another one."""
        return self._feed(cloud).items(since)

    def listing(self, cloud: str, since: datetime | None = None) -> Listing[Instance] | None:
        """The same with its date."""
        return self._feed(cloud).listing(since)

    def instances_since(self, cloud: str, since: datetime) -> tuple[Instance, ...]:
        """One list for all who need one that was asked for after ``since``; raises when it cannot be read."""
        return self._feed(cloud).items_since(since)

    def _feed(self, cloud: str) -> Feed[Instance]:
        with self._guard:
            if cloud not in self._feeds:
                self._feeds[cloud] = Feed(lambda: self.cloud(cloud).instances(), self._task.clock)
            return self._feeds[cloud]

    # ---- the mesh

    def mesh(self) -> Mesh | None:
        """The connected mesh, None when no class uses one and none was configured."""
        with self._connecting:
            if self._mesh is None and self.uses_mesh():
                mesh = self._connect_mesh()
                self._mesh = mesh if self._task.events is None else told_mesh(mesh, self._task)
            return self._mesh

    def _connect_mesh(self) -> Mesh:
        try:
            return connect_mesh(self._task)
        except InvalidInput:
            credentials = mesh_credentials(self._task, self._kube)
            if not credentials:
                raise
            return connect_mesh(self._task, **credentials)

    def uses_mesh(self) -> bool:
        """Whether any document or live claim speaks of a mesh."""
        used = any(node_class.mesh.backend == "tailscale" for node_class in self._specs().classes.values())
        return used or any(claim.mesh_backend == "tailscale" for claim in self._claims())

    def refresh(self) -> None:
        """Connect clouds anew, and read their lists anew."""
        self._clouds.forget()
        with self._guard:
            self._feeds.clear()

    def close(self) -> None:
        with self._guard:
            opened = tuple(self._opened)
        for cloud in opened:
            cloud.close()
        if self._mesh is not None:
            self._mesh.close()


_COMING = (Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING)


def _in_flight(claim: Claim) -> str:
    """What a machine that cannot be asked is doing, as far as our own calls tell (L-21); empty when they do not."""
    never_up = claim.initialized is None and claim.launch_started is not None
    unasked = claim.deletion is None or not claim.deletion.attempts  # whether no call to end it was sent yet
    if never_up and unasked and claim.phase in (*_COMING, Phase.FAILED, Phase.TERMINATING):
        return "starting"
    return "stopping" if claim.phase is Phase.TERMINATING else ""


# ---- finds credentials: module option or its environment variable, then the class's ``credentialsRef``, then the common Secret. Values
# are registered for redaction the moment they are read and are never written anywhere

NAMESPACE = "tgp-system"


def cloud_credential(task: Task, kube: Kube, cloud: str, choice: CloudChoice | None) -> str | None:
    """The API key of a cloud, or None when it was given as an option (the cloud's own connect reads that) or is nowhere."""
    entry = ENTRIES[cloud]
    if entry.option(task, entry.key):
        return None
    if choice is not None and choice.credentials is not None:
        ref = choice.credentials
        return _registered(read_secret(kube, ref.namespace, ref.name, ref.key))
    for key in entry.facts.credential_env:
        value = _from_common_secret(task, kube, key)
        if value:
            return value
    return None


def unused(task: Task, kube: Kube, cloud: str, specs: Specs) -> bool:
    """Whether nobody named the cloud and nothing of it is configured anywhere, so that nobody expects it to be asked.

    A Secret that cannot be read proves nothing about that.
    """
    choices = [
        choice for node_class in specs.classes.values() for choice in node_class.clouds if choice.cloud == cloud and choice.enabled
    ]
    if not all(choice.implicit for choice in choices) or ENTRIES[cloud].is_configured(task):
        return False
    try:
        return cloud_credential(task, kube, cloud, None) is None
    except TgpError:
        return False


def mesh_credentials(task: Task, kube: Kube) -> dict[str, str]:
    """OAuth client id and secret of the common Secret, for callers to whom neither option nor variable gave a mesh credential."""
    client_id = _from_common_secret(task, kube, "client-id")
    client_secret = _from_common_secret(task, kube, "client-secret")
    return {"client_id": client_id, "client_secret": client_secret} if client_id and client_secret else {}


def secret_of_notices(task: Task, kube: Kube, key: str) -> str | None:
    """What the common Secret has for notices: the bearer token of notify_url, or URLs of apprise. None when it has none, or cannot be read."""
    try:
        return _from_common_secret(task, kube, key)
    except TgpError:
        return None


def _from_common_secret(task: Task, kube: Kube, key: str) -> str | None:
    name = task.params.get("credentials_secret")
    if not name:
        return None
    try:
        return _registered(read_secret(kube, NAMESPACE, name, key))
    except NotFound:
        return None


def _registered(value: str) -> str:
    register(value)
    return value
