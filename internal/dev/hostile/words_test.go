package hostile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
)

// TestInterfaceInACommand is attack 11: an interface's name is quoted in a command to copy.
func TestInterfaceInACommand(t *testing.T) {
	content, err := os.ReadFile(checktest.Find(t, "nic-drops/firing")[0])
	if err != nil {
		t.Fatal(err)
	}
	named := strings.ReplaceAll(string(content), `"eth0"`, `"$(reboot)"`)
	o := perfdoctor(t, toRead, "diagnose", "--from", written(t, "attack.txtar", []byte(named)))
	text := inOneLine(o.stdout)
	if !strings.Contains(text, "ethtool -g '$(reboot)'") || strings.Contains(text, "ethtool -g $(reboot)") {
		t.Errorf("exit code %d, %s%s", o.code, o.stdout, o.stderr)
	}
}

// TestSecretsOfATarget is attack 12: options with secrets, and a thread's name with one, reach neither a recording nor
// a report.
func TestSecretsOfATarget(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	target := exec.Command("python3", "-c",
		"import ctypes,time\nctypes.CDLL(None).prctl(15,b'pw=hunter2',0,0,0)\ntime.sleep(60)",
		"--pw", secret, "-Dcreds="+secret, "--otp", secret, "--passcode="+secret, "--license", secret)
	if err := target.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := target.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := target.Wait(); err == nil {
			t.Error("the target ended by itself")
		}
	})
	time.Sleep(500 * time.Millisecond) // until it has its name
	saved := filepath.Join(t.TempDir(), "saved.zip")
	const window = 2 * time.Second
	o := perfdoctor(t, window, "diagnose", "--pid", strconv.Itoa(target.Process.Pid), "--duration", window.String(),
		"--save", saved, "-o", "json")
	files, err := exec.Command("unzip", "-p", saved).Output()
	if err != nil {
		t.Fatalf("unzip: %v; perfdoctor: %s", err, o.stderr)
	}
	for name, text := range map[string]string{"recording": string(files), "report": o.stdout, "log": o.stderr} {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("the %s has the secret: %q", name, text[max(0, i-60):min(len(text), i+20)])
		}
	}
}
