package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// startTime is how long a crowd may take to gather on a machine with other work.
const startTime = 2 * time.Minute

// sockets holds connections with both ends in the host, so that n counts sockets. The process at one end is the
// target of the tools.
type sockets struct {
	host    *lab.Host
	n, pid  int
	servers int
}

// grow makes connections until there are the given number of sockets in all.
func (s *sockets) grow(to int) error {
	const (
		perServer = 12_500 // connections: fewer than the 20,000 files that a program may have open here
		lifetime  = 10 * time.Minute
	)
	if s.servers == 0 {
		if err := s.host.Sysctl("net.ipv4.ip_local_port_range", "10000 65000"); err != nil {
			return err
		}
	}
	for s.n < to {
		batch := min((to-s.n+1)/2, perServer)
		address := fmt.Sprintf("127.0.0.1:%d", 700+s.servers)
		server, err := s.host.StartServer(address, lab.ServeOptions{HoldOpen: true, Duration: lifetime})
		if err != nil {
			return err
		}
		client, err := s.host.StartClient(address, lab.ClientOptions{
			Count: batch, Concurrency: 8, HoldOpen: true, Duration: lifetime,
		})
		if err != nil {
			return err
		}
		full := func() bool { return client.Stats().Conns >= uint64(batch) }
		if err := eventually(full, "%d connections", batch); err != nil {
			return err
		}
		s.servers, s.n, s.pid = s.servers+1, s.n+2*batch, server.LoadPid()
	}
	return nil
}

func eventually(reached func() bool, what string, args ...any) error {
	for end := time.Now().Add(startTime); !reached(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("not there after %v: %s", startTime, fmt.Sprintf(what, args...))
		}
	}
	return nil
}

// started starts a command in the host and waits until it prints "ready". The command ends with the lab, or by the
// returned process.
func started(h *lab.Host, argv ...string) (*lab.Process, error) {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // the lab ends it
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cmd.Stdout = w
	p, err := h.Start(cmd)
	if err = errors.Join(err, w.Close(), r.SetReadDeadline(time.Now().Add(startTime))); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "ready\n" {
		return nil, fmt.Errorf("%s says %q: %w", argv[0], line, err)
	}
	return p, nil
}

// sleepers starts n sleeping processes from one shell. They end with the shell, because they are in its process
// group.
func sleepers(h *lab.Host, n int) (*lab.Process, error) {
	const script = `i=0; while [ $i -lt "$0" ]; do sleep 3600 & i=$((i + 1)); done; echo ready; exec sleep 3600 >&-`
	return started(h, "sh", "-c", script, strconv.Itoa(n))
}

// groups are control groups, each with a quota and a process.
type groups struct {
	lab  *lab.Lab
	host *lab.Host
	n    int
}

func (g *groups) grow(to int) error {
	shell, err := sleepers(g.host, to-g.n)
	if err != nil {
		return err
	}
	pids, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell.Pid, shell.Pid))
	if err != nil {
		return err
	}
	for _, word := range strings.Fields(string(pids)) {
		c, err := g.lab.Cgroup("crowd", fmt.Sprintf("pod%d", g.n))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(word)
		if err := errors.Join(err, c.SetQuota(100*time.Millisecond, 50*time.Millisecond), c.Add(pid)); err != nil {
			return err
		}
		g.n++
	}
	if g.n != to {
		return fmt.Errorf("%d groups have a process, %d are wanted", g.n, to)
	}
	return nil
}

// translate adds n address translation rules to the host. No packet matches them (240.0.0.0/4 belongs to nobody).
func translate(ctx context.Context, h *lab.Host, n int) error {
	const batch = 10_000 // nft takes 30 MB for this many rules
	text := bytes.NewBufferString("flush ruleset\nadd table ip peers\n" +
		"add chain ip peers out { type nat hook postrouting priority srcnat; }\n")
	for i := range n {
		fmt.Fprintf(text, "add rule ip peers out ip saddr 240.%d.%d.%d masquerade\n", i>>16, i>>8&255, i&255)
		if (i+1)%batch != 0 && i+1 < n {
			continue
		}
		cmd := exec.CommandContext(ctx, "nft", "-f", "-")
		cmd.Stdin = text
		if out, err := outputIn(h, cmd); err != nil {
			return fmt.Errorf("nft: %w: %.300s", err, out)
		}
		text = &bytes.Buffer{}
	}
	return nil
}

func outputIn(h *lab.Host, cmd *exec.Cmd) (out []byte, err error) {
	err = inHost(h, func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	return out, err
}

// A busyJVM keeps all CPUs busy and reports the work that it has done (testdata/java/Busy.java).
type busyJVM struct {
	pid int
	in  *os.File
	out *bufio.Reader
}

func startJVM(ctx context.Context, h *lab.Host, dir string) (*busyJVM, error) {
	const source = "testdata/java/Busy.java"
	if out, err := exec.CommandContext(ctx, "javac", "-d", dir, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac %s: %w: %.300s", source, err, out)
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("java", "-Xmx256m", "-cp", dir, "Busy", strconv.Itoa(runtime.NumCPU()), "20") //nolint:noctx // the lab ends it
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	p, err := h.Start(cmd)
	if err = errors.Join(err, theirIn.Close(), theirOut.Close()); err != nil {
		return nil, err
	}
	j := &busyJVM{pid: p.Pid, in: in, out: bufio.NewReader(out)}
	line, err := j.out.ReadString('\n')
	if line != "ready\n" {
		return nil, fmt.Errorf("the JVM says %q: %w", line, err)
	}
	return j, nil
}

// done returns the work that the JVM has done, and the CPU seconds that it used.
func (j *busyJVM) done() (work, cpu float64, err error) {
	if _, err = j.in.WriteString("?\n"); err == nil {
		var line string
		line, err = j.out.ReadString('\n')
		_, bad := fmt.Sscan(line, &cpu, &work) // the JVM's clock precedes the work; it runs whoever has the CPUs
		err = errors.Join(err, bad)
	}
	used, bad := clockOf(j.pid)
	return work, used.Seconds(), errors.Join(err, bad)
}

// speed returns the work per CPU second of the JVM and do together. do returns its own CPU seconds.
func (j *busyJVM) speed(do func() (cpu float64, err error)) (float64, error) {
	w0, c0, err := j.done()
	if err != nil {
		return 0, err
	}
	others, err := do()
	if err != nil {
		return 0, err
	}
	w1, c1, err := j.done()
	return (w1 - w0) / (c1 - c0 + others), err
}
