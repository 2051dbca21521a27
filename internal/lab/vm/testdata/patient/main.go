// Command patient is what a guest's tests diagnose: it spins, in cgroups with limits if asked, and runs the doctor.
//
//	patient [-group NAME[:CPUMAX][/NAME[:CPUMAX]...]] [-spinners N] [-preflight FILE] COMMAND [ARG...]
//
// With -preflight, FILE gets the output of COMMAND preflight: a second boot would take longer. PID in ARG becomes the
// pid of the spinning process.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	group := flag.String("group", "", "cgroup v2 path, each level with a cpu.max of its own if it has one")
	spinners := flag.Int("spinners", 1, "spinning threads")
	spinning := flag.Bool("spin", false, "only spin: what the child does")
	preflight := flag.String("preflight", "", "before anything spins, save the doctor's preflight, as JSON, to `FILE`")
	flag.Parse()
	if *spinning {
		spin(*spinners)
	}
	if *preflight != "" {
		if err := savePreflight(flag.Arg(0), *preflight); err != nil {
			fmt.Fprintln(os.Stderr, "patient: preflight:", err)
			os.Exit(70)
		}
	}
	code, err := diagnose(*group, *spinners, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "patient:", err)
		os.Exit(70)
	}
	os.Exit(code)
}

// spin repeats the same instructions, and none of them waits for memory.
func spin(threads int) {
	for range threads - 1 {
		go loop()
	}
	loop()
}

var sink uint64

func loop() {
	x := uint64(1)
	for {
		for range 1 << 30 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		sink = x
	}
}

func savePreflight(doctor, file string) error {
	cmd := exec.Command(doctor, "preflight", "-o", "json")
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		return err
	}
	return os.WriteFile(file, said, 0o600)
}

func diagnose(group string, spinners int, command []string) (int, error) {
	dir, err := makeGroups(group)
	if err != nil {
		return 0, err
	}
	child := exec.Command("/proc/self/exe", "-spin", "-spinners", strconv.Itoa(spinners))
	if err := child.Start(); err != nil {
		return 0, err
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	pid := strconv.Itoa(child.Process.Pid)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0); err != nil {
		return 0, err
	}
	for i := range command {
		command[i] = strings.ReplaceAll(command[i], "PID", pid)
	}
	doctor := exec.Command(command[0], command[1:]...)
	doctor.Stdout, doctor.Stderr = os.Stdout, os.Stderr
	if err := doctor.Run(); doctor.ProcessState == nil {
		return 0, err
	}
	return doctor.ProcessState.ExitCode(), nil
}

func makeGroups(path string) (string, error) {
	dir := "/sys/fs/cgroup"
	for level := range strings.SplitSeq(path, "/") {
		if level == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0); err != nil {
			return "", err
		}
		name, limit, limited := strings.Cut(level, ":")
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return "", err
		}
		if !limited {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cpu.max"), []byte(limit), 0); err != nil {
			return "", err
		}
	}
	return dir, nil
}
