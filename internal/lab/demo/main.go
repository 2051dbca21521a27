// Command demo makes a program sick in two ways at once, in its own code and on its network. It lets perfdoctor find
// both faults in one diagnosis, fixes both and diagnoses again.
//
// It runs bin/perfdoctor (make build). It needs root, for its own network namespaces, and a JDK. Everything that it
// makes is gone afterwards. It exits with 0 if both faults were named, and were gone after the fix. It ignores what
// else the host suffers from meanwhile.
package main

import (
	"bytes"
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
	"strings"
	"syscall"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

const (
	program = "bin/perfdoctor"
	source  = "internal/lab/demo/Orders.java"

	stock = "10.91.0.2"
	port  = 9000
	// ordersPerSecond is more than one thread can look up by scanning all orders, and hardly any work without the
	// scan.
	ordersPerSecond = 200
	// lostSYN is N in "the path loses one SYN in N".
	lostSYN = 5
	// warmUp is for the JVM to start and to compile what is hot.
	warmUp = 4 * time.Second
	// afterTime is shorter than beforeTime: there is nothing left to see.
	beforeTime, afterTime = "10s", "5s"
	// maxTime bounds the server in case nothing else ends it.
	maxTime = time.Minute
)

// The checks whose findings name the faults.
var (
	ofPath = []string{"syn-sent-pileup", "syn-retransmits"}
	ofCode = []string{"hot-code"}
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
	dir, err := os.MkdirTemp("", "perfdoctor-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	javac := exec.CommandContext(ctx, "javac", "-d", dir, source)
	if out, err := javac.CombinedOutput(); err != nil {
		return fmt.Errorf("javac %s: %w: %s", source, err, out)
	}
	l, err := lab.New("demo")
	if err != nil {
		return err
	}
	return errors.Join(story(ctx, l, dir), l.Close())
}

// withoutRoot diagnoses this host, which may well be healthy; findings are no failure of the demo.
func withoutRoot(ctx context.Context) error {
	fmt.Println("The demo needs root: it makes a sick program in a network namespace of its own. Without root it " +
		"diagnoses this host.")
	code, err := perfdoctor(ctx, "diagnose")
	if err == nil && code != 0 && code != 3 && code != 4 {
		err = fmt.Errorf("%s diagnose ended with exit code %d", program, code)
	}
	return err
}

func story(ctx context.Context, l *lab.Lab, dir string) error {
	fmt.Printf("A shop in Java books %d orders a second at %s:%d, each on a connection of its own. They "+
		"take seconds.\nIs it the code, or the network?\n",
		ordersPerSecond, stock, port)
	before, found, err := look(ctx, l, dir, "sick", beforeTime)
	if err != nil {
		return err
	}
	path, code := named(found, ofPath), named(found, ofCode)
	if path == "" || code == "" {
		return fmt.Errorf("the findings are %q, and one of %q and one of %q should be among them", found, ofPath,
			ofCode)
	}
	fmt.Printf("\nIt is both, and one look named both: %s is the path, which loses one SYN in %d, and %s the code, "+
		"which\nlooks through a list of 400000 articles. The fix: a path that loses nothing, and a map.\n", path,
		lostSYN, code)
	after, left, err := look(ctx, l, dir, "fixed", afterTime)
	if err != nil {
		return err
	}
	if still := named(left, slices.Concat(ofPath, ofCode)); still != "" {
		return fmt.Errorf("%s is still found after the fix", still)
	}
	fmt.Printf("\nBoth findings are gone.\nbefore  %safter   %s", before, after)
	return nil
}

// named returns the first of the checks that is among the findings.
func named(found, checks []string) string {
	if i := slices.IndexFunc(checks, func(c string) bool { return slices.Contains(found, c) }); i >= 0 {
		return checks[i]
	}
	return ""
}

// look runs the shop, sick or fixed, in its own hosts and diagnoses it in front of the user. It returns what the shop
// says about its orders, and the checks that found something.
func look(ctx context.Context, l *lab.Lab, dir, state, duration string) (said string, found []string, err error) {
	shop, err := shopHost(l, state)
	if err != nil {
		return "", nil, err
	}
	// With frame pointers, the kernel's samples have the callers even if async-profiler is not in the binary.
	java := exec.CommandContext(ctx, "java", "-Xmx256m", "-XX:+PreserveFramePointer", "-cp", dir, "Orders",
		stock, strconv.Itoa(port), state, strconv.Itoa(ordersPerSecond))
	var out bytes.Buffer
	java.Stdout, java.Stderr = &out, os.Stderr
	process, err := shop.Start(java)
	if err != nil {
		return "", nil, err
	}
	if err := clock.Sleep(ctx, warmUp); err != nil {
		return "", nil, err
	}
	recording := filepath.Join(dir, state+".zip")
	args := []string{"diagnose", "--pid", strconv.Itoa(process.Pid), "--duration", duration, "--save", recording}
	fmt.Printf("\n$ %s %s\n\n", program, strings.Join(args, " "))
	if _, err := perfdoctor(ctx, args...); err != nil {
		return "", nil, err
	}
	_ = process.Stop() // the error is the signal that it ends by
	found, err = findings(ctx, recording, state)
	return out.String(), found, err
}

// shopHost returns the shop's host. It is joined to the stock's host by a path that loses SYNs in the sick state.
func shopHost(l *lab.Lab, state string) (*lab.Host, error) {
	shop, err := l.Host(state + "_shop")
	if err != nil {
		return nil, err
	}
	server, err := l.Host(state + "_stock")
	if err != nil {
		return nil, err
	}
	if _, _, err := l.Link(shop, server, "10.91.0.1/24", stock+"/24"); err != nil {
		return nil, err
	}
	if state == "sick" {
		if err := server.DropOneSYNIn(lostSYN, port); err != nil {
			return nil, err
		}
	}
	_, err = server.StartServer(fmt.Sprintf("%s:%d", stock, port), lab.ServeOptions{Duration: maxTime})
	return shop, err
}

// findings returns the checks that found something. FYI findings count only for the sick program: without
// async-profiler, the hot code is only FYI, because perfdoctor cannot tell that somebody waits for it.
func findings(ctx context.Context, recording, state string) (found []string, err error) {
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
		if f.Severity != "info" || state == "sick" {
			found = append(found, f.Check)
		}
	}
	return found, nil
}

// perfdoctor runs the program in front of the user. On Ctrl-C, the terminal also signals the program, which then
// prints what it has seen.
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
