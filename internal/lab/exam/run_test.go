package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// doctorOf is a program in perfdoctor's place.
func doctorOf(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "doctor")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDiagnose: a report is kept with the exit code. A missing report is a result, too.
func TestDiagnose(t *testing.T) {
	for _, c := range []struct {
		name, script, failed string
		exit                 int
	}{
		{"findings", `echo '{"findings": []}'; echo "$@" >&2; exit 3`, "", 3},
		{"failure", "echo 'perfdoctor: no' >&2; exit 1", "exit code 1, and no report", 1},
		{"hangs", "exec sleep 60", "no answer in 1s", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &runner{exam: &exam{}, doctor: doctorOf(t, c.script), doctorLongest: time.Second}
			recording := filepath.Join(t.TempDir(), "results", "recording.zip")
			d, err := r.diagnose(t.Context(), 42, recording)
			if err != nil || d.Failed != c.failed || d.Exit != c.exit {
				t.Fatalf("%+v, %v, want %q and exit code %d", d, err, c.failed, c.exit)
			}
			want := "diagnose -o json --save " + recording + " --pid 42"
			if c.exit == 3 && strings.TrimSpace(d.Stderr) != want {
				t.Errorf("called with %q, want %q", d.Stderr, want)
			}
		})
	}
	r := &runner{exam: &exam{}, doctor: filepath.Join(t.TempDir(), "none"), doctorLongest: time.Second}
	if _, err := r.diagnose(t.Context(), 0, filepath.Join(t.TempDir(), "r.zip")); err == nil {
		t.Error("a program that is not there gave a result")
	}
}

// TestMissing: a case with a result is not run again. A case that could not be built is, on request.
func TestMissing(t *testing.T) {
	c, dir := testCase(openName), t.TempDir()
	phases := testPhases("", "")
	phases[phaseCure].Broken = "no such package"
	for _, p := range phases {
		if err := c.writePhase(dir, p); err != nil {
			t.Fatal(err)
		}
	}
	r := &runner{exam: &exam{}, results: dir}
	if got, err := r.missing(c); err != nil || len(got) != 0 || r.had != 2 {
		t.Errorf("%v, %v, had %d, want none to run", got, err, r.had)
	}
	r.again = true
	if got, err := r.missing(c); err != nil || len(got) != 1 || got[0] != phaseCure {
		t.Errorf("%v, %v, want the cure", got, err)
	}
}

// TestUsedBetween: a working process counts as the target, and is among the machine's processes.
func TestUsedBetween(t *testing.T) {
	before, began := statsNow(), time.Now()
	for time.Since(began) < 300*time.Millisecond {
	}
	after := statsNow()
	self := after[os.Getpid()]
	other := self
	other.Comm, other.PID = "busy", 1<<30
	after[other.PID] = other
	cpus, all := usedBetween(before, after, other.PID, time.Since(began))
	isIt := func(u Usage) bool { return u.Name == "busy" && u.CPUs == cpus }
	if cpus <= 0 || !slices.ContainsFunc(all, isIt) {
		t.Errorf("%v CPUs, %v, want some, of busy", cpus, all)
	}
}

// TestProgress: the verdict of a sealed case is not printed.
func TestProgress(t *testing.T) {
	r := &runner{scorer: newTestScorer(t)}
	p := testPhases("regex-backtracking", "")[phaseFault]
	want := "exact: WARNING regex-backtracking: pid 7: in 0123/semver.js"
	if got := r.progress(testCase(openName), p); got != want {
		t.Errorf("an open case: %q, want %q", got, want)
	}
	if got := r.progress(testCase(sealedName), p); got != "sealed: done" {
		t.Errorf("a sealed case: %q", got)
	}
	p.BusyBefore = 0.5
	if got := r.progress(testCase(sealedName), p); got != "sealed: done (the machine was 50 % busy before)" {
		t.Errorf("on a busy machine: %q", got)
	}
	p.Broken = "no such package"
	if got := r.progress(testCase(sealedName), p); got != "broken: no such package" {
		t.Errorf("a broken case: %q", got)
	}
}

func TestShortened(t *testing.T) {
	if got := shortened("a\n  b"); got != "a b" {
		t.Errorf("%q, want one line", got)
	}
	got := shortened("begin" + strings.Repeat("x", 1000) + "end")
	if len(got) != 305 || !strings.HasPrefix(got, "begin") || !strings.HasSuffix(got, "end") {
		t.Errorf("%q, want the begin and the end", got)
	}
}

func TestVersionOf(t *testing.T) {
	if got := versionOf("perfdoctor v1.2 (go1.26, linux/amd64)\nrecording schema 1"); got != "v1.2" {
		t.Errorf("%q, want v1.2", got)
	}
}
