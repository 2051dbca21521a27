package front

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/dev/browser"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// TestEverybodyCanRead puts the page in each of its states to axe-core.
func TestEverybodyCanRead(t *testing.T) {
	testenv.Need(t, testenv.Tool("chromium"))
	ctx, stop, err := browser.Start(t.TempDir())
	defer stop()
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]struct {
		state exporter.State
		host  string // of the request: a name other than this one is not trusted
	}{
		"sick": {state: sick()}, "healthy": {state: exporter.State{Ended: ended}}, "starting": {},
		"reduced": {state: sick(), host: "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			_, page := serve(t, s.state, "/", s.host)
			path := filepath.Join(t.TempDir(), "page.html")
			if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
				t.Fatal(err)
			}
			browser.Axe(ctx, t, "file://"+path, `document.readyState === "complete"`)
		})
	}
}
