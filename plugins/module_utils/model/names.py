# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names: one name per machine, used at the cloud, in the mesh, in Kubernetes and for the claim (L-1); label values (L-19)."""

from __future__ import annotations

import hashlib
import re
import typing as t

PATTERN = re.compile(
    r"tgp-(?P<cluster>[0-9a-f]{8})-(?P<pool>[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?)-(?P<rand>[0-9a-z]{5})",
)
CLUSTER_ID = re.compile(r"[0-9a-f]{8}")
POOL_LENGTH = 40
NO_NAMESPACE = "unknown"  # of the pool of a machine that was adopted while no document described its pool
RAND_LENGTH = 5
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_LABEL_LENGTH = 63
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_.-]")


def cluster_id_from_uid(uid: str) -> str:
    """The cluster id of a cluster whose namespace kube-system has this UID."""
    return uid.replace("-", "")[:8].lower()


def pool_part(pool: str) -> str:
    """What of a pool's name ("namespace/name" or "name") stands in machine names."""
    return pool.rpartition("/")[2][:POOL_LENGTH].rstrip("-")


def machine_name(cluster_id: str, pool: str, rand: str) -> str:
    """The name of a machine of ``pool``; ``rand`` are five characters of [0-9a-z]."""
    return f"tgp-{cluster_id}-{pool_part(pool)}-{rand}"


def pool_of(name: str) -> str:
    """The pool part of a name of ours, empty if it is none."""
    match = PATTERN.fullmatch(name)
    return match["pool"] if match else ""


def random_part(seed: str) -> str:
    """Five characters that look random and depend on ``seed`` only."""
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    characters = []
    for _position in range(RAND_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return "".join(characters)


def draw(cluster_id: str, pool: str, seed: str, taken: t.Container[str]) -> str:
    """A free machine name. The same seed and the same taken names give the same name, so that a plan can be repeated."""
    counter = 0
    while True:
        name = machine_name(cluster_id, pool, random_part(f"{seed}/{pool}/{counter}"))
        if name not in taken:
            return name
        counter += 1


def free_index(used: t.Collection[int]) -> int:
    """The lowest number from 0 that is not used (template variable NodeIndex; no part of the identity)."""
    index = 0
    while index in used:
        index += 1
    return index


def label_value(text: str) -> str:
    """``text`` as a Kubernetes label value: other characters become "-", at most 63, letter or digit at both ends."""
    cut = _NOT_IN_LABELS.sub("-", text)
    return cut.strip("-_.")[:_LABEL_LENGTH].rstrip("-_.")


# ---- types that every part of the model uses

Labels = t.Mapping[str, str]
