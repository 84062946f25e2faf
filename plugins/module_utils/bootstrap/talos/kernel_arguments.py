# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel arguments with which an own machine finds its configuration, and what must never stand in one.

The command line is readable for every program on the machine, and stands in the boot service's logs and in the schematic. So nothing in
it may be a secret that lasts: at most a ticket in the path of an address, good once and for minutes.
"""

from __future__ import annotations

import re
import typing as t
from urllib.parse import parse_qsl, urlsplit

from ...core.errors import InvalidInput

LIMIT = 2048  # bytes of a command line that x86 and arm64 kernels take, the defaults included
VARIABLES = ("uuid", "serial", "mac", "hostname", "code")  # Talos fills them in, in values of the query
METAL_ISO = "metal-iso"
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_WORDS = re.compile(
    r"(token|secret|passw|passphrase|credential|signature|api_?key|auth_?key|private_?key|authorization|^key$|^sig$|^auth$)", re.I
)
_LITERAL = re.compile(r"\b(tskey-|hskey-)|(?<![a-z0-9])[a-z0-9]{6}\.[a-z0-9]{16}(?![a-z0-9])|-----BEGIN|LS0tLS1CRUdJTi")
_CARRIERS = ("talos.config.inline", "talos.config.early")


def config_argument(url: str, *, ipxe: bool = False) -> str:
    """``talos.config=`` for an address. ``ipxe``: it passes through an iPXE script, which fills in variables itself.

    Raises InvalidInput with everything that is wrong with the address.
    """
    problems = list(_url_problems(url, ipxe))
    if problems:
        raise InvalidInput("config_url cannot be used.", problems=problems, field="config_url")
    return f"talos.config={url}"


def plain_http(url: str) -> bool:
    """Whether the configuration, and with it the cluster's secrets, would cross the network unprotected."""
    return urlsplit(url).scheme == "http"


def arguments(consoles: t.Sequence[str], more: t.Sequence[str]) -> list[str]:
    """Console arguments (the last one is the one that services write to) and further ones, checked."""
    kernel_arguments = [f"console={console}" for console in consoles] + list(more)
    problems = [problem for argument in kernel_arguments for problem in _argument_problems(argument)]
    if problems:
        raise InvalidInput("The kernel arguments cannot be used.", problems=problems, field="kernel_args")
    return kernel_arguments


def joined(present: str, more: t.Sequence[str]) -> str:
    """A command line with our arguments behind those of the image. InvalidInput when they contradict each other or do not fit."""
    words = present.split()
    if any(argument.startswith("talos.config=") for argument in more) and any(word.startswith("talos.config=") for word in words):
        raise InvalidInput(
            "The image has a talos.config argument of its own, so it would not be known which one counts.",
            remedy="Leave config_url out, or use a schematic without that argument.",
        )
    line = " ".join([*words, *(argument for argument in more if argument not in words)])
    if len(line.encode()) > LIMIT:
        raise InvalidInput(f"The kernel command line would have {len(line.encode())} bytes, and the kernel reads {LIMIT}.")
    return line


def _url_problems(url: str, ipxe: bool) -> t.Iterator[str]:
    try:
        parts = urlsplit(url)
        _port = parts.port
    except ValueError as error:
        yield f"it is not an address: {error}."
        return
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield "it must be an http or https address."
    if re.search(r"[\s\"'\\]", url) or not url.isascii():
        yield "it has a blank, quote or letter that a kernel command line does not carry; write it percent-encoded."
    if parts.username or parts.password:
        yield "it has a user or password in it, and whoever reads the machine's command line has them for ever."
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if _WORDS.search(name) and value and not _VARIABLE.fullmatch(value):
            yield (
                f"its query carries {name!r}: a command line is not secret. Let the address end by itself instead: a ticket in the path, good "
                "for one machine, once and for minutes."
            )
    if _LITERAL.search(f"{parts.path}?{parts.query}"):
        yield "there is something of the form of a key or token in it."
    for name in _VARIABLE.findall(parts.netloc + parts.path):
        yield f"${{{name}}} stands outside the query, where Talos does not fill it in."
    for name in _VARIABLE.findall(parts.query):
        if name.lower() not in VARIABLES:
            yield f"Talos does not know the variable ${{{name}}}; it knows {', '.join(VARIABLES)}."
        elif ipxe and name == "code":
            yield "iPXE fills variables in before Talos can, and has no ${code}; put this argument into the schematic instead."


def _argument_problems(argument: str) -> t.Iterator[str]:
    name, _equals, value = argument.partition("=")
    if not argument or re.search(r"[\s\"'\\]", argument) or not argument.isascii() or not argument.isprintable():
        yield f"{name or 'an argument'!r} is empty or has a blank, quote or letter that a kernel command line does not carry."
    if name == "talos.config":
        yield "talos.config is made of config_url."
    if name == "talos.platform":
        yield "talos.platform is part of the image; choose it by platform."
    if name in _CARRIERS:
        yield f"{name} carries a configuration, and with it the cluster's secrets, in a line that everybody may read."
    elif value and (_WORDS.search(name.rpartition(".")[2]) or _LITERAL.search(value)):
        yield f"{name!r} looks like a secret, and a command line is none."
