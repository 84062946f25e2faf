# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every cloud can be asked. Callers know this protocol and the capability record, never a cloud by name."""

from __future__ import annotations

import typing as t

from ..fleet.model import Capability, Instance, LaunchRequest, Offer


class Cloud(t.Protocol):
    """One account of one cloud.

    Every verb raises an ApiError of ``errors`` when the cloud cannot be read; an odd-shaped answer is BadShape, never "empty".
    """

    facts: Capability

    def check(self) -> str:
        """Prove that the credential works by a cheap authenticated read; returns a sentence for people."""
        ...

    def offers(self) -> list[Offer]:
        """Everything it would rent now, unfiltered, sold-out types included with ``available`` 0."""
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

        Raises LaunchRefused when the cloud definitely did not make it (reason: capacity, conflict, quota, balance, auth, invalid,
        rate), LaunchUnknown when it may have.
        """
        ...

    def terminate(self, instance_id: str) -> None:
        """Ask for its end. Success also when it is gone already; the caller confirms with ``instance``."""
        ...

    def console(self, instance_id: str) -> str | None:
        """The tail of its boot log, or None where the cloud has none."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
