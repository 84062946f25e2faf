// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
// Loaded into a witness before its own code: a connection to anything but the loopback interface fails, and no name is looked up.
"use strict";
const dns = require("node:dns");
const net = require("node:net");

const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...words) {
  const [options] = Array.isArray(words[0]) ? words[0] : [typeof words[0] === "object" ? words[0] : { host: words[1] }];
  const host = options.host ?? "localhost";
  if (!options.path && !["127.0.0.1", "::1", "localhost"].includes(host)) {
    throw new Error(`the witness may not connect to ${host}`);
  }
  return connect.apply(this, words);
};
dns.lookup = (name) => {
  throw new Error(`the witness may not look up ${name}`);
};
