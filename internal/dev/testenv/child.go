package testenv

import (
	"bufio"
	"io"
	"os/exec"
	"testing"
)

// A Child is a program that a test talks to through its standard input and output.
type Child struct {
	PID int
	In  io.WriteCloser
	Out *bufio.Reader
}

// StartChild starts a command that ends when its input ends. The input is closed when the test is over.
func StartChild(t testing.TB, cmd *exec.Cmd) *Child {
	t.Helper()
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
	t.Cleanup(func() {
		_ = in.Close() // the test may have closed it
		_ = cmd.Wait() // the exit status is not tested
	})
	return &Child{PID: cmd.Process.Pid, In: in, Out: bufio.NewReader(out)}
}

// Ready waits until the program prints "ready" on its own line.
func (c *Child) Ready(t testing.TB) {
	t.Helper()
	if line, err := c.Out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the program said %q: %v", line, err)
	}
}
