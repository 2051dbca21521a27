package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/partial"
)

// PhaseResult is what was seen and said in one phase of a case, as kept in the directory of results.
type PhaseResult struct {
	Case  string `json:"case"`
	Phase string `json:"phase"`
	// Broken is why the phase could not be built. Then there is no report.
	Broken     string             `json:"broken,omitempty"`
	Date       time.Time          `json:"date"`
	Version    string             `json:"perfdoctor"`
	Kernel     string             `json:"kernel"`
	Packages   map[string]string  `json:"packages,omitempty"` // apt packages and their installed versions
	Waited     float64            `json:"waited_seconds"`     // until the machine was quiet
	BusyBefore float64            `json:"busy_before"`
	Measured   map[string]float64 `json:"measured,omitempty"` // while the doctor ran: throughput, p50, ...
	Target     float64            `json:"target_cpus"`        // CPUs that the target used; without one, the machine
	Processes  []Usage            `json:"processes,omitempty"`
	Doctor     DoctorResult       `json:"doctor"`
}

// Usage is what the processes of one name used.
type Usage struct {
	Name string  `json:"name"`
	CPUs float64 `json:"cpus"`
}

// DoctorResult is one run of perfdoctor.
type DoctorResult struct {
	Command []string        `json:"command,omitempty"`
	Seconds float64         `json:"seconds"` // wall time
	Exit    int             `json:"exit_code"`
	Failed  string          `json:"failed,omitempty"` // why there is no report: the doctor failed or was too slow
	Stderr  string          `json:"stderr,omitempty"`
	Report  json.RawMessage `json:"report,omitempty"`
}

// phaseFile returns the path of a phase's result. The result of a sealed case is compressed, so that nobody reads it
// by accident.
func (c *Case) phaseFile(dir, phase string) string {
	name := phase + ".json"
	if c.Sealed() {
		name += ".gz"
	}
	return filepath.Join(dir, c.Name, name)
}

// readPhase returns nil for a phase that has not been run.
func (c *Case) readPhase(dir, phase string) (*PhaseResult, error) {
	file, err := os.Open(c.phaseFile(dir, phase))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // no result is not an error
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var in io.Reader = file
	if c.Sealed() {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, err
		}
	}
	p := &PhaseResult{}
	return p, json.NewDecoder(in).Decode(p)
}

// writePhase writes the result completely or not at all.
func (c *Case) writePhase(dir string, p *PhaseResult) error {
	path := c.phaseFile(dir, p.Phase)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	data, err := indented(p)
	if err != nil {
		return err
	}
	if c.Sealed() {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(data)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		data = packed.Bytes()
	}
	return partial.File(path, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// indented returns JSON for people and diffs.
func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}
