#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Say where the money went
description:
  - Adds up what machines of this cluster cost by day, pool, cloud, model, what it was good for and why machines went, with dollars per useful
    GPU hour, the forecast of day and month, and the state of every budget.
  - Reads the ledger and the claims. Clouds are asked only for images of Talos, where a class of the documents boots one, for the existing
    volumes that a class names, and for their bills where O(provider_bills) is V(true).
  - What machines cost that have no claim is in the report once they are terminated.
  - A machine is useful from the first pod that a run saw at work on it to its last idle time or its end. A service is so from its first answer.
    Lines of older versions do not say when that was, so their use is C(unknown).
  - The parts add up to the lines of the ledger exactly. Lines that cannot be read are named, and every sum is "at least" then.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  format:
    description:
      - The form of what is printed, or written to O(path). V(csv) has one line for each day, machine and use.
        V(csv_teams) has one line for each day, machine, team, namespace and requester, and lines for what nobody's pods used.
      - V(html) is one page with charts that loads nothing from anywhere. It needs O(path).
        Its charts are drawn by the Python library matplotlib where that is installed, and without it in a plainer form.
    type: str
    choices: [table, json, csv, csv_teams, html]
    default: table
  path:
    description: File to write to instead of printing.
    type: path
  archive:
    description: A file of M(tgp.gpu.fleet_archive). Its lines count like those of the ledger; a line that stands in both counts once.
    type: path
  since:
    description: Only what was spent from then on. A day of O(time_zone) like V(2026-11-01), or a time like V(2026-11-01T12:00:00Z).
    type: str
  until:
    description: Only what was spent before. A day counts as a whole.
    type: str
  time_zone:
    description: Whose days and months are meant, for example V(Europe/Berlin).
    type: str
    default: UTC
  purchase_price:
    description: What a machine of one's own would cost in dollars; C(spending) in RV(report) then says after how many hours it would have paid.
    type: str
  provider_bills:
    description:
      - Whether to ask the providers that tell it what they billed for the machines of the report, and to compare that with the ledger.
      - A machine whose bill lies outside the bounds that C(bill) in RV(report) sums up is a warning, and so is one that is billed and in no
        ledger.
      - Vast.ai, RunPod and Vultr tell it. Their keys need the right to read bills. The other providers have no such call.
    type: bool
    default: false
requirements:
  - matplotlib >= 3.8 (optional, for finer charts of O(format=html))
extends_documentation_fragment:
  - tgp.gpu.fleet
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.no_diff
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Where did the money go?
  tgp.gpu.fleet_report:

- name: Compare with what the providers billed
  tgp.gpu.fleet_report:
    provider_bills: true

- name: The same as a page with charts
  tgp.gpu.fleet_report:
    format: html
    path: report.html
"""

RETURN = r"""
report:
  description:
    - C(total), C(by_day), C(by_use), C(by_pool), C(by_cloud), C(by_model), C(by_end) as exact amounts in text, C(useful_gpu_hours),
      C(unknown_gpu_hours), C(per_useful_gpu_hour) (null while hours are unknown), C(machines), C(whole) and C(torn).
    - C(traffic) is an estimate that no other sum contains. C(machines) of it are at clouds that bill traffic, C(estimate) is in dollars, for
      C(once_gb) GB that each machine downloads once and C(hour_gb) GB per hour in each direction.
    - C(talos_images) is what images of Talos with the stamp of this cluster, and those that its classes name, cost in this time (C(total))
      and a month (C(month)). No other sum contains it. C(images) has each with C(cloud), C(name), C(created), C(cost) in whole cents,
      C(month_cost) and C(price_basis); the costs add up to the total. C(whole) is false while one is not known; C(problems) says why.
    - C(bill) says how exact the sums are. The bills of the providers lie between C(least) and C(most), exact amounts in text. C(clouds) has
      each with C(name), by how many dollars its bill may be C(less) and C(more) than its part of the sums, and C(why). C(unknown_machines)
      are those
      whose lines were written by an older version and say no bounds.
    - C(missing_gpus) is what was paid for GPUs that nodes did not show (C(cost), C(gpu_hours)), and the C(machines), each with C(name),
      C(cost), C(gpu_hours) and what it C(shown) at least ("7 of 8"). Its dollars are part of all sums, its GPUs of no useful hour.
    - C(hours) is a list of machine hours by use, from the times that pods themselves say, each with C(use) (useful, waiting, booting, joining,
      draining, failed or unmeasured), C(hours), and C(cost) in whole cents; these add up to the total.
    - C(volumes) is what existing volumes of O(documents) cost beside the machines; no other sum contains it. C(month) is in dollars (null
      while the price of one is not known), C(volumes) has C(cloud), C(id), C(name), C(region), C(size_gb) and C(month) of each, and C(unread)
      the providers that could not be asked.
    - C(provider_bills) is null without O(provider_bills). C(total) is what was billed, and the ledger's amount where there is no bill; C(whole)
      is true when the bill of every machine is complete. C(problems) are the warnings, one sentence each.
    - C(clouds) of C(provider_bills) has for each provider C(name), C(available) (whether it has a bill that could be read, else C(why) not),
      the number of C(machines) and of those that are charged (C(charged_machines)), what the C(ledger) says, what was C(billed), the
      C(difference) of the charged machines, and C(traffic) that was billed beside. C(outside) and C(missing) have the machines whose bill
      lies outside its bounds, and those without a charge, each with C(name), C(ids), C(billed), C(ledger), C(least) and C(most). C(pending)
      names those whose bill is not complete yet. C(unrecorded) has the C(name) and what was C(billed) of machines with names of this
      cluster that are in no ledger.
    - C(spending) as in RV(tgp.gpu.fleet_info#module:spending).
  type: dict
  returned: always
path:
  description: The file that was written, empty when the report was printed.
  type: str
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.reports.spend_report import FORMATS, report_run

SPEC = dict(
    argument_spec=dict(
        format=dict(type="str", choices=list(FORMATS), default="table"),
        path=dict(type="path"),
        archive=dict(type="path"),
        since=dict(type="str"),
        until=dict(type="str"),
        time_zone=dict(type="str", default="UTC"),
        purchase_price=dict(type="str"),
        provider_bills=dict(type="bool", default=False),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="none",
)


def run(task: Task) -> dict:
    return report_run(task)


if __name__ == "__main__":
    main(SPEC, run)
