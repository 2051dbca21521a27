package php_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/php"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

const script = `<?php
class Shop {
    static function total(int $n): int {
        $sum = 0;
        for ($i = 0; $i < $n; $i++) {
            $sum = ($sum * 31 + $i) & 0xffffff;
        }
        return $sum;
    }
}
function rest($s) {
    usleep($s * 1000000);
}
while (true) {
    $argv[1] === 'total' ? Shop::total(1000000) : rest(100);
}
`

// start runs the script and returns its process.
func start(t *testing.T, what string) (pid int, file string) {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.Tool("php"))
	file = filepath.Join(t.TempDir(), "shop.php")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("php", file, what)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it runs until then
	return cmd.Process.Pid, file
}

// TestStack has a function that computes, with its class and line, and a PHP function that sleeps, with its callers.
func TestStack(t *testing.T) {
	for what, want := range map[string][]string{
		"total": {"Shop::total:6", "{main}:15"},
		"rest":  {"usleep:0", "rest:12", "{main}:15"},
	} {
		pid, file := start(t, what)
		deadline := time.Now().Add(10 * time.Second)
		var got []string
		for time.Now().Before(deadline) && strings.Join(got, " ") != strings.Join(want, " ") {
			time.Sleep(10 * time.Millisecond)
			p, err := php.Open("/proc/"+strconv.Itoa(pid), pid)
			if err != nil {
				continue // it starts
			}
			calls, err := p.Stack()
			if err != nil {
				continue
			}
			got = nil
			if v := p.Version(); !regexp.MustCompile(`^[78]\.[0-9]+\.[0-9]+$`).MatchString(v) {
				t.Errorf("its version is %q", v)
			}
			for _, c := range calls {
				got = append(got, c.Function+":"+strconv.Itoa(c.Line))
				if c.Line > 0 && c.File != file {
					t.Errorf("%s is in %q, want %q", c.Function, c.File, file)
				}
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: the stack is %q, want %q", what, got, want)
		}
	}
}

// TestNone: a process without PHP is told apart from one that cannot be read.
func TestNone(t *testing.T) {
	if _, err := php.Open("/proc/self", os.Getpid()); !errors.Is(err, php.ErrNone) {
		t.Errorf("this process: %v, want %v", err, php.ErrNone)
	}
}
