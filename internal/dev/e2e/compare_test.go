package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// The units of work in the method main.tax of testdata/shop: 10 of 100 in all, and 50 of 140. Four servers and their
// load share the machine, so a recording has some 300 samples. They show a growth by 20 % of all CPU time; this one is
// 40 %. A regression of 5 % takes a minute (docs/decisions/0012).
const (
	cheapTax = 10
	dearTax  = 50
)

// comparisonJSON is the part of a comparison that the tests read (docs/report-schema.md).
type comparisonJSON struct {
	Verdict struct {
		Result  string   `json:"result"`
		Summary string   `json:"summary"`
		Worse   []string `json:"worse"`
	} `json:"verdict"`
	Numbers []numberJSON `json:"numbers"`
	Methods struct {
		Against string   `json:"against"`
		Samples [2]int64 `json:"samples"`
		Grown   []struct {
			Name  string  `json:"name"`
			Extra float64 `json:"extra"`
		} `json:"grown"`
	} `json:"methods"`
}

// numberJSON is one of its numbers.
type numberJSON struct {
	Name   string `json:"name"`
	Before struct {
		Mean float64 `json:"mean"`
	} `json:"before"`
}

func (c *comparisonJSON) number(t *testing.T, name string) numberJSON {
	t.Helper()
	i := slices.IndexFunc(c.Numbers, func(n numberJSON) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("there is no number %s among %d", name, len(c.Numbers))
	}
	return c.Numbers[i]
}

// shop builds testdata/shop.
func shop(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "shop")
	if out, err := exec.Command("go", "build", "-o", program, "./testdata/shop").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return program
}

// recordShops runs the program with each tax, all under load in networks of their own, and records them side by side.
// Any other load of the machine affects all of them.
func recordShops(t *testing.T, program string, taxes []int, to []string) {
	t.Helper()
	const window, apart = 8, time.Second // a trend is in the order of the times
	l := labtest.New(t)
	var records []*exec.Cmd
	for i, tax := range taxes {
		host := newHost(t, l, fmt.Sprint("web", i))
		server := exec.Command(program, "-tax", strconv.Itoa(tax))
		server.Env = append(os.Environ(), "GOMAXPROCS=1")
		p, err := host.Start(server)
		must(t, err)
		awaitPort(t, host, 8080)
		start(t, host, "wrk", "-t", "1", "-c", "8", "-d", "300", "http://127.0.0.1:8080/")
		records = append(records, exec.Command(perfdoctor(t), "diagnose", "--pid", strconv.Itoa(p.Pid), "--duration",
			fmt.Sprint(window, "s"), "--save", to[i]))
	}
	for _, r := range records {
		time.Sleep(apart)
		must(t, r.Start())
	}
	for _, r := range records {
		if _ = r.Wait(); r.ProcessState.ExitCode() != 0 && r.ProcessState.ExitCode() != 3 {
			t.Fatalf("%q: %v", r.Args, r.ProcessState)
		}
	}
}

// output runs the program and returns its output and exit code.
func output(t *testing.T, args ...string) (out []byte, code int) {
	t.Helper()
	cmd := exec.Command(perfdoctor(t), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if stderr.Len() > 0 {
		t.Logf("%v: %s", args, stderr.String())
	}
	return out, cmd.ProcessState.ExitCode()
}

func compared(t *testing.T, before, after string) (c comparisonJSON, code int) {
	t.Helper()
	out, code := output(t, "compare", before, after, "--fail-on", "regression", "-o", "json")
	must(t, json.Unmarshal(out, &c))
	return c, code
}

// TestCompare records a program twice as it is and twice with a more expensive method. The same program is the same.
// The more expensive one is worse and named; in the other direction it is better. A trend names the recording at which
// the change began.
func TestCompare(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("wrk"))
	program, dir := shop(t), t.TempDir()
	var names []string
	for i := range 4 {
		names = append(names, filepath.Join(dir, fmt.Sprintf("night-%d.zip", i)))
	}
	recordShops(t, program, []int{cheapTax, cheapTax, dearTax, dearTax}, names)
	if c, code := compared(t, names[0], names[1]); c.Verdict.Result != "same" || code != 0 {
		t.Errorf("two runs of one program: exit code %d, %s", code, c.Verdict.Summary)
	}
	c, code := compared(t, names[1], names[2])
	if c.Verdict.Result != "worse" || code != 3 || len(c.Methods.Grown) != 1 || c.Methods.Grown[0].Name != "main.tax" {
		t.Errorf("a dearer method: exit code %d, %s, %+v", code, c.Verdict.Summary, c.Methods)
	}
	if c, code := compared(t, names[3], names[0]); c.Verdict.Result != "better" || code != 0 {
		t.Errorf("a cheaper method: exit code %d, %s, %+v", code, c.Verdict.Summary, c.Methods)
	}
	text, code := output(t, "trend", dir, "--fail-on", "regression")
	if code != 3 || !strings.Contains(string(text), "from night-2.zip") || !strings.Contains(string(text),
		"main.tax grew") {
		t.Errorf("trend: exit code %d:\n%s", code, text)
	}
	curves, code := output(t, "trend", dir, "-o", "html")
	if code != 0 || !bytes.Contains(curves, []byte("from night-2.zip")) || !bytes.Contains(curves, []byte("<path d=")) {
		t.Errorf("the page of the trend: exit code %d, %d bytes", code, len(curves))
	}
	page, code := output(t, "compare", names[0], names[3], "-o", "html", "--folded", filepath.Join(dir, "folded"))
	if code != 0 || !bytes.Contains(page, []byte(`data-method="main.tax"`)) { // leads to the flame graph
		t.Errorf("the page: exit code %d, %d bytes", code, len(page))
	}
	folded, err := os.ReadFile(filepath.Join(dir, "folded"))
	must(t, err)
	if !slices.ContainsFunc(strings.Split(string(folded), "\n"),
		func(l string) bool { return strings.Contains(l, "main.tax_[n] ") }) {
		t.Errorf("the folded stacks do not end in main.tax:\n%.500s", folded)
	}
}

// A terminal keeps what is written while others read it.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *terminal) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestScreen: on a terminal a long report goes through PAGER, and --watch shows window after window until Ctrl-C.
func TestScreen(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Tool("script"))
	recording := filepath.Join(t.TempDir(), "rec.zip")
	_, _ = output(t, "diagnose", "--duration", "1s", "--save", recording) // whatever it finds
	onTerminal := func(command string) *exec.Cmd {
		cmd := exec.Command("script", "-qec", "stty rows 20 cols 100; "+command, "/dev/null")
		cmd.Env = append(os.Environ(), "TERM=xterm", "PAGER=sed s/^/paged:/", "PROGRAM="+perfdoctor(t),
			"RECORDING="+recording)
		return cmd
	}
	paged, _ := onTerminal(`"$PROGRAM" report "$RECORDING"`).CombinedOutput()
	if n := bytes.Count(paged, []byte("paged:")); n < 20 {
		t.Errorf("%d lines went through the pager:\n%s", n, paged)
	}
	piped, _ := onTerminal(`"$PROGRAM" report "$RECORDING" | cat`).CombinedOutput()
	if bytes.Contains(piped, []byte("paged:")) || len(piped) == 0 {
		t.Errorf("a pipe got a pager:\n%s", piped)
	}
	// High enough for the curves below a finding, which a busy host has.
	watch := onTerminal(`stty rows 60; "$PROGRAM" diagnose --watch --duration 1s --interval 500ms`)
	keys, err := watch.StdinPipe()
	must(t, err)
	screen := &terminal{}
	watch.Stdout, watch.Stderr = screen, screen
	watch.Dir = t.TempDir()
	must(t, watch.Start())
	t.Cleanup(func() { _ = watch.Process.Kill() }) // it has ended, but after an error
	for _, step := range []struct{ keys, shows string }{
		{"", "2 windows of"},
		{"s", "sorted by memory"},
		{"m", "marked"},
		{"w", "saved the last window as perfdoctor-"},
		{"", "verdicts"},
		{"", "s sort"},
		{"", "▲"},    // with the next window
		{"\x03", ""}, // Ctrl-C
	} {
		_, err = io.WriteString(keys, step.keys)
		must(t, err)
		eventually(t, step.shows, startTime, func() bool { return strings.Contains(screen.String(), step.shows) })
	}
	ended := make(chan error, 1)
	go func() { ended <- watch.Wait() }()
	select {
	case err := <-ended: // the exit code is that of the last verdict
		t.Logf("it ended: %v", err)
	case <-time.After(startTime):
		must(t, watch.Process.Kill())
		t.Fatal("it did not end with Ctrl-C")
	}
	if saved, err := filepath.Glob(filepath.Join(watch.Dir, "perfdoctor-*.zip")); err != nil || len(saved) != 1 {
		t.Errorf("saved were %v, %v", saved, err)
	}
}
