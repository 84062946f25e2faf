// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Talos's own reading, merging and validation of machine configurations, for tests to compare with.
//
//	machinery validate [-mode metal] [-strict] FILE...   one JSON line for each file
//	machinery validate                                   JSON lines on stdin, one JSON line for each
//	machinery patch CONFIG PATCH...                      the merged configuration, as YAML
//
// A line on stdin is {"config": YAML, "patches": [YAML], "mode": "metal", "strict": true}; the patches come first, then the
// validation. An answer is {"ok": bool, "errors": [...], "warnings": [...]}, with "config" when there were patches.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

type question struct {
	Config  string   `json:"config"`
	Patches []string `json:"patches"`
	Mode    mode     `json:"mode"`
	Strict  bool     `json:"strict"`
}

type answer struct {
	OK       bool     `json:"ok"`
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
	Config   string   `json:"config,omitempty"`
}

type mode string

func (m mode) String() string        { return string(m) }
func (m mode) RequiresInstall() bool { return m == "metal" }
func (m mode) InContainer() bool     { return m == "container" }
func (m mode) known() bool           { return m == "metal" || m == "cloud" || m == "container" }

// leaves takes nested lists of errors apart and keeps in front of each the name of the document it is about.
func leaves(err error, prefix string) []string {
	var list interface{ WrappedErrors() []error }
	if !errors.As(err, &list) {
		return []string{prefix + strings.TrimSpace(err.Error())}
	}
	prefix += strings.TrimSuffix(err.Error(), list.(error).Error())
	found := []string{}
	for _, one := range list.WrappedErrors() {
		found = append(found, leaves(one, prefix)...)
	}
	return found
}

func merged(config []byte, patches []string) ([]byte, error) {
	loaded := []configpatcher.Patch{}
	for _, patch := range patches {
		one, err := configpatcher.LoadPatch([]byte(patch))
		if err != nil {
			return nil, fmt.Errorf("patch: %w", err)
		}
		loaded = append(loaded, one)
	}
	output, err := configpatcher.Apply(configpatcher.WithBytes(config), loaded)
	if err != nil {
		return nil, err
	}
	return output.Bytes()
}

func judge(q question) answer {
	refused := func(err error) answer { return answer{Errors: leaves(err, ""), Warnings: []string{}} }
	if !q.Mode.known() {
		return refused(fmt.Errorf("mode %q is not one of metal, cloud, container", q.Mode))
	}
	a := answer{Errors: []string{}, Warnings: []string{}}
	config := []byte(q.Config)
	if len(q.Patches) > 0 {
		var err error
		if config, err = merged(config, q.Patches); err != nil {
			return refused(err)
		}
		a.Config = string(config)
	}
	provider, err := configloader.NewFromBytes(config)
	if err != nil {
		return refused(err)
	}
	options := []validation.Option{validation.WithLocal()}
	if q.Strict {
		options = append(options, validation.WithStrict())
	}
	warnings, err := provider.Validate(q.Mode, options...)
	a.Warnings = append(a.Warnings, warnings...)
	if err != nil {
		a.Errors = leaves(err, "")
	}
	a.OK = err == nil
	return a
}

func validate(args []string) error {
	flags := flag.NewFlagSet("validate", flag.ExitOnError)
	chosen := flags.String("mode", "metal", "metal, cloud or container")
	strict := flags.Bool("strict", false, "count warnings as errors")
	if err := flags.Parse(args); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, file := range flags.Args() {
		config, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := out.Encode(judge(question{Config: string(config), Mode: mode(*chosen), Strict: *strict})); err != nil {
			return err
		}
	}
	if flags.NArg() > 0 {
		return nil
	}
	for in := json.NewDecoder(os.Stdin); ; {
		q := question{Mode: mode(*chosen), Strict: *strict}
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := out.Encode(judge(q)); err != nil {
			return err
		}
	}
}

func patch(args []string) error {
	if len(args) < 2 {
		return errors.New("patch needs a CONFIG file and at least one PATCH file")
	}
	config, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	patches := []string{}
	for _, file := range args[1:] {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		patches = append(patches, string(content))
	}
	output, err := merged(config, patches)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(output)
	return err
}

func main() {
	commands := map[string]func([]string) error{"validate": validate, "patch": patch}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: machinery validate [-mode metal|cloud|container] [-strict] [FILE...] | machinery patch CONFIG PATCH...")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "machinery:", err)
		os.Exit(1)
	}
}
