package ledger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestFullNames: threads belong to the pool in their full name, if the JVM gave one.
func TestFullNames(t *testing.T) {
	const cut = 15 // bytes that the kernel keeps of a name
	for _, tt := range []struct {
		name    string
		threads []string // by their full names; "" ended before the JVM was asked
		summed  bool     // whether there are more of them that were summed up
		pools   map[string]int
	}{
		{
			"one pool",
			[]string{"http-nio-8080-exec-1", "http-nio-8080-exec-2", ""},
			true,
			map[string]int{"http-nio-8080-exec": 4},
		},
		{
			"two pools",
			[]string{"http-nio-8080-exec-1", "http-nio-8080-exec-2", "http-nio-8080-e-poller", ""},
			false,
			map[string]int{"http-nio-8080-exec": 2, "http-nio-8080-e-poller": 1, "http-nio-8080-e": 1},
		},
		{
			"nobody knows of which",
			[]string{"http-nio-8080-exec-1", "http-nio-8080-e-poller"},
			true,
			map[string]int{"http-nio-8080-e": 3},
		},
		{
			"a number inside",
			[]string{"http-nio-8080-e4-of-db", "http-nio-8080-e5-of-db", "http-nio-8080-exec"},
			false,
			map[string]int{"http-nio-8080-e*-of-db": 2, "http-nio-8080-exec": 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := record(t, func(a *recording.Appender, last bool) {
				for i, name := range tt.threads {
					tid := string(rune('8' + i))
					if name != "" {
						a.Info(metric.JVMThread, "7", tid, name, starred(name))
					}
					state(a, tid, (name + "http-nio-8080-exec")[:cut])
				}
				if tt.summed {
					state(a, "", "http-nio-8080-e")
				}
			})
			l, ok := Of(rec)
			if !ok {
				t.Fatal("no account")
			}
			got := map[string]int{}
			for _, p := range l.Pools {
				got[p.Name] = len(p.threads)
			}
			if diff := cmp.Diff(tt.pools, got); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
		})
	}
}

func state(a *recording.Appender, tid, comm string) {
	a.Gauge(metric.ThreadStateTime, 10, "7", tid, comm, "waiting", "recvfrom", "answer", "10.0.0.1:80")
}

// starred returns the pool of a name as the collector does.
func starred(name string) string {
	return strings.NewReplacer("4", "*", "5", "*", "-1", "-*", "-2", "-*").Replace(name)
}
