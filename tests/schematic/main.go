// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The Image Factory's own reading, writing and numbering of schematics, for tests to compare with.
//
// One JSON string on stdin for each schematic (its YAML or JSON text), one JSON line for each on stdout:
// {"id": 64 hex digits, "schematic": its canonical text} or {"error": why the factory refuses it}.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/siderolabs/image-factory/pkg/schematic"
)

type answer struct {
	ID        string `json:"id,omitempty"`
	Schematic string `json:"schematic,omitempty"`
	Error     string `json:"error,omitempty"`
}

func judge(text string) answer {
	found, err := schematic.Unmarshal([]byte(text))
	if err != nil {
		return answer{Error: err.Error()}
	}
	id, err := found.ID()
	if err != nil {
		return answer{Error: err.Error()}
	}
	body, err := found.Marshal()
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{ID: id, Schematic: string(body)}
}

func main() {
	out := json.NewEncoder(os.Stdout)
	for in := json.NewDecoder(os.Stdin); ; {
		var text string
		err := in.Decode(&text)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = out.Encode(judge(text))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "schematic:", err)
			os.Exit(1)
		}
	}
}
