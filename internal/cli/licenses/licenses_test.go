package licenses

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
)

func TestLicenceIsTheRepositorys(t *testing.T) {
	want, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), apache); d != "" {
		t.Error(d)
	}
}

func TestAll(t *testing.T) {
	list, err := All()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]License{}
	for _, l := range list {
		by[l.Name] = l
	}
	if !strings.Contains(by[own].Text, "Apache License") {
		t.Errorf("perfdoctor's own licence: %q", by[own].Text)
	}
	if by[GoName].Version == "" {
		t.Error("Go is not listed")
	}
	_, err = library.Bundled()
	profiler, listed := by["async-profiler"]
	if listed != (err == nil) {
		t.Errorf("async-profiler is listed: %v; bundled: %v", listed, err)
	}
	for _, part := range []string{"The async-profiler authors", "Apache License", "unchanged", library.Artifact} {
		if listed && !strings.Contains(profiler.Text, part) {
			t.Errorf("the notice of async-profiler does not say %q", part)
		}
	}
}

func TestModules(t *testing.T) {
	info := &debug.BuildInfo{Deps: []*debug.Module{
		{Path: "example.org/b", Version: "v2.0.0"},
		{Path: "example.org/a", Version: "v1.0.0"},
		{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{
			Path:    "example.org/new",
			Version: "v3.0.0",
		}},
	}}
	texts := map[string]string{
		"example.org/a@v1.0.0": "A", "example.org/b@v1.9.0": "of another version",
		"example.org/new@v3.0.0": "N",
	}
	want := []License{
		{"example.org/a", "v1.0.0", "A"},
		{"example.org/b", "v2.0.0", ""},
		{"example.org/new", "v3.0.0", "N"},
	}
	if d := cmp.Diff(want, modules(info, texts)); d != "" {
		t.Error(d)
	}
	if got := modules(nil, texts); got != nil {
		t.Errorf("without build information: %v", got)
	}
}
