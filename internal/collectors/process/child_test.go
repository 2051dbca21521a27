package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childEnv makes the test binary a process to look at, instead of running tests. It holds the child's orders in words:
// "threads 3", "files 50", "touch 1000" (pages), "burn 1" (threads of pure CPU).
const childEnv = "PERFDOCTOR_TEST_CHILD"

// The child keeps its main goroutine on its main thread. So no order changes the name of the process.
func init() { //nolint:gochecknoinits // only here does a lock hold main on the main thread (runtime.LockOSThread)
	if os.Getenv(childEnv) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if orders := os.Getenv(childEnv); orders != "" {
		if err := beChild(strings.Fields(orders)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// beChild follows the orders when a line comes in, says so, and ends when its input does.
func beChild(orders []string) error {
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	for i := 0; i+1 < len(orders); i += 2 {
		n, err := strconv.Atoi(orders[i+1])
		if err != nil {
			return err
		}
		if err := follow(orders[i], n); err != nil {
			return err
		}
	}
	fmt.Println("done")
	_, _ = in.ReadString('\n')
	return nil
}

func follow(order string, n int) error {
	switch order {
	case "threads":
		return startThreads(n, "GC Thread#%d", func() { select {} })
	case "burn":
		return startThreads(n, "burner-%d", func() {
			for i := 0; ; i++ { // no call in it, so that it never leaves the CPU on its own
				sink = i
			}
		})
	case "files":
		for range n {
			if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
				return err
			}
		}
	case "touch":
		size := os.Getpagesize()
		// Without huge pages, because one fault would serve 512 pages.
		mem, err := unix.Mmap(-1, 0, n*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil {
			return err
		}
		for i := range n {
			mem[i*size] = 1
		}
	default:
		return fmt.Errorf("unknown order %q", order)
	}
	return nil
}

var sink int

// startThreads starts named OS threads and returns when all have their name.
func startThreads(n int, name string, work func()) error {
	named := make(chan error)
	for i := range n {
		go func() {
			runtime.LockOSThread()
			b := append([]byte(fmt.Sprintf(name, i)), 0)
			named <- unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
			work()
		}()
	}
	for range n {
		if err := <-named; err != nil {
			return err
		}
	}
	return nil
}

type child struct {
	t   testing.TB
	pid int
	in  *os.File
	out *bufio.Reader
}

// startChild starts a child that waits for its go.
func startChild(t testing.TB, orders string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+orders, "GOMAXPROCS=2")
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() {
		w.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := &child{t: t, pid: cmd.Process.Pid, in: w, out: bufio.NewReader(out)}
	c.expect("ready")
	return c
}

func (c *child) expect(word string) {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != word {
		c.t.Fatalf("child said %q, %v; want %q", line, err, word)
	}
}

// obey lets the child follow its orders and waits until it has.
func (c *child) obey() {
	c.t.Helper()
	fmt.Fprintln(c.in)
	c.expect("done")
}
