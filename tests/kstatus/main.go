// Copyright (c) 2026, the tgp.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// What Helm, Flux and other users of kstatus take an object for. Standard input: JSON objects, one after the other, or lists of them.
// Standard output: for each a line with kind, namespace/name, status and message, separated by tabs.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	decoder := json.NewDecoder(os.Stdin)
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = tell(raw)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// Its own decoder keeps whole numbers whole: with a float as observedGeneration the library gives up.
func tell(raw []byte) error {
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(raw); err != nil || len(list.Items) == 0 {
		var one unstructured.Unstructured
		if err := one.UnmarshalJSON(raw); err != nil {
			return err
		}
		if one.IsList() {
			return nil
		}
		list.Items = []unstructured.Unstructured{one}
	}
	for i := range list.Items {
		one := &list.Items[i]
		result, err := status.Compute(one)
		if err != nil {
			return fmt.Errorf("%s %s: %w", one.GetKind(), one.GetName(), err)
		}
		fmt.Printf("%s\t%s/%s\t%s\t%s\n", one.GetKind(), one.GetNamespace(), one.GetName(), result.Status, result.Message)
	}
	return nil
}
