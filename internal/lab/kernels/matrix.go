package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm"
)

// A place is a row and a column.
type place struct{ feature, kernel string }

// matrix is the table while it is filled.
type matrix struct {
	mu       sync.Mutex // for cells, while jobs run
	floors   map[string]collect.Floor
	features []feature
	cells    map[place]cell
	releases map[kernel]string // uname -r
}

// A batch is a set of features whose tests run in one process, in one guest.
type batch struct {
	pkg, env string
	clock    time.Duration
}

// A job is one batch on one kernel.
type job struct {
	on    *machine
	batch batch
	list  []feature
}

func (j job) place(f feature) place { return place{f.name, j.on.kernel.name} }

// fill runs all features on all kernels: first on this machine, alone, because anything that runs beside would be
// measured too, then in several guests at a time. Then it repeats what failed. An error is a failure of the matrix
// itself; a failed test is in its cell.
func (m *matrix) fill(ctx context.Context, columns []kernel, o options) error {
	var here, guests []job
	for _, k := range columns {
		on, err := open(ctx, k, o)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", k.name, err)
		}
		m.releases[k] = on.release
		jobs := m.jobs(on)
		for _, j := range jobs {
			if err := on.compileAll(ctx, j.batch.pkg); err != nil {
				return err
			}
		}
		switch {
		case k.release == "":
			here = append(here, jobs...)
		case on.arch() != runtime.GOARCH: // the slowest must not start last
			guests = slices.Concat(jobs, guests)
		default:
			guests = append(guests, jobs...)
		}
	}
	if err := errors.Join(m.runJobs(ctx, here, 1), m.runJobs(ctx, guests, max(1, o.guests))); err != nil {
		return err
	}
	return m.again(ctx, slices.Concat(here, guests))
}

// maxAgain is how many cells may fail because of the machine: guests are emulated, several at a time, on CPUs that
// others use, too. More failures are a fault.
const maxAgain = 5

// again repeats the failed features alone: a fault fails each time. The cell of a feature that then holds says so.
func (m *matrix) again(ctx context.Context, jobs []job) error {
	if m.failed() > maxAgain {
		return nil
	}
	first := maps.Clone(m.cells)
	var retries []job
	for _, j := range jobs {
		j.list = slices.DeleteFunc(slices.Clone(j.list),
			func(f feature) bool { return first[j.place(f)].status != failed })
		if len(j.list) > 0 {
			retries = append(retries, j)
		}
	}
	err := m.runJobs(ctx, retries, 1)
	for _, j := range retries {
		for _, f := range j.list {
			m.cells[j.place(f)] = m.cells[j.place(f)].after(first[j.place(f)])
		}
	}
	return err
}

// jobs returns the batches of one kernel. It fills the cells of features that the kernel cannot have.
func (m *matrix) jobs(on *machine) []job {
	var jobs []job
	for _, f := range m.features {
		if !f.on(on.kernel) {
			m.cells[place{f.name, on.kernel.name}] = cell{notThere, f.because}
			continue
		}
		b := batch{f.pkg, strings.Join(f.env, "\n"), f.clock}
		i := slices.IndexFunc(jobs, func(j job) bool { return j.batch == b })
		if i < 0 {
			i, jobs = len(jobs), append(jobs, job{on: on, batch: b})
		}
		jobs[i].list = append(jobs[i].list, f)
	}
	return jobs
}

func (m *matrix) runJobs(ctx context.Context, jobs []job, atOnce int) error {
	var running sync.WaitGroup
	errs := make([]error, len(jobs))
	slots := make(chan struct{}, atOnce)
	for i, j := range jobs {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if err := m.runJob(ctx, j); err != nil {
				errs[i] = fmt.Errorf("tests of %s on %s: %w", j.batch.pkg, j.on.kernel.name, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (m *matrix) runJob(ctx context.Context, j job) error {
	var tests []string
	for _, f := range j.list {
		tests = append(tests, f.tests...)
	}
	slices.Sort(tests)
	began := time.Now()
	outcomes, broken, err := j.on.run(ctx, j.batch, slices.Compact(tests))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "kernels: %s on %s: %.0f s\n", j.batch.pkg, j.on.kernel.name, time.Since(began).Seconds())
	for _, f := range j.list {
		old, err := m.old(f, j.on.release)
		if err != nil {
			return err
		}
		c := judge(f.tests, outcomes, old)
		if c.status == failed && broken != nil {
			c.why += "\n" + broken.Error()
		}
		m.mu.Lock()
		m.cells[j.place(f)] = c
		m.mu.Unlock()
	}
	return nil
}

// old reports whether a release is older than the floor of a feature.
func (m *matrix) old(f feature, release string) (bool, error) {
	floor := f.floor(m.floors)
	if floor.Release == "" {
		return false, nil
	}
	return host.ReleaseBefore(release, floor.Release)
}

func (m *matrix) failed() (n int) {
	for _, c := range m.cells {
		if c.status == failed {
			n++
		}
	}
	return n
}

// machine is this machine, or guests of one kernel.
type machine struct {
	kernel  kernel
	release string
	image   vm.Kernel
	dir     string
	verbose bool
}

func open(ctx context.Context, k kernel, o options) (*machine, error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	m := &machine{kernel: k, dir: dir, verbose: o.verbose}
	if k.release == "" {
		m.release, err = host.Local().KernelRelease()
		return m, err
	}
	if m.image, err = vm.FetchKernel(ctx, k.release, k.arch); err != nil {
		return nil, err
	}
	_, m.release, _ = strings.Cut(filepath.Base(m.image.Image), "-")
	return m, nil
}

func (m *machine) arch() string {
	if m.kernel.arch == "" {
		return runtime.GOARCH
	}
	return m.kernel.arch
}

// testTime bounds the tests of one package on one kernel. They take half a minute on this machine and two minutes in
// a guest, and up to six times that when other programs use the CPUs, too. The bound is for a guest that hangs.
const testTime = 15 * time.Minute

// run returns the outcomes of the tests. broken says what else went wrong, such as a guest that stopped.
func (m *machine) run(ctx context.Context, b batch, tests []string) (all map[string]*outcome, broken, err error) {
	args := []string{
		"-test.v=test2json", "-test.timeout", testTime.String(), "-test.run",
		"^(" + strings.Join(tests, "|") + ")$",
	}
	env := []string{"PERFDOCTOR_REQUIRE=root,bpf"}
	if b.env != "" {
		env = append(env, strings.Split(b.env, "\n")...)
	}
	ctx, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	var printed []byte
	if m.kernel.release == "" {
		printed, broken = m.here(ctx, b, args, env)
	} else if printed, broken, err = m.inGuest(ctx, b, args, env); err != nil {
		return nil, nil, err
	}
	if m.verbose {
		_, _ = os.Stderr.Write(printed)
	}
	events, err := test2json(ctx, printed)
	if err != nil {
		return nil, broken, err
	}
	all, err = parseEvents(events)
	return all, broken, err
}

func (m *machine) here(ctx context.Context, b batch, args, env []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, m.tests(b.pkg), args...)
	cmd.Dir, cmd.Env = filepath.Join("internal", b.pkg), append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for children of a killed test
	err := cmd.Run()
	return out.Bytes(), err
}

// inGuest boots one guest for the tests.
func (m *machine) inGuest(ctx context.Context, b batch, args, env []string) (printed []byte, broken, err error) {
	work := "/src/" + b.pkg
	o := vm.Options{
		Kernel: m.image, Binary: m.doctor(), Command: "/bin/tests", Args: args, Env: env, Dir: work,
		Timeout: testTime, InstructionTime: b.clock,
		// Package testenv checks its rights by running true in a namespace. Any program that does nothing will do.
		Files: map[string]string{"/bin/tests": m.tests(b.pkg), "/bin/true": m.doctor()},
	}
	data := filepath.Join("internal", b.pkg, "testdata")
	switch _, err := os.Stat(data); {
	case err == nil:
		o.Files[work+"/testdata"] = data
	case errors.Is(err, os.ErrNotExist):
		o.Files[work+"/go.mod"] = "go.mod" // makes the folder exist
	default:
		return nil, nil, err
	}
	r, err := vm.Run(ctx, o)
	printed = slices.Concat(r.Stderr, r.Stdout)
	switch {
	case err != nil && r.Release == "":
		return printed, nil, err // there are no outcomes
	case err != nil:
		return printed, err, nil
	case r.ExitCode != 0:
		return printed, fmt.Errorf("exit status %d\n%s", r.ExitCode, r.Stderr), nil
	}
	return printed, nil, nil
}

// tests and doctor return programs for the kernel's architecture: the tests of a package, and perfdoctor, which is a
// guest's init.
func (m *machine) tests(pkg string) string {
	return filepath.Join(m.dir, m.arch(), strings.ReplaceAll(pkg, "/", "-")+".test")
}

func (m *machine) doctor() string { return filepath.Join(m.dir, m.arch(), "perfdoctor") }

func (m *machine) compileAll(ctx context.Context, pkg string) error {
	if err := m.compile(ctx, "build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", m.doctor(),
		"./cmd/perfdoctor"); err != nil {
		return err
	}
	return m.compile(ctx, "test", "-c", "-trimpath", "-o", m.tests(pkg), "./internal/"+pkg)
}

// compile builds a static program for the kernel's architecture.
func (m *machine) compile(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+m.arch())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

func test2json(ctx context.Context, printed []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json")
	cmd.Stdin = bytes.NewReader(printed)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go tool test2json: %w", err)
	}
	return out, nil
}
