package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An outcome is the result of one test.
type outcome struct {
	action string // pass, skip or fail; "" if the test did not end
	output []string
}

// event is a line of `go tool test2json` (go doc test2json).
type event struct{ Action, Test, Output string }

// parseEvents returns the outcomes of tests and subtests by their full name.
func parseEvents(data []byte) (map[string]*outcome, error) {
	all := map[string]*outcome{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20) // a verifier's log comes in one line
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("output of a test: %w: %q", err, lines.Text())
		}
		if e.Test == "" {
			continue
		}
		o := all[e.Test]
		if o == nil {
			o = &outcome{}
			all[e.Test] = o
		}
		switch e.Action {
		case "pass", "fail", "skip":
			o.action = e.Action
		case "output":
			if text := strings.TrimSpace(e.Output); text != "" && !strings.HasPrefix(text, "=== ") &&
				!strings.HasPrefix(text, "--- ") {
				o.output = append(o.output, text)
			}
		}
	}
	return all, lines.Err()
}

// A cell is the result of a feature on a kernel.
type cell struct {
	status status
	why    string // if ok: what was measured, if anything
}

// after returns the cell of a feature that was run a second time.
func (c cell) after(first cell) cell {
	if c.status == ok {
		c.why = strings.TrimPrefix(c.why+"; held when it was run again, alone. At first: "+first.why, "; ")
	}
	return c
}

type status int

const (
	ok       status = iota
	tooOld          // the kernel is older than the feature's floor
	notThere        // a machine of this kind does not have what the feature needs
	failed
)

// judge combines the outcomes of a feature's tests. old says that the kernel is older than the feature's floor.
func judge(tests []string, outcomes map[string]*outcome, old bool) cell {
	var skips, failures, measured []string
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		top, _, _ := strings.Cut(name, "/")
		if !slices.Contains(tests, top) {
			continue
		}
		o := outcomes[name]
		switch o.action {
		case "pass":
			measured = append(measured, o.measured()...)
		case "skip":
			skips = append(skips, o.reason())
		case "fail":
			failures = append(failures, name+": "+strings.Join(o.output, "\n"))
		default:
			failures = append(failures, name+": did not end\n"+strings.Join(o.output, "\n"))
		}
	}
	for _, name := range tests {
		if outcomes[name] == nil {
			failures = append(failures, name+": was not run")
		}
	}
	switch {
	case len(failures) > 0:
		return cell{failed, strings.Join(failures, "\n")}
	case len(skips) > 0 && old:
		return cell{tooOld, skips[0]}
	case len(skips) > 0:
		return cell{failed, "skipped on a kernel that is not older than the feature declares: " + strings.Join(
			skips, "; ")}
	case old:
		return cell{failed, "works on a kernel that is older than the feature declares: the declared one is wrong"}
	}
	return cell{ok, strings.Join(measured, "; ")}
}

// measured returns the numbers that a test wants in the table.
func (o *outcome) measured() (out []string) {
	for _, line := range o.output {
		if _, text, found := strings.Cut(line, ": measured: "); found {
			out = append(out, text)
		}
	}
	return out
}

// reason returns the last message of a test before it was skipped, without its place in the source.
func (o *outcome) reason() string {
	if len(o.output) == 0 {
		return "no reason was given"
	}
	last := o.output[len(o.output)-1]
	if place, text, found := strings.Cut(last, ": "); found && strings.Contains(place, ".go:") {
		return text
	}
	return last
}
