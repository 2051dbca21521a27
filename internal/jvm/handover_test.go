package jvm

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// Attack 2: a listener at a JVM's socket need not be a JVM. Each ends in time, with a reason.
func TestFakeListeners(t *testing.T) {
	testenv.Need(t, testenv.Root)
	const patience = time.Second
	for _, test := range []struct {
		name   string
		answer func(net.Conn)
		owner  int
		want   string
	}{
		{"never answers", func(c net.Conn) { time.Sleep(2 * patience) }, 0, "did not answer in time"},
		{"answers without an end", func(c net.Conn) { pour(c, "0\nmore\n") }, 0, "longer than 65536 bytes"},
		{"never ends its line", func(c net.Conn) { pour(c, "0000000") }, 0, "longer than 65536 bytes"},
		{"closes at once", func(net.Conn) {}, 0, "no answer"},
		{
			"a number too large", func(c net.Conn) { pourOnce(c, strings.Repeat("9", 100)+"\n\x1b[2J") }, 0,
			"does not begin with a code",
		},
		{"belongs to another", func(c net.Conn) { pourOnce(c, "0\n") }, 12345, "not a socket of its own"},
	} {
		t.Run(test.name, func(t *testing.T) {
			vm := fakeListener(t, test.answer, test.owner)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			_, err := vm.ask(ctx, "load", "/x", "true", "")
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%v, want %q", err, test.want)
			}
			if took := time.Since(began); took > patience+5*time.Second {
				t.Errorf("ended after %v", took)
			}
		})
	}
}

// pour writes until the other side has enough.
func pour(c net.Conn, text string) {
	for {
		if _, err := c.Write([]byte(strings.Repeat(text, 1000))); err != nil {
			return
		}
	}
}

func pourOnce(c net.Conn, text string) { _, _ = c.Write([]byte(text)) } // a peer may have a reason not to read it

// fakeListener returns a process whose attach socket the test answers.
func fakeListener(t *testing.T, answer func(net.Conn), owner int) *VM {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	vm := hostile(t, root)
	path := filepath.Join(root, "tmp", ".java_pid"+strconv.Itoa(vm.NSPid))
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, owner, owner); err != nil {
		t.Fatal(errors.Join(err, l.Close()))
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return // nobody came
		}
		defer c.Close()
		// A request is some bytes. One read takes all of them.
		if _, err := c.Read(make([]byte, maxArgument)); err == nil {
			answer(c)
		}
	}()
	return vm
}
