package hostile_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
)

const (
	jvmUser  = "65534" // runs the JVM
	stranger = "12345" // attacks it
)

// openDirectories gives a program directories of its own with mode MODE, such as 0777 that an emptyDir of Kubernetes
// has, and runs it as another user. / is not a directory in which that user can have a file. Other tests need the CPUs,
// too.
const openDirectories = `for dir in /tmp /dev/shm /var/tmp; do mount -t tmpfs -o mode=$MODE tmpfs $dir; done; cd /
exec nice -n 10 setpriv --reuid ` + jvmUser + ` --regid ` + jvmUser + ` --clear-groups -- "$@"`

// swapping renames a file of its own over each of perfdoctor's libraries that it sees, and leaves a mark.
const swapping = `swap() { for f in /tmp/.perfdoctor-*.so /dev/shm/.perfdoctor-*.so /var/tmp/.perfdoctor-*.so; do
	[ -e "$f" ] && [ ! -O "$f" ] && echo evil > /tmp/evil && mv -f /tmp/evil "$f" && echo "$f"
done; }
echo ready
while :; do swap; done`

// Attack 2: a user who can rename files in the JVM's /tmp swaps the library before the JVM loads it. No library may be
// put there.
func TestLibraryIsNotSwapped(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root)
	pid := startOpenJVM(t, "0777")
	attacker := exec.Command("nsenter", "--target", pid, "--mount", "setpriv", "--reuid", stranger, "--regid", stranger,
		"--clear-groups",
		"sh", "-c", swapping)
	out, err := attacker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := attacker.Start(); err != nil {
		t.Fatal(err)
	}
	marks := bufio.NewReader(out)
	if line, err := marks.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the attacker says %q: %v", line, err)
	}
	// The attack works: a file by such a name that belongs to the JVM's user is swapped.
	bait := filepath.Join(tmpOf(pid), ".perfdoctor-bait.so")
	if err := writeForJVM(bait); err != nil {
		t.Fatal(err)
	}
	if line, err := marks.ReadString('\n'); line != "/tmp/.perfdoctor-bait.so\n" {
		t.Fatalf("the attacker says %q: %v", line, err)
	}

	const window = 2 * time.Second
	o := perfdoctor(t, window, "diagnose", "--pid", pid, "--duration", "2s", "--interval", "1s", "-v")
	if err := attacker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for line, err := marks.ReadString('\n'); err == nil; line, err = marks.ReadString('\n') {
		t.Errorf("swapped before the JVM loaded it: %s", line)
	}
	_ = attacker.Wait() // killed
	if !strings.Contains(o.stdout, "which is not sticky") {
		t.Errorf("the report does not say why there is no profile:\n%s%s", o.stdout, o.stderr)
	}
}

// Attack 2: root, or the JVM's own user, can swap the library in any directory. The swap is detected after the load,
// and is critical.
func TestSwapIsFound(t *testing.T) {
	testenv.Need(t, testenv.Root)
	pid := startOpenJVM(t, "1777")
	content, err := library.Bundled()
	if err != nil {
		t.Fatal(err)
	}
	done, end := make(chan error, 1), make(chan struct{})
	go func() { done <- swapFirst(tmpOf(pid), content, end) }()

	const window = 2 * time.Second
	o := perfdoctor(t, window, "diagnose", "--pid", pid, "--duration", "2s", "--interval", "1s")
	close(end)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(o.stdout, "CRITICAL") || !strings.Contains(o.stdout, "swapped-library") {
		t.Errorf("the report does not tell of the swap:\n%s%s", o.stdout, o.stderr)
	}
	if strings.Contains(o.stdout, "JVM ended") {
		t.Errorf("the report says that the JVM ended:\n%s", o.stdout)
	}
	// The next run detects it too, if it uses the one that is mapped, and leaves nothing.
	perfdoctor(t, window, "diagnose", "--pid", pid, "--duration", "2s", "--interval", "1s")
	if left, err := filepath.Glob(filepath.Join(tmpOf(pid), ".perfdoctor-*")); err != nil || len(left) > 0 {
		t.Errorf("left in the JVM's /tmp: %v, %v", left, err)
	}
}

// swapFirst renames a library of its own over the first one that appears in dir.
func swapFirst(dir string, content []byte, end chan struct{}) error {
	own := filepath.Join(dir, "own")
	if err := os.WriteFile(own, content, 0o755); err != nil {
		return err
	}
	if err := os.Chown(own, 65534, 65534); err != nil {
		return err
	}
	for {
		select {
		case <-end:
			return errors.New("no library appeared")
		default:
		}
		found, err := filepath.Glob(filepath.Join(dir, ".perfdoctor-*.so"))
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return os.Rename(own, found[0])
		}
	}
}

// writeForJVM makes a file of the JVM's user.
func writeForJVM(path string) error {
	if err := os.WriteFile(path, []byte("good\n"), 0o600); err != nil {
		return err
	}
	return os.Chown(path, 65534, 65534)
}

// tmpOf is the /tmp of a process.
func tmpOf(pid string) string { return filepath.Join("/proc", pid, "root", "tmp") }

// startOpenJVM starts a JVM in openDirectories and returns its pid.
func startOpenJVM(t *testing.T, mode string) string {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"))
	classes, err := busyClasses()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", openDirectories, "sh",
		"java", "-Xmx128m", "-cp", classes, "Busy", "1", "2")
	cmd.Env = append(os.Environ(), "MODE="+mode)
	child := testenv.StartChild(t, cmd)
	child.Ready(t)
	return fmt.Sprint(child.PID)
}
