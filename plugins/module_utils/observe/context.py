# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything one module call of the fleet family works with, opened once: cluster, records, documents, clouds, mesh, lock.

Nothing is connected before it is needed, so a refusal of the documents costs no call, and a cloud that is down hurts only itself.
"""

from __future__ import annotations

import dataclasses
import threading
import typing as t
import uuid
from datetime import datetime, timedelta

from ..core.clock import from_text, others_ahead, to_text
from ..core.errors import BadShape, InvalidInput, TgpError
from ..core.progress import Progress
from ..core.task import Task
from ..kube.client import Kube
from ..mesh.base import Mesh
from ..mesh.connect import connect as connect_mesh
from ..model import Claim, CloudChoice, Instance, Ledger, Node, NodeClass, Phase, Pool, Wishes
from ..model.defaults import Settings
from ..model.names import Verdict
from ..model.spec import DRAIN_TIMEOUT
from ..planner import clock_skew
from ..planner.claims.record import remembered as remembered_pool
from ..planner.cost.ledger import read_ledger
from ..planner.garbage_collection.ownership import Owner, Store, claimed, generations_of, owner_of, remembered
from ..planner.offers import launch_backoff
from ..providers.base import Cloud
from ..providers.registry import CAPABILITIES
from ..providers.registry import connect as connect_cloud
from ..store.records import ClaimStore
from .audit import told_cloud, told_mesh
from .credentials import cloud_credential, mesh_credentials
from .shared_list import Feed

_T = t.TypeVar("_T")


class Lock(t.Protocol):
    """What acting code needs of the run lock."""

    def renew_if_due(self) -> None: ...

    def confirm(self) -> None: ...


class NoLock:
    """For runs that only read."""

    def renew_if_due(self) -> None:
        """Nothing is held."""

    def confirm(self) -> None:
        """Nothing is held."""


@dataclasses.dataclass
class Context:
    """One opened world. ``wishes`` may be empty (a teardown needs no documents)."""

    task: Task
    kube: Kube
    store: ClaimStore
    wishes: Wishes
    settings: Settings
    cluster_id: str
    run_id: str
    progress: Progress
    lock: Lock = dataclasses.field(default_factory=NoLock)

    def __post_init__(self) -> None:
        self.clock = self.task.clock
        self.money = threading.RLock()  # limits are checked and reserved by one claim at a time
        self._opening = threading.RLock()
        self._clouds: dict[str, Cloud | TgpError] = {}
        self._given_up: list[Cloud] = []
        self._feeds: dict[str, Feed[Instance]] = {}
        self._mesh: Mesh | None = None
        self._claims: dict[str, Claim] = {}
        self._once: dict[t.Any, t.Any] = {}

    def once(self, key: t.Any, read: t.Callable[[], _T]) -> _T:
        """``read()`` at the first call with this key, the same value afterwards."""
        with self._opening:
            if key not in self._once:
                self._once[key] = read()
            return t.cast(_T, self._once[key])

    # ---- time

    def clock_offset(self) -> tuple[str, float] | None:
        """Whose clock (the API server's, a cloud's) differs most from ours, and by how many seconds it is ahead; None when none has said."""
        return others_ahead(self.clock, {"kubernetes", *CAPABILITIES}, self.task.began)

    def wrong_clock(self) -> str:
        """What is to be said of our clock when it is wrong (L-27); empty when it is right, or not known to be wrong."""
        source, offset = self.clock_offset() or ("", 0.0)
        return clock_skew.told(offset, source) if clock_skew.is_wrong(offset) else ""

    def billed_now(self) -> datetime:
        """The moment by the clock of those who write the bills, where ours is known to be wrong."""
        _source, offset = self.clock_offset() or ("", 0.0)
        return self.clock.now() + timedelta(seconds=offset if clock_skew.is_wrong(offset) else 0.0)

    # ---- records

    def remember(self, claim: Claim) -> None:
        """Keep the record as last written, so that a later failure reports the truth."""
        self._claims[claim.name] = claim

    def forget(self, claim: Claim) -> None:
        self._claims.pop(claim.name, None)

    def current(self, claim: Claim) -> Claim:
        return self._claims.get(claim.name, claim)

    def read_times(self, name: str) -> dict[str, datetime]:
        """A stored map of moments (first sightings). BadShape when one of them is none."""
        times: dict[str, datetime] = {}
        for key, text in self.store.read_state(name).items():
            try:
                times[key] = from_text(str(text))
            except ValueError:
                raise BadShape(
                    f"The record tgp-state-{name} beside the claims is not understood at {key!r}: {text!r} is no time.",
                    remedy="Remove that record once no run is at work; what it remembers is then seen for the first time again.",
                    service="claims",
                    record=name,
                ) from None
        return times

    def write_times(self, name: str, times: t.Mapping[str, datetime]) -> None:
        self.store.write_state(name, {key: to_text(moment) for key, moment in times.items()})

    def generations(self) -> tuple[str, ...]:
        """The generations of this record store, the current one first; empty until a run that writes has drawn one (L-1a). Of a damaged
        record the claims stand in; where they know none either nobody can say whose a machine is, so that raises BadShape."""
        try:
            return generations_of(self.store.read_state("generation"))
        except (InvalidInput, BadShape) as error:
            if isinstance(error, BadShape) and error.service != "claims":
                raise  # the answer is odd, not the record
            if known := remembered(self.known_claims()):
                self.warn(
                    f"The record tgp-state-generation is damaged; the claims say generation {known}. Delete the record: it is made anew."
                )
                return (known,)
            raise BadShape(
                f"The record tgp-state-generation beside the claims is not understood: {error.message}",
                remedy="Delete it and run adopt.yml with the generation that your machines are stamped with.",
                service="claims",
                record="generation",
            ) from error

    def draw_generation(self) -> str:
        """The generation of this record store. Drawn and written once; one whose record was removed is found again in the claims."""
        known = self.generations()
        if known:
            return known[0]
        drawn = remembered(self.known_claims()) or str(uuid.uuid4())
        self.store.write_state("generation", {"generation": drawn, "drawn": to_text(self.clock.now())})
        return drawn

    def owner(self, instance: Instance) -> Owner:
        """Whose a machine is, by the records as they are now."""
        store = Store(self.cluster_id, self.once("generations", self.generations), claimed(self.known_claims()))
        return owner_of(instance, CAPABILITIES.get(instance.cloud), store)

    def is_ours(self, instance: Instance) -> bool:
        return self.owner(instance).verdict is Verdict.OURS

    def blocks(self) -> dict[str, t.Any]:
        """The stored block list (L-14)."""
        return self.store.read_state("blocklist")

    def block(self, key: str, reason: str) -> None:
        """Remember that an offer failed, so that it is not tried again at once."""
        with self.money:
            self.store.write_state("blocklist", launch_backoff.after_failure(self.blocks(), key, reason, self.clock.now()))

    def failed_join(self, pool: str) -> None:
        """Count a machine that never joined; too many pause the pool (L-11)."""
        with self.money:
            self.store.write_state("blocklist", launch_backoff.after_failed_join(self.blocks(), pool, self.clock.now()))

    def ledger(self) -> Ledger:
        """The books, read now. ApiError when their place cannot be read; torn lines are named in it."""
        lines, torn = self.store.ledger_records()
        return read_ledger(lines, [one.place for one in torn])

    # ---- what the documents say

    def pool_of(self, claim: Claim) -> Pool | None:
        """What the claim's document says; None when it is absent or faulty."""
        return next((pool for pool in self.wishes.described if pool.key == claim.pool), None)

    def in_force(self, claim: Claim) -> Pool | None:
        """What holds for the claim's machine (L-25): its document, else what the claim remembers of it; None = neither."""
        return self.pool_of(claim) or remembered_pool(claim)

    def class_of(self, claim: Claim) -> NodeClass:
        try:
            return self.wishes.classes[claim.node_class]
        except KeyError as error:
            raise InvalidInput(
                f"{claim.name}: its class {claim.node_class} is not among the documents any more.",
                remedy="Give the class document back, or let reap.yml take the machine down.",
            ) from error

    def choice(self, cloud: str) -> CloudChoice | None:
        """The ``providers`` entry for a cloud; enabled ones first."""
        entries = [one for node_class in self.wishes.classes.values() for one in node_class.clouds if one.cloud == cloud]
        return next((one for one in entries if one.enabled), entries[0] if entries else None)

    def cloud_settings(self, node_class: NodeClass, cloud: str) -> t.Mapping[str, t.Any]:
        return next((one.settings for one in node_class.clouds if one.cloud == cloud), {})

    def drain_timeout(self, pool: Pool | None) -> int:
        return pool.drain_timeout if pool else DRAIN_TIMEOUT

    def granularity(self, cloud: str) -> int:
        return CAPABILITIES[cloud].billing_granularity if cloud in CAPABILITIES else 1

    def deletes_nodes(self, claim: Claim) -> bool:
        """Rented machines never come back under their name; own ones do and keep their Node (L-21)."""
        return CAPABILITIES[claim.cloud].rented

    def mesh_tags(self, claim: Claim) -> tuple[str, ...]:
        node_class = self.wishes.classes.get(claim.node_class)
        if node_class is not None:
            return node_class.mesh.tags
        return claim.limits.mesh_tags if claim.limits is not None else ()

    # ---- connections

    def cloud_names(self) -> tuple[str, ...]:
        """Clouds to look at: those of the documents and those that live claims were rented from."""
        wanted = {one.cloud for node_class in self.wishes.classes.values() for one in node_class.clouds if one.enabled}
        wanted |= {claim.cloud for claim in self.known_claims() if claim.cloud}
        return tuple(sorted(name for name in wanted if name in CAPABILITIES))

    def cloud(self, name: str) -> Cloud:
        """The connected cloud; a failure to connect is remembered and raised again."""
        with self._opening:
            if name not in self._clouds:
                try:
                    self._clouds[name] = self._connect(name)
                except TgpError as error:
                    self._clouds[name] = error
            found = self._clouds[name]
        if isinstance(found, TgpError):
            raise found
        return found

    def give_up(self, name: str, error: TgpError) -> None:
        """Ask nothing more of a cloud in this run: it does not take our credential."""
        with self._opening:
            found = self._clouds.get(name)
            if found is not None and not isinstance(found, TgpError):
                self._given_up.append(found)
            self._clouds[name] = error

    def _connect(self, name: str) -> Cloud:
        choice = self.choice(name) or self._remembered_choice(name)
        credential = cloud_credential(self.task, self.kube, name, choice)
        in_flight = {claim.name: word for claim in self.known_claims() if claim.cloud == name and (word := _in_flight(claim))}
        cloud = connect_cloud(
            name, self.task, credential=credential, choice=choice, node_ready=self._node_ready, in_flight=in_flight
        )
        return told_cloud(cloud, self.task, name)

    def _remembered_choice(self, cloud: str) -> CloudChoice | None:
        """Where the key of a cloud stands that no valid document names any more, as its claims remember it."""
        known = (one.limits.credentials for one in self.known_claims() if one.cloud == cloud and one.limits is not None)
        credentials = next(filter(None, known), None)
        return CloudChoice(cloud, credentials=credentials) if credentials is not None else None

    def _node_ready(self, node: str) -> bool | None:
        from ..kube.nodes import get_node

        found: Node | None = get_node(self.kube, node)
        return None if found is None else bool(found.ready)

    def instances(self, cloud: str, since: datetime | None = None) -> tuple[Instance, ...] | None:
        """A list of a cloud's machines not older than a few seconds, nor than ``since``; None when it could not be read, also because
        the cloud cannot be connected: that ends no wait for machines of another one."""
        with self._opening:
            if cloud not in self._feeds:
                self._feeds[cloud] = Feed(lambda: self.cloud(cloud).instances(), self.clock)
            feed = self._feeds[cloud]
        return feed.items(since)

    def listed_at(self, cloud: str) -> datetime | None:
        """When the list that :meth:`instances` returns was read; None when there is none."""
        with self._opening:
            feed = self._feeds.get(cloud)
        return feed.read_at if feed else None

    def mesh(self) -> Mesh | None:
        """The connected mesh, None when no class uses one and none was configured."""
        with self._opening:
            if self._mesh is None and self.uses_mesh():
                self._mesh = told_mesh(self._connect_mesh(), self.task)
            return self._mesh

    def _connect_mesh(self) -> Mesh:
        try:
            return connect_mesh(self.task)
        except InvalidInput:
            found = mesh_credentials(self.task, self.kube)
            if not found:
                raise
            return connect_mesh(self.task, **found)

    def uses_mesh(self) -> bool:
        """Whether any document or live claim speaks of a mesh."""
        used = any(node_class.mesh.backend == "tailscale" for node_class in self.wishes.classes.values())
        return used or any(claim.mesh_backend == "tailscale" for claim in self.known_claims())

    def known_claims(self) -> list[Claim]:
        """The claims as this call first read them, with what was written since."""
        first = self.once("claims", self.store.claims)
        return list({**{claim.name: claim for claim in first}, **self._claims}.values())

    def warn(self, text: str) -> None:
        self.task.warn(text)

    def refresh(self) -> None:
        """Forget what was read before another run ended that this one waited for."""
        with self._opening:
            self._given_up += [one for one in self._clouds.values() if not isinstance(one, TgpError)]
            self._clouds.clear()
            self._feeds.clear()
            self._once.pop("claims", None)

    def close(self) -> None:
        for cloud in (*self._clouds.values(), *self._given_up):
            if not isinstance(cloud, TgpError):
                cloud.close()
        if self._mesh is not None:
            self._mesh.close()


def _in_flight(claim: Claim) -> str:
    """What a machine that cannot be asked is doing, as far as our own calls tell (L-21); empty when they do not."""
    if claim.phase is Phase.TERMINATING:
        return "stopping"
    coming = claim.phase in (Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING) and claim.launch_started is not None
    return "starting" if coming else ""
