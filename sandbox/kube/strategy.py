# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kind may add to the common write path. The default adds nothing."""

from __future__ import annotations

import typing as t

from .auth import Call
from .resources import Resource
from .store import Item

Json = dict[str, t.Any]


class Strategy:
    """Called under the store's lock, in this order: restrict (what the caller may not write), on_create / on_update (defaults, what the
    control plane adds), check (422), after (consequences; the write is done). ``obj`` / ``new`` may be changed until check."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource

    def restrict(self, call: Call, old: Json | None, new: Json, sub: str) -> None: ...

    def restrict_delete(self, call: Call, old: Json) -> None: ...

    def on_create(self, call: Call, obj: Json) -> None: ...

    def on_update(self, call: Call, old: Json, new: Json, sub: str) -> None: ...

    def check(self, old: Json | None, new: Json) -> None: ...

    def after(self, old: Item | None, new: Item) -> None: ...

    def gone(self, last: Item) -> None: ...

    def grace(self, obj: Json, asked: int | None) -> int:
        """Seconds between the deletion and its end."""
        return 0

    def may_vanish(self, obj: Json) -> bool:
        """False while something besides finalizers keeps a deleted object."""
        return True

    def at_the_end(self, obj: Json) -> Json:
        """The last version of an object that goes at once."""
        return obj

    def on_delete(self, obj: Json) -> None:
        """The object was marked for deletion."""
