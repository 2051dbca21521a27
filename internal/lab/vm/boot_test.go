package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// debian returns a kernel of this machine's architecture, or arm64's, whose guests have a PMU.
func debian(t *testing.T, release, arch string) Kernel {
	t.Helper()
	emulator := map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}[arch]
	testenv.Need(t, testenv.Tool(emulator))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	k, err := FetchKernel(ctx, release, arch)
	if err != nil {
		t.Skipf("no kernel to boot: %v", err)
	}
	return k
}

// build compiles a package, or with test its tests, for the guest.
func build(t *testing.T, arch, pkg string, test bool) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	args := []string{"build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", program, pkg}
	if test {
		args = []string{"test", "-c", "-o", program, pkg}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return program
}

func run(t *testing.T, o Options) Result {
	t.Helper()
	start := time.Now()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\nstdout: %s\nstderr: %s", err, r.Stdout, r.Stderr)
	}
	t.Logf("%s on %s: boot %.1f s, try %d, %.1f s in all", r.Release, r.Accelerator, r.Boot.Seconds(), r.BootTries,
		time.Since(start).Seconds())
	if len(r.Notes) > 0 {
		t.Errorf("the guest goes without %q", r.Notes)
	}
	return r
}

// A diagnosis is the part of the JSON report that these tests look at.
type diagnosis struct {
	Host     struct{ Kernel string }
	Findings []struct {
		Check   string
		Role    string
		Subject struct{ Kind, ID string }
		Summary string
	}
}

func parseDiagnosis(t *testing.T, r Result) diagnosis {
	t.Helper()
	var d diagnosis
	if err := json.Unmarshal(r.Stdout, &d); err != nil {
		t.Fatalf("report: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
	return d
}

// TestDebianKernels boots each kernel once to see what perfdoctor can do there and what it says of a process, and the
// newest once more for the lab's tests. Each runs alone: an emulated CPU that shares the host's loses a part of it at a
// time.
func TestDebianKernels(t *testing.T) {
	testenv.Need(t, testenv.Tool("qemu-system-x86_64"))
	doctor := build(t, "amd64", "../../../cmd/perfdoctor", false)
	patient := build(t, "amd64", "./testdata/patient", false)
	labTests := build(t, "amd64", "../../lab", true)
	for _, release := range []string{"5.10", "6.1", "6.12"} {
		o := Options{
			Kernel: debian(t, release, "amd64"), Binary: doctor, Files: map[string]string{"/bin/patient": patient},
			Emulated: true,
		}
		t.Run(release, func(t *testing.T) { testQuota(t, o, release) })
		if release == "6.12" { // that of the scenarios which need a guest
			t.Run("lab", func(t *testing.T) { testLab(t, o, labTests) })
		}
	}
}

// preflightFile is where the patient saves what preflight says.
const preflightFile = "/tmp/preflight.json"

func checkPreflight(t *testing.T, said []byte) {
	t.Helper()
	var got struct {
		Capabilities []struct{ Name, Status, Reason string }
	}
	if err := json.Unmarshal(said, &got); err != nil {
		t.Fatalf("preflight: %v\n%s", err, said)
	}
	available := map[string]bool{}
	for _, c := range got.Capabilities {
		available[c.Name] = c.Status == "available"
	}
	// The modules and mounts that should be there show in what perfdoctor can do with them.
	for _, name := range []string{
		"root", "psi", "sock-diag", "conntrack", "schedstat", "perf-host", "btf",
		"cgroup-v2",
	} {
		if !available[name] {
			t.Errorf("%s is not available: %+v", name, got.Capabilities)
		}
	}
}

// testQuota sets a limit two levels above a process that spins. It is found on a kernel's real cgroup v2. The limit is
// so low that the process reaches it even in a guest that gets a quarter of a CPU from the host.
func testQuota(t *testing.T, o Options, release string) {
	t.Helper()
	o.Command = "/bin/patient"
	// An emulated CPU takes more than a second for the first look of all collectors, and a look may take an interval.
	o.Args = strings.Fields("-group outer:10000/mid/inner -preflight " + preflightFile +
		" /bin/perfdoctor diagnose --pid PID --duration 9s --interval 3s -o json --save /tmp/run.zip")
	o.Sysctls = []string{"net.netfilter.nf_conntrack_max=4242"}
	o.Outputs = []string{"/tmp/run.zip", "/proc/sys/net/netfilter/nf_conntrack_max", preflightFile, "/no/such/file"}
	r := run(t, o)
	for try := 1; try < 3 && bytes.Contains(r.Stdout, []byte("too few for a share")); try++ {
		r = run(t, o) // on a full host the guest had no time for two readings, and says so: nothing is known yet
	}
	if !strings.HasPrefix(r.Release, release+".") {
		t.Errorf("the guest runs %s, want %s", r.Release, release)
	}
	checkPreflight(t, r.Files[preflightFile])
	d := parseDiagnosis(t, r)
	if r.ExitCode != 3 || !strings.HasPrefix(d.Host.Kernel, release) || len(d.Findings) == 0 {
		t.Fatalf("exit code %d, kernel %s: %s%s", r.ExitCode, d.Host.Kernel, r.Stdout, r.Stderr)
	}
	f := d.Findings[0]
	if f.Check != "cpu-throttled" || f.Role != "principal" || f.Subject.ID != "/outer" ||
		!strings.Contains(f.Summary, "2 levels above") {
		t.Errorf("principal finding %+v; want cpu-throttled of /outer, 2 levels above", f)
	}
	if got := string(r.Files["/proc/sys/net/netfilter/nf_conntrack_max"]); got != "4242\n" {
		t.Errorf("sysctl in the guest: %q", got)
	}
	if !bytes.HasPrefix(r.Files["/tmp/run.zip"], []byte("PK")) || len(r.Files) != 3 {
		t.Errorf("%d files came back, the recording has %d bytes", len(r.Files), len(r.Files["/tmp/run.zip"]))
	}
}

// testLab runs tests of package lab on a guest where cgroup v2 has the controllers, and the machine's own settings may
// be changed. It is the one guest that may run on KVM. If KVM is there and does not work, it shows that the guest boots
// without.
func testLab(t *testing.T, o Options, labTests string) {
	o.Emulated = false
	tests := []string{
		"TestMachineSysctl", "TestQuotaThrottles", "TestAddedProcessSurvivesClose",
		"TestKilledParentLeavesNoChild",
	}
	// Package testenv checks its rights by running true in a namespace; any program that does nothing will do.
	o.Files = map[string]string{"/bin/lab.test": labTests, "/bin/true": o.Binary}
	o.Command, o.Args = "/bin/lab.test", []string{"-test.v", "-test.run", "^(" + strings.Join(tests, "|") + ")$"}
	o.Env = []string{testenv.RequireVar + "=root"}
	var progress bytes.Buffer
	o.Stderr = &progress
	r := run(t, o)
	for _, name := range tests {
		if !bytes.Contains(r.Stdout, []byte("--- PASS: "+name)) {
			t.Errorf("%s did not pass: exit code %d\n%s%s", name, r.ExitCode, r.Stdout, r.Stderr)
		}
	}
	if !bytes.Equal(progress.Bytes(), r.Stderr) {
		t.Errorf("what came while it ran is not what came: %q, %q", progress.Bytes(), r.Stderr)
	}
}

// TestInstructionsPerCycle is the only test of ipc-low on machines without counters. An arm64 guest whose time is a
// count of instructions has a PMU that is right by construction (what reads it is in the matrix of kernels), and is no
// slower beside another guest.
func TestInstructionsPerCycle(t *testing.T) {
	o := Options{
		Kernel: debian(t, "6.12", "arm64"), Binary: build(t, "arm64", "../../../cmd/perfdoctor", false),
		Files:   map[string]string{"/bin/patient": build(t, "arm64", "./testdata/patient", false)},
		Command: "/bin/patient",
		Args:    strings.Fields("/bin/perfdoctor diagnose --pid PID --duration 3s -o json --check ipc-low"),
	}
	for each, said := range map[time.Duration]string{
		time.Nanosecond:     "", // 1.00: nothing to say
		2 * time.Nanosecond: "0.50 instructions per cycle",
	} {
		t.Run(each.String(), func(t *testing.T) {
			t.Parallel()
			clocked := o
			clocked.InstructionTime = each
			d := parseDiagnosis(t, run(t, clocked))
			switch {
			case said == "" && len(d.Findings) != 0:
				t.Errorf("findings: %+v", d.Findings)
			case said != "" && (len(d.Findings) != 1 || d.Findings[0].Check != "ipc-low" ||
				!strings.Contains(d.Findings[0].Summary, said)):
				t.Errorf("findings: %+v, want ipc-low with %s", d.Findings, said)
			}
		})
	}
}

func TestWhatCannotRun(t *testing.T) {
	k := debian(t, "6.1", "amd64")
	doctor := build(t, "amd64", "../../../cmd/perfdoctor", false)
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		o    Options
		want string
	}{
		"a sysctl that is not there": {
			Options{Kernel: k, Binary: doctor, Emulated: true, Sysctls: []string{"net.no.such=1"}},
			"sysctl net.no.such=1",
		},
		"a command that is not there": {
			Options{Kernel: k, Binary: doctor, Emulated: true, Command: "/bin/none"}, "start the command",
		},
		"a module that is not there": {
			Options{Kernel: k, Binary: doctor, Modules: []string{"none"}},
			"no module none",
		},
		"a kernel that is not there": {
			Options{Kernel: Kernel{Image: dir + "/none"}, Binary: doctor},
			"kernel for the guest",
		},
		"a script as init": {Options{Kernel: k, Binary: script}, "script"},
		"another architecture": {
			Options{Kernel: k, Binary: build(t, "arm64", "./testdata/patient", false)}, "GOARCH=amd64",
		},
		"too little time": {
			Options{
				Kernel: k, Binary: doctor, Emulated: true,
				Files:   map[string]string{"/bin/patient": build(t, "amd64", "./testdata/patient", false)},
				Command: "/bin/patient", Args: []string{"-spin"}, Timeout: 8 * time.Second,
			}, "not done within 8s",
		},
	}
	t.Run("all", func(t *testing.T) { // ends when they have
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				_, err := Run(t.Context(), test.o)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("error %v, want one about %q", err, test.want)
				}
				t.Logf("%.1f s: %v", time.Since(start).Seconds(), err)
			})
		}
	})
	checkNothingLeft(t)
}

// checkNothingLeft looks for children of this process, and for its files.
func checkNothingLeft(t *testing.T) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tasks {
		if children, err := os.ReadFile(path); err == nil && len(bytes.TrimSpace(children)) > 0 {
			t.Errorf("children left: %s", children)
		}
	}
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if name, err := os.Readlink(path); err == nil && strings.Contains(name, "memfd:perfdoctor") {
			t.Errorf("file left: %s", name)
		}
	}
}

// TestMachine checks the part of the command line that depends on options, without running it.
func TestMachine(t *testing.T) {
	arch := map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}
	testenv.Need(t, testenv.Tool(arch[runtime.GOARCH]))
	m, err := machineFor(runtime.GOARCH, Options{CPUs: 1, InstructionTime: 4 * time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range m.accels {
		if a.name != "tcg" || !slices.Contains(a.args, "shift=2") {
			t.Errorf("4 ns an instruction: %+v, want tcg with shift=2", a)
		}
	}
	if _, err := machineFor(runtime.GOARCH, Options{InstructionTime: 3}); err == nil {
		t.Error("3 ns an instruction: no error")
	}
}
