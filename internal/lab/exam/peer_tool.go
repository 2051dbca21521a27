package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

// onHost runs a program as a user on the target's host would: in the network of that host.
func onHost(ctx context.Context, r scenario.Running, dir string, env []string, args ...string) error {
	net := r.Host.NetNS()
	if r.PID > 0 {
		net = fmt.Sprintf("/proc/%d/ns/net", r.PID)
	}
	_, err := command(ctx, dir, env, "nsenter", append([]string{"--net=" + net, "--"}, args...)...)
	return err
}

// jvmOf returns the JVM of a target: the target itself, or the first JVM that a wrapper started below it.
func jvmOf(pid int) (string, error) {
	if pid == 0 {
		return "", errors.New("the target is the machine, and the tool wants a JVM")
	}
	procs, err := procfs.AllProcs()
	if err != nil {
		return "", err
	}
	stats := map[int]procfs.ProcStat{}
	for _, p := range procs {
		if stat, err := p.Stat(); err == nil { // it may have ended
			stats[p.PID] = stat
		}
	}
	jvm := 0
	for p, stat := range stats {
		if stat.Comm == "java" && below(stats, p, pid) && (jvm == 0 || p < jvm) {
			jvm = p
		}
	}
	if jvm == 0 {
		return "", fmt.Errorf("no JVM at process %d or below", pid)
	}
	return strconv.Itoa(jvm), nil
}

// programVersion returns the version that a program prints as "NAME 1.2.3 (build)" or "NAME version 1.2.3".
func programVersion(ctx context.Context, program string) (string, error) {
	said, err := command(ctx, "", nil, program, "--version")
	if err != nil {
		return "", err
	}
	for _, word := range strings.Fields(said) {
		if word[0] >= '0' && word[0] <= '9' {
			return word, nil
		}
	}
	return "", fmt.Errorf("%s --version says %q: where is the version?", program, said)
}
