package checks

import (
	"os"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestConnectionCauses runs the whole suite over recordings of one fault each: the cause is the principal finding, and what follows
// from it stands under it.
func TestConnectionCauses(t *testing.T) {
	for _, tc := range []struct {
		recording, principal string
		explained            []string
	}{
		{"bridge-nat-cost/firing-one-core.txtar", "bridge-nat-cost", []string{"softirq-imbalance"}},
		{"short-connection-ceiling/firing.txtar", "short-connection-ceiling", []string{"local-port-exhaustion", "no-keepalive"}},
		{"short-connection-ceiling/firing-default-range-full.txtar", "short-connection-ceiling", []string{"local-port-exhaustion"}},
		{"local-port-exhaustion/firing.txtar", "local-port-exhaustion", nil},
		{"port-search-cliff/firing.txtar", "short-connection-ceiling", []string{"port-search-cliff"}},
		{"syn-sent-pileup/firing.txtar", "syn-sent-pileup", nil},
		{"syn-sent-pileup/firing-queue-here.txtar", "accept-queue-overflow", []string{"syn-sent-pileup"}},
		{"no-keepalive/firing.txtar", "no-keepalive", nil},
		{"close-wait-leak/firing.txtar", "close-wait-leak", nil},
		{"paws-behind-nat/firing.txtar", "paws-behind-nat", nil},
	} {
		t.Run(tc.recording, func(t *testing.T) {
			res := check.Run(openCase(t, "testdata/"+tc.recording), Suite(), check.Options{Causes: Causes()})
			p := res.Principal()
			if p == nil || p.Check != tc.principal {
				t.Fatalf("principal finding: %+v, want one of %s", p, tc.principal)
			}
			for _, name := range tc.explained {
				if by := explainedBy(res, name); by != p.ID() {
					t.Errorf("%s is explained by %q, want %q", name, by, p.ID())
				}
			}
		})
	}
}

func openCase(t *testing.T, path string) *recording.Recording {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parseCase(t, data)
}

func parseCase(t *testing.T, data []byte) *recording.Recording {
	t.Helper()
	fsys, err := txtar.FS(txtar.Parse(data))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// explainedBy gives the cause of a check's finding; a finding that is missing has none either.
func explainedBy(res *check.Result, name string) string {
	for _, f := range res.Findings {
		if f.Check == name {
			return f.ExplainedBy
		}
	}
	return ""
}
