package html

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/browser"
)

// TestEverybodyCanRead runs axe-core on each kind of page.
func TestEverybodyCanRead(t *testing.T) {
	ctx := started(t)
	var compared bytes.Buffer
	must(t, WriteComparison(&compared, comparison(t, "planted")))
	comparison := filepath.Join(t.TempDir(), "comparison.html")
	must(t, os.WriteFile(comparison, compared.Bytes(), 0o600))
	trend := filepath.Join(t.TempDir(), "trend.html")
	must(t, os.WriteFile(trend, []byte(trendPage(t)), 0o600))
	pages := map[string]string{"comparison": comparison, "trend": trend}
	for _, name := range []string{"java-finalizers", "ports"} {
		pages[name], _ = pageOf(t, recordings[name].path)
	}
	pages["incident"], _ = pageOf(t, incident)
	for name, path := range pages {
		t.Run(name, func(t *testing.T) {
			ready := `document.readyState === "complete" && (!document.querySelector("script") || "ready" in document.documentElement.dataset)`
			browser.Axe(ctx, t, "file://"+path, ready)
		})
	}
}
