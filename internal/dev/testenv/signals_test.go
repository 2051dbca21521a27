package testenv

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// TestDefaultSignals runs a child of a process that ignores SIGHUP, as under nohup, without and with the call.
func TestDefaultSignals(t *testing.T) {
	if how := os.Getenv("PERFDOCTOR_SIGNALS_CHILD"); how != "" {
		if !signal.Ignored(syscall.SIGHUP) {
			t.Fatal("SIGHUP is not ignored here, so this test shows nothing")
		}
		if how == "call" {
			DefaultSignals()
		}
		out, _ := exec.Command("sh", "-c", "kill -HUP $$; echo survived").Output() // its end by a signal is an error
		_, _ = os.Stdout.WriteString("child said: " + string(out))
		return
	}
	for how, survives := range map[string]bool{"no": true, "call": false} {
		cmd := exec.Command("sh", "-c", `trap "" HUP; exec "$0" -test.run '^TestDefaultSignals$'`, os.Args[0])
		cmd.Env = append(os.Environ(), "PERFDOCTOR_SIGNALS_CHILD="+how)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := strings.Contains(string(out), "survived"); got != survives {
			t.Errorf("%s: the child of the child survived SIGHUP: %t: %s", how, got, out)
		}
	}
}
