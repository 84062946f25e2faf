# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every cloud can be asked. Callers know this protocol and the capability record, never a cloud by name.

What a failed create call means is said the same way for every cloud, by the functions at the end.
"""

from __future__ import annotations

import typing as t

from ..core import errors
from ..model import Capability, Extra, Instance, LaunchRequest, Offer, OfferQuery

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


def certainly_not_made(error: errors.ApiError) -> bool:
    """Whether the failed call made nothing for sure: the cloud takes no calls now (429), or was never reached."""
    return isinstance(error, (errors.RateLimited, errors.Unreachable))
