package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/cli/licenses"
)

var licence = regexp.MustCompile(`(?i)licen[cs]e|permission is hereby granted|redistribution and use`)

// TestEveryModuleOfTheProgram builds the program and expects a licence for each module that the build put into it.
func TestEveryModuleOfTheProgram(t *testing.T) {
	archive, err := gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, f := range archive.Files {
		texts[f.Name] = string(f.Data)
	}
	if !strings.Contains(texts[licenses.GoName], "The Go Authors") {
		t.Errorf("the licence of Go: %q", texts[licenses.GoName])
	}
	modules := linked(t)
	if len(modules) < 10 {
		t.Fatalf("only %d modules in the program: this test reads the build information wrongly", len(modules))
	}
	for _, m := range modules {
		if text := texts[m]; !licence.MatchString(text) {
			t.Errorf("%s: no licence gathered: %q", m, text)
		}
	}
	packed, err := pack(archive)
	if err != nil || len(packed) == 0 || bytes.Contains(packed, []byte("Redistribution")) {
		t.Errorf("pack: %d bytes, %v", len(packed), err)
	}
}

// linked returns the modules in the program as path@version, from its build information.
func linked(t *testing.T) []string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "perfdoctor")
	if out, err := exec.Command("go", "build", "-o", bin, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command("go", "version", "-m", bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			list = append(list, licenses.Key(f[1], f[2]))
		}
	}
	return list
}
