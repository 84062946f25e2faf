# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every cloud can be asked. Callers know this protocol and the capability record, never a cloud by name.

What a failed create call means is said the same way for every cloud, by the functions at the end.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import typing as t
from datetime import datetime
from urllib.parse import urlsplit

from ansible.module_utils.basic import env_fallback

from ..core import errors
from ..core.http import Api
from ..core.task import Task
from ..model import Capability, Charge, CloudChoice, Extra, Instance, LaunchRequest, Offer, OfferQuery, Volume
from ..planner.offers.account_volumes import mounted
from .disk_images import ImageOrigin, ImageStore
from .webhook.machines import is_loopback

EVERYTHING = OfferQuery()


class CloudCheck(t.NamedTuple):
    """What a look at an account showed: ``sentence`` for people, ``warnings`` about what will hurt later (no balance, no SSH key ...)."""

    sentence: str
    warnings: tuple[str, ...] = ()


class Cloud(t.Protocol):
    """One account of one cloud.

    Every verb raises an ApiError of ``errors`` when the cloud cannot be read; an odd-shaped answer is BadShape, never "empty".
    """

    facts: Capability

    def check(self) -> CloudCheck:
        """Prove that the credential works by cheap authenticated reads, and look at what a launch will need: rights, balance, quota, SSH
        key, as far as the API tells. Raises InvalidInput for what would make every launch fail."""
        ...

    def offers(self, query: OfferQuery = EVERYTHING) -> list[Offer]:
        """What it would rent now, sold-out types included with ``available`` 0. ``query`` only saves work: the answer may hold more
        than was asked for, and callers filter again."""
        ...

    def instances(self) -> list[Instance]:
        """Every machine of the account, ours or not, all pages."""
        ...

    def instance(self, instance_id: str) -> Instance | None:
        """One machine; None when the cloud says it does not exist (any more)."""
        ...

    def queue(self) -> None:
        """Wait until the account's pacing lets this thread send a create call; the next ``launch`` then goes out at once.

        Without it ``launch`` waits itself. It exists so that a claim's clock starts when the call is sent, not when it was queued.
        """
        ...

    def launch(self, request: LaunchRequest) -> str:
        """Make one machine and return its id. One create call, never repeated inside.

        Raises LaunchRefused when the cloud definitely did not make it, or made one that must be destroyed (``instance_id``); its reason
        is capacity, conflict, quota, balance, auth, invalid or rate. Raises LaunchUnknown when it may have been made.
        """
        ...

    def terminate(self, instance_id: str) -> None:
        """Ask for its end. Success also when it is gone already; the caller confirms with ``instance``."""
        ...

    def console(self, instance_id: str) -> str | None:
        """The tail of its boot log, or None where the cloud has none."""
        ...

    def extras(self) -> list[Extra]:
        """Everything of ours beside machines that stays, and may be billed, after a machine is gone."""
        ...

    def discard(self, extra: Extra) -> None:
        """Remove one of them. Success also when it is gone; Conflict while its machine still holds it."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class KeepsUserData(Cloud, t.Protocol):
    """A cloud with the fact ``user_data_stays``."""

    def erase_user_data(self, instance_id: str) -> None:
        """Empty what the machine was given at boot. Success also when the machine is gone."""
        ...


class Restamps(Cloud, t.Protocol):
    """A cloud with the fact ``restamps``."""

    def restamp(self, instance_id: str, name: str, marks: t.Mapping[str, str]) -> None:
        """Give a machine that runs this name and, instead of what it has of them, these marks of ours; empty: none. What others have written on
        it stays. Only what the fact names is changed. The machine is not restarted. NotFound when it is gone."""
        ...


class HasVolumes(Cloud, t.Protocol):
    """A cloud whose fact ``volumes`` is above 0. It makes, changes and deletes none of them."""

    def volumes(self) -> list[Volume]:
        """Every volume of the account that a machine can mount, all pages."""
        ...


class TellsCharges(Cloud, t.Protocol):
    """A cloud whose fact ``charges_lag`` is not None."""

    def charges(self, since: datetime, until: datetime) -> list[Charge]:
        """What the account was billed for machines that existed in this time, all pages: an entry for each machine and billing period. Machines
        that ended are in it. The bill of the last minutes may be missing. Forbidden where the key may not read bills."""
        ...


class NothingBeside:
    """For clouds whose machines leave nothing behind."""

    def extras(self) -> list[Extra]:
        return []

    def discard(self, extra: Extra) -> None:
        """There is nothing that could be removed."""


# ---- what a failed create call means for the machine


def launch_error(cloud: str, name: str, error: errors.ApiError, reason: str | None, *, remedy: str = "") -> errors.TgpError:
    """LaunchRefused for ``reason`` (an error class of L-14), LaunchUnknown when nobody can say why, and so whether it was made."""
    details: dict[str, t.Any] = {"cloud": cloud, "status": error.status, "code": error.code}
    if reason is None:
        return errors.LaunchUnknown(
            f"{error.message} Whether {name} was made is unknown.",
            remedy="It is looked up by name; do not launch it again before.",
            **details,
        )
    if isinstance(error, errors.RateLimited):
        details["retry_after"] = error.retry_after
    return errors.LaunchRefused(f"{name} was not made: {error.message}", reason=reason, remedy=remedy or error.remedy, **details)


def invalid_launch(cloud: str, problem: str, remedy: str = "") -> errors.LaunchRefused:
    """The refusal of a request that the cloud would refuse anyway (or worse, would not)."""
    return errors.LaunchRefused(f"{cloud}: {problem}.", reason="invalid", remedy=remedy, cloud=cloud)


class LaunchTurn:
    """The turn of each thread to send a create call, which :meth:`Cloud.queue` waits for; the call itself then waits no more. ``bucket``: the
    one of the client's limits that paces create calls."""

    def __init__(self, api: Api, bucket: str = "") -> None:
        self._api, self._bucket, self._thread = api, bucket, threading.local()

    def wait(self) -> None:
        self._api.take_turn(self._bucket)
        self._thread.taken = True

    def spend(self) -> str:
        """The bucket of the create call that follows: ``queued``, which has no pace, when this thread has waited for its turn."""
        bucket = "queued" if getattr(self._thread, "taken", False) else self._bucket
        self._thread.taken = False
        return bucket


def check_settings(cloud: str, service: str, request: LaunchRequest, known: t.Collection[str]) -> None:
    """LaunchRefused for settings of the class that are not among the ``known`` ones. ``service``: the provider's own name, for the remedy."""
    if unknown := sorted(set(request.settings) - set(known)):
        raise invalid_launch(cloud, f"unknown setting {', '.join(unknown)}", f"{service} knows {', '.join(sorted(known))}.")


def check_price(cloud: str, request: LaunchRequest) -> None:
    """LaunchRefused for an offer that costs more per hour than the request allows. A price that is not known passes: whether it may be
    launched was decided when the offer was chosen."""
    price, limit = request.offer.price_hour, request.max_price_hour
    if limit is not None and price is not None and price > limit:
        raise invalid_launch(cloud, f"{request.offer.id} costs {price} $/h, more than {limit}", "Raise the limit.")


def check_talos_image(cloud: str, service: str, request: LaunchRequest, setting: str) -> None:
    """LaunchRefused for a machine with Talos whose class names no image in ``setting``: the provider has none of its own."""
    if wants_talos(request) and not request.settings.get(setting):
        raise invalid_launch(
            cloud,
            f"{service} has no image of Talos, and the class names none",
            f"images.yml makes one, for the setting {setting}; with imagePolicy the run itself does. Or use lane kubelet.",
        )


def mounts_of(cloud: str, request: LaunchRequest, volumes: t.Callable[[], t.Sequence[Volume]]) -> list[tuple[Volume, str]]:
    """The volumes of a request with their paths. LaunchRefused, before anything is sent, for one that is not in the offer's region; what
    ``volumes`` raises where the account cannot be asked."""
    if not request.volumes:
        return []
    mounts = mounted(request.volumes, volumes(), request.offer.cloud_region)
    if mounts is None:
        names = ", ".join(mount.name for mount in request.volumes)
        raise invalid_launch(
            cloud, f"not all of the volumes {names} are in {request.offer.cloud_region or 'a region'}", "Correct providers.volumes."
        )
    return mounts


def wants_talos(request: LaunchRequest) -> bool:
    """Whether the user data is a machine configuration of Talos: cloud-init's begins with #cloud-config or #!."""
    return request.user_data is not None and not request.user_data.startswith("#")


def certainly_not_made(error: errors.ApiError) -> bool:
    """Whether the failed call made nothing for sure: the cloud takes no calls now (429), or was never reached."""
    return isinstance(error, (errors.RateLimited, errors.Unreachable))


# ---- lists of what a cloud sells: an entry that cannot be read is left out with a warning, because nobody has to rent it. Lists of
# machines are never read so. An entry that is not understood there may be a machine of ours that costs money

_SHOWN = 3
_E = t.TypeVar("_E")
_R = t.TypeVar("_R")
Warn = t.Callable[[str], None]


def silent(_text: str) -> None:
    """For callers that show no warnings."""


def once(warn: Warn) -> Warn:
    """``warn`` that says each sentence once: a market is read for auction and on demand, and again before a launch."""
    seen: set[str] = set()

    def tell(text: str) -> None:
        if text not in seen:
            seen.add(text)
            warn(text)

    return tell


def readable(service: str, entries: t.Iterable[_E], read: t.Callable[[_E], _R], warn: Warn) -> list[_R]:
    """``read(entry)`` for all entries that can be read. When none of them can, the first BadShape is raised: then the service has changed, and
    an empty market would be a wrong answer."""
    results: list[_R] = []
    problems: dict[str, errors.BadShape] = {}
    for entry in entries:
        try:
            results.append(read(entry))
        except errors.BadShape as error:
            problems.setdefault(str(error.details.get("why") or error.message), error)
    if problems and not results:
        raise next(iter(problems.values()))
    if problems:
        shown = "; ".join(list(problems)[:_SHOWN])
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        several = len(problems) > 1
        warn(
            f"{service}: {len(problems)} {'entries' if several else 'entry'} of what it offers cannot be read and "
            f"{'are' if several else 'is'} left out: {shown}{more}."
        )
    return results


# ---- reading a list to its end. Half a list, or one that never ends, must not be taken for the truth

_MOST = 1000


def walk(api: Api, operation: str, read: t.Callable[[str | None], tuple[list[t.Any], str | None]]) -> list[t.Any]:
    """Everything of all pages. ``read(cursor)`` gives a page and the next cursor, None = it was the last. BadShape when a cursor comes
    again or the pages do not end."""
    collected: list[t.Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _page in range(_MOST):
        items, cursor = read(cursor)
        collected += items
        if cursor is None:
            return collected
        if cursor in seen:
            raise api.bad_shape(operation, "its pages go round in a circle")
        seen.add(cursor)
    raise api.bad_shape(operation, "its pages do not end")


# ---- what a cloud's file says of itself (``ENTRY``), so that nothing else has to be changed when a cloud is added

NodeReady = t.Callable[[str], "bool | None"]
Spec = dict[str, t.Any]


class Wanted(t.NamedTuple):
    """What a connector is given: the call, a credential found elsewhere, the class's entry, and how to ask for a Node.

    ``node_ready`` and ``in_flight`` concern own machines only (webhook/cloud.py)."""

    task: Task
    credential: str | None = None
    choice: CloudChoice | None = None
    node_ready: NodeReady | None = None
    in_flight: t.Mapping[str, str] | None = None

    def setting(self, name: str) -> t.Any:
        """What the class says under this cloud, None = nothing."""
        return self.choice.settings.get(name) if self.choice else None


@dataclasses.dataclass(frozen=True)
class Entry:
    """One cloud. ``spec`` are its module options (every one with its environment variables as fallback), ``key`` names the one that
    holds the credential. ``settings`` are JSON schemas of what a class may say under ``providers[].settings``. ``aliases`` are other
    spellings of its name. ``regions``: its own words (lower case) to standard regions, where they do not say it themselves.
    ``configured`` tells whether anything of it was given; default: its key was. ``longest_life``: the setting by which the cloud itself
    ends a machine, and after how many hours; None = it lets machines live.
    ``images``: opens the images of an account, where a cloud boots images of one's own; ``image_setting`` names the one to boot for lane talos.
    """

    facts: Capability
    connect: t.Callable[[Wanted], Cloud]
    spec: Spec
    key: str = ""
    aliases: tuple[str, ...] = ()
    settings: t.Mapping[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    regions: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    configured: t.Callable[[Task], bool] | None = None
    longest_life: t.Callable[[t.Mapping[str, t.Any]], tuple[str, int]] | None = None
    images: t.Callable[[Wanted, ImageOrigin], ImageStore] | None = None
    image_setting: str = ""

    @property
    def name(self) -> str:
        return self.facts.cloud

    def variables(self, name: str) -> tuple[str, ...]:
        """The environment variables that stand for an option."""
        fallback = self.spec[name].get("fallback")
        return tuple(fallback[1]) if fallback else ()

    def option(self, task: Task, name: str) -> str | None:
        """An option's value, else that of its environment variables (a call that lacks the option has no fallback of its own). The line
        end that a key from a file brings along is none of it."""
        given = (task.params.get(name), *(os.environ.get(variable) for variable in self.variables(name)))
        return next((text for value in given if value and (text := str(value).strip())), None)

    def address(self, task: Task, name: str, usual: str) -> str:
        """Where its API is: option ``name``, its environment variables, else ``usual``. InvalidInput for more than scheme, host and port, and
        for plain http to another machine: every call carries the key."""
        given = self.option(task, name)
        if not given:
            return usual
        try:
            parts = urlsplit(given)
        except ValueError:
            return given  # whoever opens it says what is wrong
        if not parts.netloc:
            raise errors.InvalidInput(
                f"{name} must be scheme, host and port, got an address without a scheme.",
                remedy="Write it as https://host or https://host:port.",
            )
        if parts.path.strip("/") or parts.query or parts.fragment:
            host = parts.netloc.rpartition("@")[2]
            raise errors.InvalidInput(
                f"{name} must be scheme, host and port, got an address with a path or a query.",
                remedy=f"Write {parts.scheme}://{host}; the paths of {self.name}'s API are added.",
            )
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise errors.InvalidInput(
                f"{name} leads to {parts.scheme}://{parts.netloc.rpartition('@')[2]}, and the API key would cross the network in clear text.",
                remedy="Use https. Plain http is for this machine alone (127.0.0.1, ::1 or localhost).",
            )
        return given

    def is_configured(self, task: Task) -> bool:
        return self.configured(task) if self.configured else bool(self.option(task, self.key))

    def credential(self, wanted: Wanted) -> str:
        """The key: option, environment, or found elsewhere. Unauthorized names everything that was looked at."""
        key = self.option(wanted.task, self.key) or wanted.credential
        if key:
            return key
        variables = " or ".join(self.variables(self.key))
        raise errors.Unauthorized(
            f"{self.name}: no API key is given.",
            remedy=f"Set the environment variable {variables}, the option {self.key}, or credentialsRef of the class.",
            service=self.name,
        )


def text_option(*variables: str, **more: t.Any) -> Spec:
    """The argument spec of a text option with environment variables as fallback."""
    return {"type": "str", "fallback": (env_fallback, list(variables)), **more}
