# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for a machine that runs and is not in the mesh."""

from __future__ import annotations

from .facts import Findings, ProbableCause, quoted
from .log_patterns import meaning

_REFUSED = r"(?i)invalid key|invalid pre auth key|authkey (already used|expired|revoked)|API key \S+ (not valid|does not exist)"
_TAGS = r"(?i)requested tags .* (invalid or not permitted)|oauth authkeys require --advertise-tags"
_NO_WAY = r"(?i)fetch control key|control: LoginHot|LoginHot|tailscale.*(i/o timeout|connection refused|no such host)"
_NO_EXTENSION = r"(?i)no extension siderolabs/tailscale|service ext-tailscale does not exist"


def _absent(findings: Findings) -> bool:
    """Its device is surely not there: the list was read, and nothing that comes later was seen."""
    return (
        findings.uses_mesh
        and findings.device is None
        and bool(findings.devices_read)
        and not findings.requests
        and findings.node is None
    )


def _expired_key(findings: Findings) -> ProbableCause | None:
    if not _absent(findings):
        return None
    key, line = findings.key, findings.says(r"(?i)authkey expired")
    over = key is not None and key.expires is not None and key.expires <= findings.now
    if not over and not line:
        return None
    when = f"the key {findings.key_id} expired at {key.expires:%Y-%m-%d %H:%M:%SZ}" if over and key and key.expires else ""
    return ProbableCause(
        "expired_key",
        "Its mesh key expired before the machine used it.",
        "Rent again: each machine gets a fresh key. If this cloud needs more than an hour to boot, do not use it for nodes.",
        (when, quoted(line), "the mesh has no device of this name"),
    )


def _used_key(findings: Findings) -> ProbableCause | None:
    if not _absent(findings):
        return None
    key, line = findings.key, findings.says(r"(?i)authkey already used", _REFUSED)
    spent = key is not None and key.invalid is True
    deleted = bool(findings.keys_read and findings.key_id and key is None)
    if not (spent or "already used" in line.lower() or (line and (deleted or "not valid" in line))):
        return None
    if deleted:
        return ProbableCause(
            "revoked_key",
            "Its mesh key was revoked before the machine used it.",
            "See in the mesh's audit log who deleted the key; another run of this collection does not touch keys of living claims.",
            (f"the mesh does not list the key {findings.key_id} any more", quoted(line)),
        )
    others = [
        f"{namesake.name or namesake.hostname} joined at {namesake.created:%H:%M:%SZ}"
        for namesake in findings.namesakes
        if namesake.created
    ]
    return ProbableCause(
        "used_key",
        "Its one-use mesh key had been used before: by another machine, or by this one before it lost its state.",
        "Remove the unknown device from the mesh, then rent again. A device of another owner means that the host read the payload.",
        (f"the key {findings.key_id} is not valid any more, and its time is not over" if spent else "", quoted(line), *others),
        certain=spent or "already used" in line.lower(),  # Tailscale's own words do not tell used from expired
    )


def _tags(findings: Findings) -> ProbableCause | None:
    line = findings.says(_TAGS) if _absent(findings) else ""
    if not line:
        return None
    return ProbableCause(
        "tag_not_permitted",
        "The mesh refused the tags that the machine asked for.",
        "Ask for no other tags than the class's tailscaleConfig.tags, and let the key's owner own them in tagOwners of the policy.",
        (quoted(line),),
    )


def _other_words(findings: Findings) -> ProbableCause | None:
    """What else a refused login says of itself; the other rules cover what also needs a look at key, policy or network."""
    log_meaning = meaning("\n".join(findings.console or ())) if _absent(findings) else None
    if log_meaning is None or log_meaning.cause in ("key_used", "key_expired", "key_over", "tags", "server"):
        return None
    return ProbableCause("mesh_login_refused", log_meaning.text, log_meaning.remedy, (quoted(log_meaning.quote),))


def _no_way(findings: Findings) -> ProbableCause | None:
    if not _absent(findings):
        return None
    extension = findings.says(_NO_EXTENSION)
    if extension:
        return ProbableCause(
            "no_mesh_client",
            "The machine's image has no mesh client.",
            "Order an image whose schematic has the extension siderolabs/tailscale.",
            (quoted(extension),),
        )
    line = findings.says(_NO_WAY)
    if not line:
        return None
    return ProbableCause(
        "mesh_unreachable",
        "The machine has no way to the mesh's coordination server.",
        "Let it out to 443/tcp of the coordination server (and 3478/udp, 41641/udp for direct paths), or use another region or cloud.",
        (quoted(line), "its key is still valid" if findings.key is not None and not findings.key.invalid else ""),
    )


def _silent(findings: Findings) -> ProbableCause | None:
    if not _absent(findings):
        return None
    valid = findings.key is not None and not findings.key.invalid
    failed = findings.says(r"^fail |\bfail [a-z-]+:")
    return ProbableCause(
        "not_in_mesh",
        f"The machine runs and never came into the mesh{': its own program stopped' if failed else ''}.",
        "Read its log by hand (/var/log/tgp-bootstrap.log, `talosctl logs ext-tailscale`): was it given its payload, has it a way out?",
        (
            quoted(failed),
            "its key is unused and valid: it never reached the coordination server, or never started" if valid else "",
        ),
        certain=bool(failed),
    )


def _offline(findings: Findings) -> ProbableCause | None:
    device = findings.device
    if device is None or findings.requests or findings.node is not None:
        return None
    if device.problem or not device.authorized:
        return ProbableCause(
            "device_held",
            "Its device is in the mesh and gets no traffic.",
            "Make keys preauthorised, sign the node key (tailnet lock), or approve the device.",
            (f"mesh: {device.name or device.hostname}: {device.problem or 'not authorized'}",),
        )
    if device.online is False:
        seen = f", last seen {device.last_seen:%H:%M:%SZ}" if device.last_seen else ""
        return ProbableCause(
            "device_offline",
            "It came into the mesh and fell silent before it asked for a certificate.",
            "Rent again; if it repeats on this cloud, its network cuts the mesh client off.",
            (f"mesh: {device.name or device.hostname} is not online{seen}", quoted(findings.says(r"(?i)panic|Out of memory|oom"))),
        )
    return None


LOGIN = (_tags, _expired_key, _used_key, _other_words, _no_way)
AFTER_LOGIN = (_silent, _offline)
RULES = (*LOGIN, *AFTER_LOGIN)
