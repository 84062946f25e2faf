#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: talos_image
short_description: Make sure that an account of a provider has an image of Talos
description:
  - Machines of V(vultr) and V(gcp) boot Talos from an image of the account. The Image Factory has the file. Vultr fetches it into a snapshot.
    For Google Cloud the controller copies it into a bucket, and an image is made of it there.
  - An image is found again by its description (Vultr), or by its name and labels (Google Cloud). They say Talos's release and the schematic, so
    that a second call makes nothing.
  - The next run goes on with what a run has left that was killed, or whose time was over. A call whose answer is lost is looked up before
    another is sent.
  - A snapshot that vanishes since Vultr could not fetch the file, and an import that fails, are begun a second time.
  - With O(keep) old images are removed. Only images of this collection go that no machine was made of. An account that cannot be read as a
    whole loses none.
  - An image is billed for as long as it exists, whether or not a machine uses it. RV(month_cost) says how much.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  provider:
    description: Whose account gets the image.
    type: str
    choices: [gcp, vultr]
    required: true
  schematic_id:
    description: Id of the image's schematic, 64 hex digits. M(tgp.gpu.talos_schematic) tells it.
    type: str
    required: true
  talos_version:
    description: Talos release, for example V(1.13.9), which is the default.
    type: str
  arch:
    description: CPU of the machines. V(vultr) has V(amd64) only.
    type: str
    choices: [amd64, arm64]
    default: amd64
  image_policy:
    description:
      - V(IfMissing) makes the image when the account has none of this schematic, release and CPU.
      - V(Always) makes a further one in each run. Earlier ones stay, unless O(keep) lets them go.
      - V(Never) makes none, and fails when there is none that is complete.
    type: str
    choices: [Always, IfMissing, Never]
    default: IfMissing
  cluster_id:
    description:
      - Id of the cluster that the image is made for, 8 hex digits. It is part of the image's name and, at Google Cloud, a label.
      - With O(keep) only images of this cluster go. Without this option, only those of no cluster.
      - An image of this content is used whichever cluster it was made for; one of the own cluster is preferred.
    type: str
  project:
    description: Project of Google Cloud that the image belongs to. Default is that of the service account.
    type: str
  bucket:
    description:
      - Bucket of Cloud Storage, without C(gs://), that the controller copies the file into. It has to exist. The file is removed when the
        image is there.
      - The file is downloaded and uploaded in parts of 8 MiB, some hundreds of megabytes in all, and never held as a whole.
      - With V(gcp) one of this and O(source) is needed, unless O(image_policy=Never).
    type: str
  source:
    description:
      - Object of a bucket that holds the file already, as C(gs://BUCKET/OBJECT). It must be the C(gcp) image of this schematic and release,
        which is not checked. It stays.
    type: str
  keep:
    description:
      - So many complete images stay, the newest ones. The image that is asked for stays always. Images that could not be made do not count.
      - Without it no image is removed.
      - Images of another O(cluster_id) stay, and do not count. Which images the classes of another cluster name is not known.
    type: int
  min_age:
    description: An image that is younger stays. A duration like V(24h).
    type: str
    default: 168h
  protect:
    description: Names, ids or links of images that stay, for example those that classes name.
    type: list
    elements: str
    default: []
  timeout:
    description: How long to wait for the image. It is made on when this is over, and the next run waits again.
    type: str
    default: 60m
  state_dir:
    description:
      - Folder in which is noted what was begun. Default is V(~/.local/state/tgp).
      - Taken from E(TGP_STATE_DIR) when not given.
    type: path
  image_factory_url:
    description:
      - Address of the Image Factory. Default is V(https://factory.talos.dev). Vultr must reach it.
      - If not set, the environment variable E(IMAGE_FACTORY_URL) is used.
    type: str
notes:
  - That Talos boots from such a snapshot of Vultr is unverified; other systems do. What Google charges for an image is unverified, too.
requirements:
  - PyYAML >= 6.0
  - cryptography >= 42 (for Google Cloud)
extends_documentation_fragment:
  - tgp.gpu.gcp_cloud
  - tgp.gpu.vultr_cloud
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.talos_schematic
"""

EXAMPLES = r"""
- name: Number the image
  tgp.gpu.talos_schematic:
    talos_version: 1.13.9
    gpu_models: [A40]
  register: numbered

- name: Have it at Vultr, and keep the two newest images
  tgp.gpu.talos_image:
    provider: vultr
    schematic_id: "{{ numbered.id }}"
    talos_version: 1.13.9
    keep: 2
  register: vultr_image

- name: Have it at Google Cloud
  tgp.gpu.talos_image:
    provider: gcp
    schematic_id: "{{ numbered.id }}"
    talos_version: 1.13.9
    bucket: my-talos-images
  register: gcp_image

- name: What a class writes
  ansible.builtin.debug:
    msg: "{{ vultr_image.setting }} {{ gcp_image.setting }}"
"""

RETURN = r"""
action:
  description: V(found), V(made), or V(waited) for one that was being made already. In check mode what would be done.
  returned: always
  type: str
  sample: made
name:
  description: Name of the image (Vultr calls it the description).
  returned: always
  type: str
  sample: tgp-talos-v1.13.9-ac674a9bdc85
setting:
  description: The setting of a class that boots it. Empty in check mode while there is no image.
  returned: always
  type: dict
  sample: {snapshotId: cb676a46-66fd-4dfb-b839-443f2e6c0b60}
image:
  description: The image, as in RV(images). Empty in check mode while there is none.
  returned: always
  type: dict
images:
  description: All images of this collection in the account.
  returned: always
  type: list
  elements: dict
  contains:
    id: {description: Its id., type: str, returned: always, sample: cb676a46-66fd-4dfb-b839-443f2e6c0b60}
    name: {description: Its name., type: str, returned: always, sample: tgp-talos-v1.13.9-ac674a9bdc85}
    state: {description: "V(pending), V(ready), V(failed) or V(unknown).", type: str, returned: always, sample: ready}
    talos_version: {description: Talos release., type: str, returned: always, sample: 1.13.9}
    schematic: {description: The schematic's id; at Vultr its first 12 digits., type: str, returned: always, sample: ac674a9bdc85}
    cluster_id: {description: "The cluster that it was made for, empty = none.", type: str, returned: always, sample: a1b2c3d4}
    arch: {description: CPU., type: str, returned: always, sample: amd64}
    created: {description: When it was made., type: str, returned: always, sample: "2026-11-20T10:00:00Z"}
    size: {description: Bytes that are billed; none while they are not known., type: int, returned: always, sample: 8589934592}
    month_cost: {description: Dollars a month., type: str, returned: always, sample: "0.4295"}
    link: {description: What a class writes., type: str, returned: always, sample: cb676a46-66fd-4dfb-b839-443f2e6c0b60}
    note: {description: Why it stays or goes., type: str, returned: always, sample: is the one that is wanted}
removed:
  description: Names of the images that were removed, or would be in check mode.
  returned: always
  type: list
  elements: str
month_cost:
  description: Dollars a month of all images that stay and whose size is known.
  returned: always
  type: str
  sample: "0.4295"
price:
  description: Dollars for a gigabyte and month (C(gigabyte_month)), and where that is from (C(basis)).
  returned: always
  type: dict
  sample: {gigabyte_month: "0.05", basis: list price of November 2026}
"""

from ansible.module_utils.basic import env_fallback

from ..module_utils.core.task import Task, main
from ..module_utils.operations.talos_image import PROVIDERS, talos_image_run
from ..module_utils.providers.registry import ENTRIES
from ..module_utils.talos.images.factory import ARCHITECTURES

SPEC = dict(
    argument_spec=dict(
        provider=dict(type="str", choices=list(PROVIDERS), required=True),
        schematic_id=dict(type="str", required=True),
        talos_version=dict(type="str"),
        arch=dict(type="str", choices=list(ARCHITECTURES), default="amd64"),
        image_policy=dict(type="str", choices=["Always", "IfMissing", "Never"], default="IfMissing"),
        cluster_id=dict(type="str"),
        project=dict(type="str"),
        bucket=dict(type="str"),
        source=dict(type="str"),
        keep=dict(type="int"),
        min_age=dict(type="str", default="168h"),
        protect=dict(type="list", elements="str", default=[]),
        timeout=dict(type="str", default="60m"),
        state_dir=dict(type="path"),
        image_factory_url=dict(type="str", fallback=(env_fallback, ["IMAGE_FACTORY_URL"])),
        **{name: option for provider in PROVIDERS for name, option in ENTRIES[provider].spec.items()},
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    return talos_image_run(task)


if __name__ == "__main__":
    main(SPEC, run)
