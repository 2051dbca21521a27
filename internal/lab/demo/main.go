// Command demo makes a client run out of local ports, lets perfdoctor diagnose it, cures it and measures the
// difference.
//
// It runs bin/perfdoctor (make build) and needs root, for network namespaces of its own; all of it is gone afterwards.
// It exits with 0 if the verdict was the fault that it had made, and that finding was gone after the cure. What else
// the host suffers from meanwhile is not the demo's business.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

const (
	program = "bin/perfdoctor"
	// fault is the check whose finding must be the verdict.
	fault      = "short-connection-ceiling"
	clientAddr = "10.91.0.1/24"
	serverAddr = "10.91.0.2:9000"
	// warmUp is enough for 1000 connections, after which the fault is complete.
	warmUp = 2 * time.Second
	// afterTime is a shorter look than the default of 10 s: there is nothing to see any more.
	afterTime = 5 * time.Second
	// maxTime bounds the loads when nothing else ends them.
	maxTime = time.Minute
)

func main() {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted: %w", err)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run returns when everything that it made is gone.
func run(ctx context.Context) error {
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%w: run `make demo` at the top of the repository", err)
	}
	if os.Geteuid() != 0 {
		return withoutRoot(ctx)
	}
	l, err := lab.New("demo")
	if err != nil {
		return err
	}
	return errors.Join(story(ctx, l), l.Close())
}

// withoutRoot diagnoses this host, which may well be healthy; findings are no failure of the demo.
func withoutRoot(ctx context.Context) error {
	fmt.Println("The demo needs root: it makes a sick client in a network namespace of its own. Without root it " +
		"diagnoses this host.")
	code, err := perfdoctor(ctx, "diagnose")
	if err == nil && code != 0 && code != 3 {
		err = fmt.Errorf("%s diagnose ended with exit code %d", program, code)
	}
	return err
}

func story(ctx context.Context, l *lab.Lab) error {
	sick, err := site(l, "sick")
	if err != nil {
		return err
	}
	fmt.Println("A client in a network namespace of its own makes short connections to 10.91.0.2:9000, one request " +
		"each, and closes")
	fmt.Println("them. It may use 1000 local ports (40000-40999). It began fast, and now hardly a request gets " +
		"through. Why?")
	client, err := sick.StartClient(serverAddr, lab.ClientOptions{
		Requests: 1, CloseFirst: true, Duration: maxTime,
	})
	if err != nil {
		return err
	}
	if err := clock.Sleep(ctx, warmUp); err != nil {
		return err
	}
	before := client.Stats()
	found, err := diagnose(ctx, client)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0] != fault {
		return fmt.Errorf("the findings are %q, and the first should be %q", found, fault)
	}
	after, err := client.Stop()
	if err != nil {
		return err
	}
	const noPort = "EADDRNOTAVAIL"
	failed := float64(after.Errors[noPort]-before.Errors[noPort]) / (after.Elapsed - before.Elapsed).Seconds()
	return cure(ctx, l, fmt.Sprintf("before  %8.0f requests/s, and %.0f connects/s that failed with %s",
		perSecond(before, after), failed, noPort))
}

// cure starts the same client again with the first cure of the report. Its namespace is fresh, because the ports of the
// sick one stay in TIME_WAIT for a minute.
func cure(ctx context.Context, l *lab.Lab, before string) error {
	cured, err := site(l, "cured")
	if err != nil {
		return err
	}
	fmt.Println("\nThe fix, in a fresh namespace with the same 1000 ports: the client keeps its connections open " +
		"(keep-alive).")
	client, err := cured.StartClient(serverAddr, lab.ClientOptions{KeepAlive: true, Duration: maxTime})
	if err != nil {
		return err
	}
	if err := clock.Sleep(ctx, warmUp); err != nil {
		return err
	}
	begin := client.Stats()
	left, err := diagnose(ctx, client, "--duration", afterTime.String())
	if err != nil {
		return err
	}
	if slices.Contains(left, fault) {
		return fmt.Errorf("%q is still found after its fix", fault)
	}
	end, err := client.Stop()
	if err != nil {
		return err
	}
	fmt.Printf("\n%s\nafter   %8.0f requests/s on one connection, and the finding is gone\n", before,
		perSecond(begin, end))
	return nil
}

// site is a client's host with 1000 local ports, joined to a host with a server. It returns the client's.
func site(l *lab.Lab, name string) (*lab.Host, error) {
	client, err := l.Host(name + "_client")
	if err != nil {
		return nil, err
	}
	server, err := l.Host(name + "_server")
	if err != nil {
		return nil, err
	}
	if _, _, err := l.Link(client, server, clientAddr, "10.91.0.2/24"); err != nil {
		return nil, err
	}
	if err := client.Sysctl("net.ipv4.ip_local_port_range", "40000 40999"); err != nil {
		return nil, err
	}
	_, err = server.StartServer(serverAddr, lab.ServeOptions{Duration: maxTime})
	return client, err
}

func perSecond(before, after lab.Stats) float64 {
	return float64(after.Units-before.Units) / (after.Elapsed - before.Elapsed).Seconds()
}

// diagnose diagnoses the client in front of the user, and gives the checks with a finding at warning or above, the
// verdict first.
func diagnose(ctx context.Context, client *lab.Child, flags ...string) (found []string, err error) {
	dir, err := os.MkdirTemp("", "perfdoctor-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	args := append([]string{"diagnose", "--pid", strconv.Itoa(client.Pid)}, flags...)
	fmt.Printf("\n$ %s", program)
	for _, arg := range args {
		fmt.Print(" ", arg)
	}
	fmt.Print("\n\n")
	recording := filepath.Join(dir, "demo.zip")
	if _, err := perfdoctor(ctx, append(args, "--save", recording)...); err != nil {
		return nil, err
	}
	return findings(ctx, recording)
}

func findings(ctx context.Context, recording string) (found []string, err error) {
	out, err := exec.CommandContext(ctx, program, "diagnose", "--from", recording, "-o", "json").Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
		return nil, fmt.Errorf("diagnose the recording: %w", err)
	}
	var report struct {
		Findings []struct{ Check, Severity string }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	for _, f := range report.Findings {
		if f.Severity != "info" {
			found = append(found, f.Check)
		}
	}
	return found, nil
}

// perfdoctor runs the program in front of the user. On Ctrl-C the terminal tells it too, and it prints what it has
// seen.
func perfdoctor(ctx context.Context, args ...string) (code int, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), errors.Join(err, ctx.Err())
}
