# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack talos-config.schema.json into a Python module, because a module of Ansible travels without data files.

python schemas/talos_pack.py          write plugins/module_utils/talos/validation/schema_data.py
"""

from __future__ import annotations

import base64
import pathlib
import textwrap
import zlib

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "talos-config.schema.json"
TARGET = HERE.parent / "plugins" / "module_utils" / "talos" / "validation" / "schema_data.py"

HEAD = '''\
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later AND MPL-2.0
"""The JSON Schema of Talos machine configuration, packed. Made by schemas/talos_pack.py; do not edit.

The packed text is, byte for byte, pkg/machinery/config/schemas/config.schema.json of github.com/siderolabs/talos at v1.13.9,
copyright Sidero Labs, Inc. and the Talos contributors, under the Mozilla Public License 2.0 (https://mozilla.org/MPL/2.0/).
It lies unpacked, with its notice, in schemas/ of the collection's repository.
"""

from __future__ import annotations

import base64
import zlib

_PACKED = """
'''

TAIL = '''
"""


def text() -> bytes:
    """The schema file as it was published."""
    return zlib.decompress(base64.b85decode("".join(_PACKED.split())))
'''


def pack(schema: bytes) -> str:
    """The source of the Python module that carries ``schema``."""
    encoded = base64.b85encode(zlib.compress(schema, 9)).decode("ascii")
    return HEAD + "\n".join(textwrap.wrap(encoded, 128, break_on_hyphens=False)) + TAIL


if __name__ == "__main__":
    TARGET.write_text(pack(SOURCE.read_bytes()), encoding="ascii")
