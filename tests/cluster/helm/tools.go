// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

//go:build tools

// Package helm names the program that go.mod pins; build.py builds it.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
