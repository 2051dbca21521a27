package main

import (
	"bytes"
	"io"

	"github.com/spf13/cobra"
)

// completionDir holds what the packages install for shells, under the names that the shells expect.
const completionDir = "deploy/packages/completion"

// completionScripts writes the same scripts as perfdoctor completion. A package is also made for other architectures,
// whose program cannot run on the build machine.
func completionScripts(pages map[string][]byte, root *cobra.Command) error {
	for name, write := range map[string]func(io.Writer) error{
		"perfdoctor":      func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"_perfdoctor":     root.GenZshCompletion,
		"perfdoctor.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		pages[completionDir+"/"+name] = b.Bytes()
	}
	return nil
}
