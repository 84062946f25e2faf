# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From when to when a certificate holds. Read from its DER form: the library for certificates takes longer to import than a call takes."""

from __future__ import annotations

import ssl
from datetime import datetime, timezone

_VERSION = 0xA0
_FORMS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}  # UTCTime, GeneralizedTime
_BEFORE_VALIDITY = 3  # serial number, algorithm, issuer


def validity(pem: str) -> tuple[datetime, datetime] | None:
    """Beginning and end of the first certificate of ``pem``; None when it is of another form."""
    begin = pem.find(ssl.PEM_HEADER)
    end = pem.find(ssl.PEM_FOOTER, begin)
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(ssl.PEM_FOOTER)])
        body = _parts(_parts(der)[0][1])[0][1]  # the outermost sequence, and of it what is signed
        fields = [one for one in _parts(body) if one[0] != _VERSION]
        first, last = _parts(fields[_BEFORE_VALIDITY][1])
        return _time(*first), _time(*last)
    except (ValueError, IndexError):
        return None


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each value in ``data``."""
    found = []
    while data:
        tag, size, at = data[0], data[1], 2
        if size & 0x80:
            at += size & 0x7F
            size = int.from_bytes(data[2:at], "big")
        if at + size > len(data):
            raise ValueError("cut off")
        found.append((tag, data[at : at + size]))
        data = data[at + size :]
    return found


def _time(tag: int, content: bytes) -> datetime:
    found = datetime.strptime(content.decode("ascii"), _FORMS.get(tag, "")).replace(tzinfo=timezone.utc)
    # two digits are years until 2049 (RFC 5280, 4.1.2.5.1)
    return found.replace(year=found.year - 100) if tag == 0x17 and found.year >= 2050 else found
