package checks

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
)

// TestConnectionCauses runs the whole suite over recordings of one fault each. The cause is the principal finding, and
// its consequences stand under it.
func TestConnectionCauses(t *testing.T) {
	for _, tc := range []struct {
		recording, principal string
		explained            []string
	}{
		{"bridge-nat-cost/firing-one-core", "bridge-nat-cost", []string{"softirq-imbalance"}},
		{
			"short-connection-ceiling/firing", "short-connection-ceiling",
			[]string{"local-port-exhaustion", "no-keepalive"},
		},
		{
			"short-connection-ceiling/firing-default-range-full", "short-connection-ceiling",
			[]string{"local-port-exhaustion"},
		},
		{"local-port-exhaustion/firing", "local-port-exhaustion", nil},
		{"port-search-cliff/firing", "short-connection-ceiling", []string{"port-search-cliff"}},
		{"syn-sent-pileup/firing", "syn-sent-pileup", nil},
		{"syn-sent-pileup/firing-queue-here", "accept-queue-overflow", []string{"syn-sent-pileup"}},
		{"no-keepalive/firing", "no-keepalive", nil},
		{"close-wait-leak/firing", "close-wait-leak", nil},
		{"paws-behind-nat/firing", "paws-behind-nat", nil},
	} {
		t.Run(tc.recording, func(t *testing.T) {
			res := check.Run(checktest.Open(t, tc.recording), Suite(), check.Options{Causes: Causes()})
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
