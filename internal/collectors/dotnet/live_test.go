package dotnet

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collectors/dotnet/dotnettest"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
)

// shop is a program that runs the same two methods all the time.
const shop = `
using System;
using System.Collections.Generic;
using System.Threading;

namespace Shop {
	class Cart {
		public static double Tax(int n) {
			double sum = 0;
			for (int i = 0; i < n; i++) sum += Math.Sqrt(i);
			return sum;
		}
		public static int Count(int n) {
			var all = new Dictionary<string, int>();
			for (int i = 0; i < n; i++) all["k" + i] = i;
			return all.Count;
		}
	}
	class Program {
		static void Main() {
			var end = new Thread(() => { Console.In.ReadToEnd(); Environment.Exit(0); });
			end.IsBackground = true;
			end.Start();
			for (bool first = true; ; first = false) {
				Cart.Tax(1000000);
				Cart.Count(1000);
				if (first) Console.WriteLine("ready");
			}
		}
	}
}
`

// startShop starts the program, with the environment given.
func startShop(t *testing.T, environment ...string) *testenv.Child {
	return dotnettest.Start(t, shop, environment...)
}

func procOf(pid int) string { return "/proc/" + strconv.Itoa(pid) }

func has(m *perfmap.Map, name string) bool {
	return slices.ContainsFunc(m.Entries, func(e perfmap.Entry) bool { return e.Name == name && e.Size > 0 })
}

// sockets counts the sockets of a process.
func sockets(t *testing.T, pid int) int {
	t.Helper()
	dir := procOf(pid) + "/fd/"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range list {
		if to, err := os.Readlink(dir + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// A program tells the names of its own methods and of the framework's, wherever its socket is. It keeps nothing of the
// session.
func TestMap(t *testing.T) {
	for name, environment := range map[string][]string{"tmp": nil, "TMPDIR": {"TMPDIR=" + t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			pid := startShop(t, environment...).PID
			before := sockets(t, pid)
			for range 8 {
				m, err := Map(t.Context(), procOf(pid))
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range []string{"Shop.Cart.Tax", "Shop.Cart.Count", "Shop.Program.Main"} {
					if !has(m, want) {
						t.Errorf("%s is not among %d methods", want, len(m.Entries))
					}
				}
				if !slices.ContainsFunc(m.Entries, func(e perfmap.Entry) bool {
					return strings.HasPrefix(e.Name, "System.Collections.Generic.Dictionary`2")
				}) {
					t.Error("no method of the framework")
				}
			}
			after := sockets(t, pid)
			for range 50 { // the last connection is closed a moment later
				if after <= before {
					return
				}
				time.Sleep(20 * time.Millisecond)
				after = sockets(t, pid)
			}
			t.Errorf("%d sockets, before %d", after, before)
		})
	}
}

// A program that is stopped is not asked for a session; one that stops later, when it should answer, has the connection
// until it does: .NET Core 3.1 would crash without. Either goes on.
func TestMapOfStopped(t *testing.T) {
	begin := func(ctx context.Context, dir string) error {
		p, err := findPort(dir)
		if err != nil {
			return err
		}
		defer p.Close()
		_, _, err = p.begin(ctx)
		return err
	}
	ask := func(ctx context.Context, dir string) error { _, err := Map(ctx, dir); return err }
	for name, do := range map[string]func(context.Context, string) error{"ask": ask, "begin": begin} {
		t.Run(name, func(t *testing.T) {
			pid := startShop(t).PID
			signal := func(s syscall.Signal) {
				if err := syscall.Kill(pid, s); err != nil {
					t.Fatal(err)
				}
			}
			signal(syscall.SIGSTOP)
			time.Sleep(50 * time.Millisecond)                            // its threads stop one after the other
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // else it does not end
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := do(ctx, procOf(pid)); err == nil || errors.Is(err, ErrNone) {
				t.Errorf("a stopped program: %v, want an error that it did not answer", err)
			}
			signal(syscall.SIGCONT)
			if m, err := Map(t.Context(), procOf(pid)); err != nil || !has(m, "Shop.Cart.Tax") {
				t.Errorf("after it went on: %v", err)
			}
		})
	}
}

// An answer serves for a while, and processes that take their time do not take it all.
func TestNames(t *testing.T) {
	pid := startShop(t).PID
	n := &Names{}
	first, err := n.Map(t.Context(), procOf(pid))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := n.Map(t.Context(), procOf(pid)); err != nil || again != first {
		t.Errorf("asked again: another answer, or %v", err)
	}
	n.spent = patienceForAll + time.Second
	if _, err := n.Map(t.Context(), procOf(os.Getpid())); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("when others took the time: %v, want an error that says so", err)
	}
	if _, err := (*Names)(nil).Map(t.Context(), procOf(pid)); !errors.Is(err, ErrNone) {
		t.Errorf("of no Names: %v, want ErrNone", err)
	}
}

// Other programs have no port, nor has one of .NET that was told so.
func TestNoPort(t *testing.T) {
	if _, err := Map(t.Context(), procOf(os.Getpid())); !errors.Is(err, ErrNone) {
		t.Errorf("of this test: %v, want ErrNone", err)
	}
	pid := startShop(t, "COMPlus_EnableDiagnostics=0").PID
	if _, err := Map(t.Context(), procOf(pid)); !errors.Is(err, ErrNone) {
		t.Errorf("without a port: %v, want ErrNone", err)
	}
}
