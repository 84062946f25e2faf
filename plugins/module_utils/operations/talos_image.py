# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of talos_image: make sure that an account has an image of Talos, and let old ones go.

What is about to be asked is written down first, in a file that the next run reads. A call whose answer is lost is looked up by the name
that it gave; none is sent again before the image would be listed. A run that is killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ..core import errors, files
from ..core.clock import from_text, to_text
from ..core.events import render
from ..core.task import Task
from ..model import CloudChoice
from ..model.names import CLUSTER_ID
from ..providers.base import Wanted
from ..providers.disk_images import (
    Begun,
    Decision,
    DiskImage,
    ImageOrigin,
    ImagePolicy,
    ImageState,
    ImageStore,
    Retention,
    Step,
    WantedImage,
    decide,
    month_cost,
    retained,
)
from ..providers.registry import ENTRIES
from ..talos.images.download import RemoteImage, open_store, prepare
from ..talos.images.factory import ImageFactory, images, open_factory
from ..talos.images.schematics import whole_version
from ..talos.spec import DEFAULT_TALOS
from ..units.values import parse_duration, print_duration

PROVIDERS = tuple(name for name, entry in ENTRIES.items() if entry.images is not None)
_POLL, _TELL = 10.0, 60.0  # seconds between two looks, and between two lines about them
_MAYBE = (errors.LostAnswer, errors.ServerError, errors.BadShape)
_PASSING = (errors.LostAnswer, errors.ServerError, errors.RateLimited, errors.Unreachable)
_COLUMNS = {
    "name": "image",
    "state": "state",
    "created": "created",
    "size": "bytes",
    "month_cost": "$/month",
    "note": "note",
}


def talos_image_run(task: Task) -> dict[str, t.Any]:
    """The result of talos_image."""
    order = _read(task)
    factory = open_factory(task)
    with contextlib.closing(factory), contextlib.closing(_open(task, order, factory)) as store:
        return _ImageRun(task, order, factory, store).result()


def image_for(task: Task, order: ImageOrder) -> tuple[DiskImage | None, bool]:
    """The image of ``order``, and whether it was made or waited for. None in a dry run while there is none. NeverReady when the policy makes
    none, or none was completed; TimedOut while it is being made."""
    factory = open_factory(task)
    with contextlib.closing(factory), contextlib.closing(_open(task, order, factory)) as store:
        return _ImageRun(task, order, factory, store).image()


def account_images(task: Task, choice: CloudChoice, credential: str | None) -> tuple[list[DiskImage], Decimal, str]:
    """The images of an account that are of this collection, with the dollars for a gigabyte and month and where that is from."""
    order = ImageOrder(choice.cloud, WantedImage("", ""), ImagePolicy.NEVER, choice, credential, dry=True)
    factory = open_factory(task)
    with contextlib.closing(factory), contextlib.closing(_open(task, order, factory)) as store:
        return store.images(), store.gigabyte_month, store.price_basis


# ---- what is asked for


@dataclasses.dataclass(frozen=True)
class ImageOrder:
    """``choice``: names the project, where the provider has such. ``timeout``: seconds to wait; 0 = look once. ``content``: the schematic,
    handed in where the factory does not know it. ``remedy``: what to do when the policy makes none. ``dry``: change nothing. ``tries``:
    imports of one run; with 1 none is begun after that of an earlier run has failed. ``pulse`` is called again and again while something is
    waited for."""

    provider: str
    wanted: WantedImage
    policy: ImagePolicy
    choice: CloudChoice
    credential: str | None = None
    retention: Retention = Retention()
    timeout: int = 3600
    bucket: str = ""
    source: str = ""
    content: t.Mapping[str, t.Any] | None = None
    remedy: str = ""
    dry: bool = False
    tries: int = 2
    pulse: t.Callable[[], None] = lambda: None


def _read(task: Task) -> ImageOrder:
    """InvalidInput before anybody is asked."""
    params, provider = task.params, task.params["provider"]
    schematic = str(params["schematic_id"]).strip()
    if not re.fullmatch(r"[0-9a-f]{64}", schematic):
        raise errors.InvalidInput(
            f"{task.called('schematic_id')} {schematic!r} is not 64 hex digits.", remedy="The module talos_schematic tells it."
        )
    cluster = params.get("cluster_id") or ""
    if cluster and not CLUSTER_ID.fullmatch(cluster):
        raise errors.InvalidInput(
            f"{task.called('cluster_id')} {cluster!r} is not 8 lower-case hexadecimal digits.", remedy="status.yml tells it."
        )
    wanted = WantedImage(schematic, whole_version(params.get("talos_version") or DEFAULT_TALOS), params["arch"], cluster)
    policy = ImagePolicy(params["image_policy"])
    bucket, source = params.get("bucket") or "", params.get("source") or ""
    if provider == "vultr" and (bucket or source or params.get("project")):
        raise errors.InvalidInput(
            f"vultr: it fetches the image itself, so {task.called('bucket')}, source and project mean nothing to it."
        )
    if provider == "vultr" and wanted.arch != "amd64":
        raise errors.InvalidInput("vultr: Talos has images for amd64 only.", field="arch")
    if provider == "gcp" and policy is not ImagePolicy.NEVER and not bucket and not source:
        raise errors.InvalidInput(
            "gcp: an image is made of an archive in a bucket.",
            remedy=f"Give {task.called('bucket')}, a bucket that the archive may be copied into, or {task.called('source')}, where it lies.",
        )
    if bucket and source:
        raise errors.InvalidInput(f"gcp: give one of {task.called('bucket')} and {task.called('source')}.")
    keep = params.get("keep")
    if keep is not None and keep < 1:
        raise errors.InvalidInput(f"{task.called('keep')} must be 1 or more.")
    retention = Retention(keep, task.read("min_age", _seconds) or 0, frozenset(params["protect"]), cluster)
    project = {"project": params["project"]} if params.get("project") else {}
    return ImageOrder(
        provider,
        wanted,
        policy,
        CloudChoice(provider, settings=project),
        retention=retention,
        timeout=task.read("timeout", _seconds) or 0,
        bucket=bucket,
        source=source,
        remedy=f"Run images.yml with {task.called('image_policy')}: IfMissing.",
        dry=task.check_mode,
    )


def _seconds(text: t.Any) -> int:
    return parse_duration(text) or 0


def _open(task: Task, order: ImageOrder, factory: ImageFactory) -> ImageStore:
    connect = ENTRIES[order.provider].images
    if connect is None:
        raise errors.InvalidInput(f"{order.provider}: its machines boot stock systems only.", field="provider")

    def path_of(wanted: WantedImage, url: str) -> str:
        return images(wanted.schematic, wanted.version, url=url, platform=order.provider, arch=wanted.arch).disk

    def address_of(wanted: WantedImage) -> str:
        prepare(factory, path_of(wanted, ""))
        return path_of(wanted, factory.url)

    def archive_of(wanted: WantedImage) -> RemoteImage:
        prepare(factory, path_of(wanted, ""))
        return RemoteImage(factory, path_of(wanted, ""), lambda url: open_store(url, task.transport(url), task.clock))

    def tell(line: str) -> None:
        order.pulse()
        task.progress(line)

    origin = ImageOrigin(address_of, archive_of, order.bucket, order.source, tell)
    return connect(Wanted(task, order.credential, order.choice), origin)


# ---- what was asked of the cloud, for the next run


class _Record:
    """A file for each image in the making: when it was asked for, and what it is known by."""

    def __init__(self, task: Task, provider: str, name: str) -> None:
        self._path = os.path.join(files.state_folder(task.params), "images", f"{provider}-{name}.json")

    def read(self) -> dict[str, str]:
        """Empty when there is none. One that cannot be read is none: the list says what is there."""
        try:
            with open(self._path, encoding="utf-8") as file:
                content = json.load(file)
        except (OSError, ValueError):
            return {}
        return {str(key): str(value) for key, value in content.items()} if isinstance(content, dict) else {}

    def write(self, **facts: str) -> None:
        files.replace(self._path, json.dumps(facts).encode())

    def clear(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


# ---- the run


class _ImageRun:
    def __init__(self, task: Task, order: ImageOrder, factory: ImageFactory, store: ImageStore) -> None:
        self._task, self._order, self._factory, self._store = task, order, factory, store
        self._name = order.wanted.name(dots=store.dots)
        self._record = _Record(task, order.provider, self._name)
        self._changed = False
        self._why = ""  # no image came of the last import

    def image(self) -> tuple[DiskImage | None, bool]:
        _before, _decision, current = self._ensured()
        return current, self._changed

    def _ensured(self) -> tuple[list[DiskImage], Decision, DiskImage | None]:
        """What there was, what was decided, and the image."""
        before = self._store.images()
        decision = self._decision(before)
        if decision.step is Step.REFUSE:
            raise errors.NeverReady(
                f"{self._order.provider}: {self._name}: {decision.why}",
                remedy=self._order.remedy
                if self._order.policy is ImagePolicy.NEVER
                else "Look at it in the console of the provider.",
            )
        if decision.step is Step.MAKE:
            self._check_factory()
        if self._order.dry:
            self._changed = decision.step is not Step.USE
            return before, decision, decision.image
        return before, decision, self._carried_out(decision)

    def result(self) -> dict[str, t.Any]:
        """Make or choose the image, then remove those that are not retained; the result of talos_image."""
        before, decision, current = self._ensured()
        after = self._store.images() if self._changed and not self._order.dry else list(before)
        stays = self._retained(after, current)
        gone = [image for image in after if not stays[image.id]]
        self._remove(gone)
        return self._shown(decision, before, after, current, stays, gone)

    def _decision(self, listed: t.Sequence[DiskImage]) -> Decision:
        return decide(listed, self._order.wanted, self._order.policy)

    def _check_factory(self) -> None:
        """InvalidInput for a schematic or a release that the factory does not know."""
        schematic = self._order.wanted.schematic
        if not self._order.source:
            if self._factory.known(schematic) is None:
                if self._order.content is None:
                    raise errors.InvalidInput(
                        f"The Image Factory {self._factory.url} knows no schematic {schematic}.",
                        remedy="Hand its content in with talos_schematic; the same content gets the same id.",
                    )
                if not self._order.dry:
                    self._factory.register(dict(self._order.content))
            self._factory.extensions(self._order.wanted.version)

    def _carried_out(self, decision: Decision) -> DiskImage:
        record = self._record.read()
        if decision.step is Step.USE and decision.image is not None:
            if record:  # a run ended between the image and its cleaning
                self._finish()
            return decision.image
        self._changed = True
        if decision.step is Step.WAIT and decision.image is not None:
            self._task.progress(f"image {decision.image.name}: it is being made already")
            operation = record.get("operation", "") if record.get("id") == decision.image.id else ""
            if (image := self._waited(Begun(decision.image.id, operation))) is not None:
                return image
        elif (image := self._begun_before(record)) is not None:
            return image
        if self._why and self._order.tries == 1:
            raise self._never(self._why)
        return self._made(self._decision(self._store.images()))

    def _begun_before(self, record: t.Mapping[str, str]) -> DiskImage | None:
        """What an earlier run asked for. None when nothing came of it."""
        if not record:
            return None
        if record.get("id"):
            self._task.progress(f"image {record['id']}: an earlier run began it")
            return self._waited(Begun(record["id"], record.get("operation", "")))
        with contextlib.suppress(ValueError):
            left = from_text(record.get("asked", "")) + timedelta(seconds=self._store.list_delay) - self._task.clock.now()
            if left > timedelta(0):
                self._task.clock.sleep(min(left.total_seconds(), float(self._store.list_delay)))
        return None

    def _made(self, decision: Decision) -> DiskImage:
        tries = 1 if self._order.source else self._order.tries
        for _try in range(tries):
            if decision.step is Step.USE and decision.image is not None:
                return decision.image
            if decision.step is Step.REFUSE:
                break
            begun = Begun(decision.image.id) if decision.step is Step.WAIT and decision.image else self._begin(decision.serial)
            if (image := self._waited(begun)) is not None:
                return image
            decision = self._decision(self._store.images())
        times = "once" if tries == 1 else f"{tries} times"
        raise self._never(f"{self._order.provider}: {self._name} was begun {times}, and none was completed. {self._why}".strip())

    def _never(self, why: str) -> errors.NeverReady:
        return errors.NeverReady(
            why,
            remedy=f"A snapshot vanishes when the provider cannot fetch the image: it must reach {self._factory.url}."
            if self._store.platform == "vultr"
            else "An archive that holds something else than Talos for Google fails each time.",
        )

    def _begin(self, serial: int) -> Begun:
        name = self._order.wanted.name(serial, dots=self._store.dots)
        self._record.write(asked=to_text(self._task.clock.now()), name=name)
        try:
            begun = self._store.begin(self._order.wanted, serial)
        except _MAYBE as error:
            begun = self._looked_up(name, error)
        except errors.TgpError:
            self._record.clear()
            raise
        self._record.write(asked=to_text(self._task.clock.now()), name=name, id=begun.id, operation=begun.operation)
        return begun

    def _looked_up(self, name: str, error: errors.ApiError) -> Begun:
        """The image that a call without an answer has begun. The record stays when it is not found: it may be listed later."""
        end = self._task.clock.now() + timedelta(seconds=self._store.list_delay)
        while True:
            found = [image for image in self._store.images() if image.name == name]
            if found:
                return Begun(found[-1].id)
            if self._task.clock.now() >= end:
                raise errors.LostAnswer(
                    f"{error.message} Whether {name} is being made is unknown.",
                    remedy="Run it again: it looks for the image before it begins another one.",
                    service=self._order.provider,
                ) from error
            self._task.clock.sleep(_POLL)

    def _waited(self, begun: Begun) -> DiskImage | None:
        """The image once it is complete; None when nothing came of it, which a warning says."""
        began = shown = self._task.clock.now()
        since = self._asked()
        while True:
            self._order.pulse()
            now, why = self._task.clock.now(), ""
            try:
                image = self._store.look(begun)
                since = (image.created if image is not None else None) or since
                if image is None:
                    why = f"{self._order.provider}: {begun.id} of {self._name} is gone: the provider could not make an image of it."
                elif image.state is ImageState.READY:
                    self._finish()
                    return image
                elif image.state is ImageState.FAILED:
                    why = f"{self._order.provider}: {image.name} has failed ({image.state_word})."
            except errors.NeverReady as error:
                why = str(error)
            except _PASSING as error:
                self._task.progress(f"image {self._name}: {error.message}")
            if why:
                self._why = why
                self._task.warn(why)
                self._finish()
                return None
            if (now - began).total_seconds() >= self._order.timeout:
                raise errors.TimedOut(
                    f"{self._order.provider}: {self._name} is not complete after {print_duration(self._order.timeout)}.",
                    remedy="It goes on without this run, and is billed. Run it again to wait for it, or remove it in the provider's console.",
                    id=begun.id,
                    begun=to_text(since) if since else None,
                )
            if (now - shown).total_seconds() >= _TELL:
                shown = now
                self._task.progress(f"image {self._name}: in the making for {print_duration((now - began).total_seconds())}")
            self._task.clock.sleep(_POLL)

    def _asked(self) -> datetime | None:
        """When an import was asked for, by our own note."""
        try:
            return from_text(self._record.read().get("asked", ""))
        except ValueError:
            return None

    def _finish(self) -> None:
        """Remove what was only needed to make it. What cannot be removed is billed on; a warning says so."""
        try:
            self._changed = self._store.clean(self._order.wanted) or self._changed
        except errors.ApiError as error:
            self._task.warn(f"{self._order.provider}: the archive of {self._name} stays in the bucket: {error.message}")
        self._record.clear()

    # ---- old ones

    def _retained(self, listed: t.Sequence[DiskImage], current: DiskImage | None) -> dict[str, str]:
        """Which machines use is only asked when something may go."""
        rule, now = self._order.retention, self._task.clock.now()
        first = retained(listed, current, frozenset(), rule, now)
        return retained(listed, current, self._store.used(), rule, now) if not all(first.values()) else first

    def _remove(self, gone: t.Sequence[DiskImage]) -> None:
        self._changed = self._changed or bool(gone)
        for image in gone if not self._order.dry else ():
            self._store.remove(image)

    # ---- the result

    def _shown(
        self,
        decision: Decision,
        before: t.Sequence[DiskImage],
        after: t.Sequence[DiskImage],
        current: DiskImage | None,
        stays: t.Mapping[str, str],
        gone: t.Sequence[DiskImage],
    ) -> dict[str, t.Any]:
        would = self._order.dry
        rows = [self._row(image, stays[image.id] or ("would be removed" if would else "is removed")) for image in after]
        planned = self._order.wanted.name(decision.serial, dots=self._store.dots)
        if would and decision.step is Step.MAKE:
            rows.append({"name": planned, "state": "missing", "note": "would be made"})
        for line in render(rows, _COLUMNS, right=("size", "month_cost")):
            self._task.progress(line)
        kept = [image for image in after if image not in gone]
        costs = [month_cost(image.size, self._store.gigabyte_month) for image in kept]
        result: dict[str, t.Any] = {
            "changed": self._changed,
            "action": {Step.USE: "found", Step.WAIT: "waited", Step.MAKE: "made"}.get(decision.step, ""),
            "name": current.name if current else planned,
            "image": self._row(current, stays.get(current.id, "")) if current else {},
            "setting": {self._store.setting: current.link} if current else {},
            "images": rows,
            "removed": [image.name for image in gone],
            "month_cost": str(sum(cost for cost in costs if cost is not None)),
            "price": {"gigabyte_month": str(self._store.gigabyte_month), "basis": self._store.price_basis},
        }
        if self._task.diff_mode:
            made = [planned] if would and decision.step is Step.MAKE else []
            lists = (sorted(image.name for image in before), sorted([*(image.name for image in kept), *made]))
            result["diff"] = dict(
                zip(("before", "after"), ("".join(f"{name}\n" for name in names) for names in lists), strict=True)
            )
        return result

    def _row(self, image: DiskImage, note: str) -> dict[str, t.Any]:
        cost = month_cost(image.size, self._store.gigabyte_month)
        return {
            "id": image.id,
            "name": image.name,
            "state": image.state.value,
            "talos_version": image.of.version,
            "schematic": image.of.schematic,
            "arch": image.of.arch,
            "cluster_id": image.of.cluster,
            "created": to_text(image.created) if image.created else "",
            "size": image.size,
            "month_cost": None if cost is None else str(cost),
            "link": image.link,
            "note": note,
        }
