# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loaded by the Python of a witness before its own code: a connection to anything but the loopback interface fails, and no other name is
looked up."""

from __future__ import annotations

import socket
import typing as t

_HERE = ("127.0.0.1", "::1", "localhost")
_look_up = socket.getaddrinfo


class _Socket(socket.socket):
    def connect(self, address: t.Any) -> None:
        _check(address)
        super().connect(address)

    def connect_ex(self, address: t.Any) -> int:
        _check(address)
        return super().connect_ex(address)


def _check(address: t.Any) -> None:
    if isinstance(address, tuple) and address[0] not in _HERE:
        raise OSError(f"the witness may not connect to {address[0]}")


def _addresses(host: t.Any, *more: t.Any, **options: t.Any) -> t.Any:
    if host not in (*_HERE, None):
        raise OSError(f"the witness may not look up {host}")
    return _look_up(host, *more, **options)


socket.socket = _Socket  # type: ignore[misc]
socket.getaddrinfo = _addresses
