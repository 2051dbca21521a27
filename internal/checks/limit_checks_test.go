package checks

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestOneThrottlingVoice runs both throttling checks over every recording of either: what one says the other must not
// repeat.
func TestOneThrottlingVoice(t *testing.T) {
	files, err := filepath.Glob("testdata/cpu-throttled*/*.txtar")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	spoke := map[string]bool{}
	for _, f := range files {
		rec, err := recording.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		res := check.Run(rec, []*check.Check{cpuThrottled, cpuThrottledBurst, tooManyThreads, threadsVsQuota}, check.Options{})
		var names []string
		for _, x := range res.Findings {
			if x.Check == cpuThrottled.Name || x.Check == cpuThrottledBurst.Name {
				names = append(names, x.Check)
				spoke[x.Check] = true
			}
		}
		if len(names) > 1 {
			t.Errorf("%s: %v", f, names)
		}
	}
	if len(spoke) != 2 {
		t.Errorf("only %v spoke in any recording", spoke)
	}
}

// TestThrottlingIsTheCause: the pools that are too large for a limit are a consequence of the throttling they are
// seen with.
func TestThrottlingIsTheCause(t *testing.T) {
	rec, err := recording.Open("testdata/threads-vs-quota/firing.txtar")
	if err != nil {
		t.Fatal(err)
	}
	res := check.Run(rec, limitChecks(), check.Options{Causes: Causes()})
	if p := res.Principal(); p == nil || p.Check != cpuThrottledBurst.Name {
		t.Fatalf("the principal finding is %+v, want that of %s", p, cpuThrottledBurst.Name)
	}
	i := slices.IndexFunc(res.Findings, func(f check.Finding) bool { return f.Check == threadsVsQuota.Name })
	if i < 0 || res.Findings[i].ExplainedBy != res.Principal().ID() {
		t.Errorf("%s is not a consequence: %+v", threadsVsQuota.Name, res.Findings)
	}
}

func TestShellWord(t *testing.T) {
	wantEach(t, "check.Quote", check.Quote, map[string]string{
		"":                             "''",
		"/sys/fs/cgroup/a.slice/b@c-e": "/sys/fs/cgroup/a.slice/b@c-e",
		"/cpu,cpuacct/x":               "/cpu,cpuacct/x",
		"/a; rm -rf $HOME":             "'/a; rm -rf $HOME'",
		"/it's":                        `'/it'\''s'`,
		`/a\x2db`:                      `'/a\x2db'`,
		"200000 100000":                "'200000 100000'",
	})
}
