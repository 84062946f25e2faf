# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One document as it was read, before anything in it is checked: what it says, where it stands, and who may have written it."""

from __future__ import annotations

import dataclasses
import enum
import typing as t
from datetime import datetime


class Origin(str, enum.Enum):
    """Who may have written a document (L-28): the operator of the run (files and inline documents), whoever may write GPUNodeClass
    objects, or whoever may write GPUNodePool and GPURequest objects."""

    OPERATOR = "operator"
    CLUSTER = "cluster"
    NAMESPACE = "namespace"


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """``place`` names it for people. ``source`` is the id of what was read: a file or folder as given, or one list of the cluster's API;
    empty for a document that no later run can look up again (inline). ``uid`` and ``deletion`` (deletionTimestamp) are those of an
    object."""

    place: str
    mapping: t.Mapping[str, t.Any]
    origin: Origin = Origin.OPERATOR
    source: str = ""
    uid: str = ""
    deletion: datetime | None = None
