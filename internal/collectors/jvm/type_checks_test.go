package jvm

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// checker asks objects for two interfaces in turn, or for one only.
const checker = `
public class Checker {
    interface A { } interface B { }
    static class X implements A, B { } static class Y implements A, B { } static class Z implements A, B { }
    static volatile int sink;
    static boolean isA(Object o) { return o instanceof A; }
    static boolean isB(Object o) { return o instanceof B; }
    static int both(Object[] all) { int n = 0; for (Object o : all) if (isA(o) && isB(o)) n++; return n; }
    static int one(Object[] all) { int n = 0; for (Object o : all) if (isA(o)) n++; return n; }
    public static void main(String[] args) throws Exception {
        boolean both = args[0].equals("both");
        Object[] all = new Object[512];
        for (int i = 0; i < all.length; i++) all[i] = i % 3 == 0 ? new X() : i % 3 == 1 ? new Y() : new Z();
        if (both) all[511] = "neither";
        Thread t = new Thread(() -> { while (true) sink = both ? both(all) : one(all); });
        t.setDaemon(true);
        t.start();
        Thread.sleep(1500); // until it is compiled
        System.out.println("ready");
        System.in.read();
    }
}
`

// startChecker runs it with the table of newer JVMs turned off, so that each JDK has the search.
func startChecker(t *testing.T, what string) int {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Root)
	if runtime.GOARCH != "amd64" {
		t.Skip("the search is only known for x86-64")
	}
	file := filepath.Join(t.TempDir(), "Checker.java")
	if err := os.WriteFile(file, []byte(checker), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("java", "-Xmx64m", "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockDiagnosticVMOptions",
		"-XX:-UseSecondarySupersTable", file, what)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	(&child{pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}).expect(t, "ready")
	return cmd.Process.Pid
}

func TestTypeChecks(t *testing.T) {
	for what, bounds := range map[string][2]float64{"both": {0.1, 1}, "one": {0, 0.02}} {
		t.Run(what, func(t *testing.T) {
			src, b := open(t, startChecker(t, what), 2), recording.NewBuilder()
			sample(t, src, b)
			for range 2 {
				time.Sleep(750 * time.Millisecond)
				sample(t, src, b)
			}
			rec := b.Done(recording.Meta{})
			n, all := map[string]float64{}, 0.0
			for _, s := range rec.Counter(metric.TypeCheckSamples) {
				n[s.Label("at")], _ = s.Increase()
				all += n[s.Label("at")]
			}
			t.Logf("%v", n)
			if all < 20 { // of 150: others may have the CPUs
				t.Fatalf("%v samples of a busy thread", all)
			}
			if share := (n["search"] + n["write"]) / all; share < bounds[0] || share > bounds[1] {
				t.Errorf("%.3f of the samples are in searches: %v", share, n)
			}
		})
	}
}
