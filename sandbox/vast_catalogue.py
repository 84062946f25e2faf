# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is for rent on the sandbox's Vast unless a scenario says otherwise: cards, places, and the offers of a day with the traps of the
real market. Memory is what the driver reports; names are those of the API, which are not those of the makers."""

from __future__ import annotations

import typing as t

# name at Vast: (model, MiB that the driver sees, compute capability x 100, dollars per GPU and hour)
GPUS: dict[str, tuple[str, int, int, str]] = {
    "RTX 3060": ("RTX3060", 12288, 860, "0.06"),
    "RTX 3080": ("RTX3080", 10240, 860, "0.08"),
    "RTX 3090": ("RTX3090", 24576, 860, "0.16"),
    "RTX 4070S Ti": ("RTX4070TiSUPER", 16376, 890, "0.12"),
    "RTX 4090": ("RTX4090", 24564, 890, "0.34"),
    "RTX 4090D": ("RTX4090D", 24564, 890, "0.31"),
    "RTX 5090": ("RTX5090", 32607, 1200, "0.42"),
    "RTX 2080 Ti": ("RTX2080Ti", 11264, 750, "0.07"),
    "Q RTX 6000": ("QUADRO-RTX6000", 24576, 750, "0.14"),
    "Q RTX 8000": ("QUADRO-RTX8000", 49152, 750, "0.25"),
    "RTX A6000": ("A6000", 49140, 860, "0.41"),
    "RTX 5000Ada": ("RTX5000Ada", 32760, 890, "0.36"),
    "RTX 6000Ada": ("RTX6000Ada", 49140, 890, "0.55"),
    "RTX PRO 6000 S": ("RTXPRO6000", 97887, 1200, "0.95"),
    "RTX PRO 6000 WS": ("RTXPRO6000WS", 97887, 1200, "0.90"),
    "A10g": ("A10G", 23028, 860, "0.20"),
    "L40S": ("L40S", 46068, 890, "0.55"),
    "Tesla V100": ("V100", 16384, 700, "0.16"),
    "A100 PCIE": ("A100-PCIE", 40960, 800, "0.60"),
    "A100 SXM4": ("A100-SXM", 81920, 800, "0.85"),
    "H100 SXM": ("H100-SXM", 81559, 900, "1.75"),
    "H100 NVL": ("H100-NVL", 95830, 900, "1.60"),
    "H200": ("H200", 143771, 900, "2.30"),
    "B200": ("B200", 183359, 1000, "3.60"),
    "InstinctMI50": ("MI50", 16368, 906, "0.09"),
}
PLACES = {
    "Oregon, US": "US",
    "Texas, US": "US",
    "North Carolina, US": "US",
    "Quebec, CA": "CA",
    "Germany, DE": "DE",
    "Sweden, SE": "SE",
    "Norway, NO": "NO",
    "Czechia, CZ": "CZ",
    "Japan, JP": "JP",
    "South Korea, KR": "KR",
    "Taiwan, TW": "TW",
    "Australia, AU": "AU",
    "Brazil, BR": "BR",
    ", US": "US",  # no state is told
}
CATALOGUE: list[dict[str, t.Any]] = [
    {"gpu": "RTX 4090", "price": "0.35", "min_bid": "0.18", "vm": True, "machine": 5511, "host": 901},
    {"gpu": "RTX 4090", "price": "0.35", "min_bid": "0.19", "vm": True, "place": "Oregon, US"},  # the same price as the one above
    {"gpu": "RTX 4090", "price": "0.31", "place": "Germany, DE"},
    {"gpu": "RTX 4090", "price": "0.29", "reliability": 0.81, "vm": True},  # cheap, and often away
    {"gpu": "RTX 4090", "price": "0.27", "verification": "unverified", "vm": True},
    {"gpu": "RTX 4090", "price": "0.33", "disk_gb": 18.0, "vm": True},
    {"gpu": "RTX 4090", "price": "0.58", "memory_mib": 49140, "vm": True, "place": "Taiwan, TW"},  # rebuilt with 48 GB
    {"gpu": "RTX 4090", "gpus": 2, "price": "0.74", "vm": True, "machine": 5512, "host": 901},
    {"gpu": "RTX 4090", "gpus": 4, "price": "1.45", "machine": 5512, "host": 901},
    {"gpu": "RTX 4090", "gpus": 8, "price": "2.90", "data_centre": True, "place": "Texas, US", "ports": 250},
    {"gpu": "RTX 4090", "price": "0.39", "vm": True, "cuda": 12.2, "place": "Norway, NO"},  # an old driver
    {"gpu": "RTX 4090", "price": "0.36", "vm": True, "ports": 0},  # no port can be mapped
    {"gpu": "RTX 4090", "price": "0.37", "vm": True, "duration": 7200.0},  # its contract ends soon
    {"gpu": "RTX 4090", "price": "0.34", "vm": True, "stock": 0},  # rented
    {"gpu": "RTX 4090D", "price": "0.30", "place": "Japan, JP", "vm": True},
    {"gpu": "RTX 5090", "price": "0.45", "min_bid": "0.27", "vm": True, "place": "Sweden, SE"},
    {"gpu": "RTX 5090", "price": "0.45", "min_bid": "0.30", "vm": True, "place": "Oregon, US"},
    {"gpu": "RTX 5090", "gpus": 4, "price": "1.88", "place": "Czechia, CZ"},
    {"gpu": "RTX 5090", "price": "0.52", "cuda": 12.8, "vm": True, "inet_down": 62.0},
    {"gpu": "RTX 3090", "price": "0.15", "vm": True, "storage": "0.30"},  # cheap, until its disk is counted
    {"gpu": "RTX 3090", "price": "0.17", "min_bid": "0.08", "place": "Germany, DE", "vm": True, "storage": "0.05"},
    {"gpu": "RTX 3090", "gpus": 2, "price": "0.33", "place": "South Korea, KR"},
    {"gpu": "RTX 3080", "price": "0.09"},
    {"gpu": "RTX 3060", "price": "0.05", "place": "Brazil, BR", "verification": "deverified"},
    {"gpu": "RTX 4070S Ti", "price": "0.12", "vm": True},
    {"gpu": "RTX 2080 Ti", "price": "0.08"},
    {"gpu": "RTX 2080 Ti", "price": "0.11", "memory_mib": 22528},  # rebuilt with 22 GB
    {"gpu": "Q RTX 6000", "price": "0.15", "traffic_down": "0.05", "traffic_up": "0.08"},  # cheap, until its traffic is counted
    {"gpu": "Q RTX 8000", "price": "0.26"},
    {"gpu": "RTX A6000", "price": "0.42", "place": "Australia, AU"},
    {"gpu": "RTX A6000", "gpus": 4, "price": "1.62", "data_centre": True, "place": "North Carolina, US"},
    {"gpu": "RTX 5000Ada", "price": "0.37"},
    {"gpu": "RTX 6000Ada", "price": "0.57", "vm": True},
    {"gpu": "RTX PRO 6000 S", "price": "0.98", "data_centre": True, "place": "Texas, US"},
    {"gpu": "RTX PRO 6000 WS", "price": "0.92", "vm": True},
    {"gpu": "A10g", "price": "0.21", "data_centre": True},
    {"gpu": "L40S", "price": "0.56", "data_centre": True},
    {"gpu": "L40S", "gpus": 8, "price": "4.40", "data_centre": True, "external": True},
    {"gpu": "Tesla V100", "price": "0.17"},
    {"gpu": "Tesla V100", "gpus": 8, "price": "1.52", "memory_mib": 32768, "data_centre": True},
    {"gpu": "A100 PCIE", "price": "0.61", "data_centre": True},
    {"gpu": "A100 PCIE", "price": "0.74", "memory_mib": 81920, "data_centre": True},
    {"gpu": "A100 SXM4", "gpus": 8, "price": "6.90", "data_centre": True, "ports": 250},
    {"gpu": "H100 SXM", "price": "1.80", "min_bid": "1.10", "data_centre": True, "place": "Norway, NO"},
    {"gpu": "H100 SXM", "gpus": 8, "price": "14.40", "min_bid": "9.60", "data_centre": True, "ports": 250, "boot": 420.0},
    {"gpu": "H100 NVL", "gpus": 2, "price": "3.24", "data_centre": True},
    {"gpu": "H200", "gpus": 8, "price": "18.80", "data_centre": True, "boot": 420.0},
    {"gpu": "B200", "gpus": 8, "price": "29.60", "data_centre": True, "boot": 480.0},
    {"gpu": "InstinctMI50", "gpus": 4, "price": "0.38"},
    {"gpu": "H100 SXM", "price": "1.79", "data_centre": True, "place": ", US"},
    {"gpu": "RTX 4090", "price": "0.28", "vm": True, "vm_deverified": True},  # its virtual machines were found not to work
]
