# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the page of the report looks: colours for light and dark, and a layout from a telephone's width on."""

from __future__ import annotations

STYLE = """
:root{--paper:#fff;--card:#f5f6f8;--ink:#1d2129;--faint:#5d6675;--grid:#dfe3e9;--alarm:#b3261e;--low:#b26a00;
--s0:#2563a8;--s1:#d08a1e;--s2:#7a8594;--s3:#c0392b;--s4:#8e5bb5;--s5:#2a9d8f;--s6:#6b1f1a;--s7:#4a4a4a;--s8:#a9956c}
@media (prefers-color-scheme:dark){:root{
--paper:#14171c;--card:#1e232b;--ink:#e8ebf0;--faint:#9aa5b5;--grid:#333b47;--alarm:#ff8a80;--low:#ffb74d;
--s0:#6aa9ea;--s1:#eab35a;--s2:#8d99a9;--s3:#ef7266;--s4:#b78ad9;--s5:#5cc9bb;--s6:#e0a09b;--s7:#b0b0b0;--s8:#c9b68f}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:20px 16px 48px}
h1{font-size:26px;margin:0}
h2{font-size:17px;margin:0 0 8px}
header p{margin:4px 0 18px;color:var(--faint)}
section,details{margin:0 0 18px}
.alarm{border-left:4px solid var(--alarm);background:var(--card);padding:10px 14px;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:12px;margin:0 0 18px}
.cards div,figure,.budget{background:var(--card);border-radius:8px;padding:12px 14px}
dt{color:var(--faint);font-size:13px}
dd{margin:2px 0;font-size:23px;font-weight:600;font-variant-numeric:tabular-nums}
.cards p{margin:0;color:var(--faint);font-size:12.5px}
.budget{margin:0 0 8px}
.budget p{margin:0 0 8px}
.bar{height:10px;border-radius:5px;background:var(--grid);overflow:hidden}
.bar i{display:block;height:100%;background:var(--s0)}
.low .bar i{background:var(--low)}
.over .bar i{background:var(--alarm)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:12px}
figure{margin:0;min-width:0}
figcaption{font-weight:600;margin:0 0 6px}
svg{display:block;width:100%;height:auto;max-width:640px}
svg text{font-family:inherit}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:8px 0 0;padding:0;font-size:13px;color:var(--faint)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px}
summary{cursor:pointer;font-weight:600;padding:6px 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;min-width:280px;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:5px 14px 5px 0;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child,.left th,.left td{text-align:left}
.left th:last-child,.left td:last-child{text-align:right}
th{color:var(--faint);font-weight:500}
tfoot td{font-weight:600;border-bottom:0}
@media print{body{font-size:12px}main{max-width:none}details>div{display:block}}
"""
