package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
)

const (
	answerTime = 20 * time.Millisecond // time of the slow backend: a database query
	// warmUp is how long compilers and caches take. The doctor must not see that time.
	warmUp = 3 * time.Second
	// period is the period of a CPU limit. Container engines set 100 ms. Requests would then have to take longer than
	// 0.1 s, and be slow by that alone.
	period  = 20 * time.Millisecond
	startUp = 20 * time.Second // until a program listens
)

// A runner builds, starts, loads and diagnoses the programs.
type runner struct {
	doctor, source, built, keep string
	out                         io.Writer
	window                      time.Duration
	lab                         *lab.Lab
	backend                     net.Listener
	done                        map[string]bool // the languages already built
}

// said is what the doctor said.
type said struct {
	Verdict struct {
		Summary string `json:"summary"`
	} `json:"verdict"`
	Findings []json.RawMessage `json:"findings"`

	principal string   // the whole finding
	warned    []string // the checks that warn
	first     string   // the principal's check
}

func (s said) check() string { return s.first }

func (s said) silent() bool { return len(s.warned) == 0 }

func (s said) String() string {
	if s.silent() {
		return "silent"
	}
	return fmt.Sprintf("%s (%s)", strings.Join(s.warned, ", "), s.Verdict.Summary)
}

// serveSlowly starts the backend, which answers each line after a while.
func serveSlowly(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					if _, err := in.ReadString('\n'); err != nil {
						return
					}
					time.Sleep(answerTime)
					if _, err := c.Write([]byte("17\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l, nil
}

// ask is a client: a connection that sends requests and, once the program is warm, pauses between them. With only
// three requests a second, a JVM would compile for longer than warmUp.
func ask(ctx context.Context, address string, think time.Duration) {
	warm := time.Now().Add(warmUp)
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	for in := bufio.NewReader(c); ; {
		if _, err := c.Write([]byte("x\n")); err != nil {
			return
		}
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		pause := think
		if time.Now().Before(warm) {
			pause = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (r *runner) words(in []string) (out []string) {
	for _, w := range in {
		w = strings.ReplaceAll(w, "PROGRAMS", r.source)
		out = append(out, strings.ReplaceAll(w, "BUILT", r.built))
	}
	return out
}

func (r *runner) build(ctx context.Context, l language) error {
	if r.done == nil {
		r.done = map[string]bool{}
	}
	if r.done[l.name] || len(l.build) == 0 {
		return nil
	}
	if err := os.MkdirAll(r.built, 0o750); err != nil {
		return err
	}
	words := r.words(l.build)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, text)
	}
	r.done[l.name] = true
	return nil
}

// diagnose starts the program, in its own group if the load has a limit, sends it requests, and has it diagnosed.
func (r *runner) diagnose(ctx context.Context, c cell, mode string, load load) (said, error) {
	if err := r.build(ctx, c.language); err != nil {
		return said{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	address, err := freeAddress(ctx)
	if err != nil {
		return said{}, err
	}
	_, port, _ := net.SplitHostPort(address)
	words := slices.Concat([]string{"-c", `read go; exec "$@"`, "sh"}, r.words(c.language.run),
		[]string{c.fault.name, mode, port, r.backend.Addr().String()})
	cmd := exec.CommandContext(ctx, "sh", words...)
	cmd.Env = append(os.Environ(), "HOST_CPUS="+strconv.Itoa(runtime.NumCPU()))
	cmd.Stderr = os.Stderr
	if err := r.startIn(load, cmd); err != nil {
		return said{}, err
	}
	defer func() { stop(); _ = cmd.Wait() }()
	if err := listens(ctx, address); err != nil {
		return said{}, err
	}
	for range load.clients {
		go ask(ctx, address, load.think)
	}
	time.Sleep(warmUp)
	return r.doctorSays(ctx, cmd.Process.Pid, c, mode)
}

// startIn starts a shell that waits for a line, puts it into its group, and sends the line.
func (r *runner) startIn(load load, cmd *exec.Cmd) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if load.quota > 0 {
		group, err := r.lab.Cgroup("sized")
		if err == nil {
			err = errors.Join(group.SetQuota(period, load.quota), group.Add(cmd.Process.Pid))
		}
		if err != nil {
			return err
		}
	}
	_, err = in.Write([]byte("go\n"))
	return err
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func listens(ctx context.Context, address string) error {
	for began := time.Now(); time.Since(began) < startUp; time.Sleep(50 * time.Millisecond) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("nothing listens at %s after %s", address, startUp)
}

func (r *runner) doctorSays(ctx context.Context, pid int, c cell, mode string) (s said, err error) {
	args := []string{"diagnose", "--pid", strconv.Itoa(pid), "--duration", r.window.String(), "-o", "json"}
	if r.keep != "" {
		if err := os.MkdirAll(r.keep, 0o750); err != nil {
			return s, err
		}
		args = append(args, "--save", filepath.Join(r.keep, fmt.Sprintf("%s-%s-%s-%d.zip", c.fault.name,
			c.language.name, mode, pid)))
	}
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, r.doctor, args...)
	cmd.Stdout, cmd.Stderr = &text, os.Stderr
	runErr := cmd.Run()
	if err := json.Unmarshal(text.Bytes(), &s); err != nil {
		return s, fmt.Errorf("%s: %w", r.doctor, errors.Join(err, runErr))
	}
	for _, raw := range s.Findings {
		var f struct{ ID, Check, Severity string }
		if err := json.Unmarshal(raw, &f); err != nil {
			return s, err
		}
		if f.Check == "cpu-steal" || slices.Contains(c.fault.also, f.Check) { // the hypervisor's, or right about both
			continue
		}
		if f.Severity == "warning" || f.Severity == "critical" {
			s.warned = append(s.warned, f.Check)
			if s.first == "" { // the verdict, or the next one after what is right about both
				s.principal, s.first = string(raw), f.Check
			}
		}
	}
	return s, nil
}
