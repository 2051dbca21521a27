package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

const peerMelisai = "melisai"

// melisai reads counters of the kernel, runs the installed BPF tools, and compares their values with thresholds.
type melisai struct{ program string }

func (m *melisai) name() string { return peerMelisai }

func (m *melisai) takes(*Case) bool { return true }

// bpfTools is the package of those tools that need no kernel headers.
const bpfTools = "libbpf-tools"

func (m *melisai) prepare(ctx context.Context, _ *exam) (version string, err error) {
	if m.program, err = filepath.Abs(m.program); err != nil {
		return "", err
	}
	if err := aptInstall(ctx, []string{bpfTools}); err != nil {
		return "", err
	}
	return programVersion(ctx, m.program)
}

// settle waits until the load average is below one per CPU: the load average remembers minutes, and the tool warns at
// two. A load of twenty per CPU takes three minutes to fall to that.
func (m *melisai) settle(ctx context.Context) error {
	const longest, step = 3 * time.Minute, time.Second
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < longest; {
		load, err := fs.LoadAvg()
		if err != nil {
			return err
		}
		if load.Load1 < float64(runtime.NumCPU()) {
			return nil
		}
		if err := clock.Sleep(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

const melisaiReport = "report.json"

// watch first lets the fault run for one window: the tool reads averages of the last ten seconds, and then starts the
// BPF tools, which observe another window.
func (m *melisai) watch(ctx context.Context, _ *Case, r scenario.Running, dir string) error {
	if err := clock.Sleep(ctx, window); err != nil {
		return err
	}
	args := []string{m.program, "collect", "--quiet", "--duration", window.String(), "--output", melisaiReport}
	if r.PID > 0 {
		args = append(args, "--pid", strconv.Itoa(r.PID))
	}
	return onHost(ctx, r, dir, nil, args...)
}

func (m *melisai) read(_ context.Context, dir string) ([]finding, error) {
	data, err := os.ReadFile(filepath.Join(dir, melisaiReport))
	if err != nil {
		return nil, err
	}
	return melisaiFindings(data)
}

// melisaiSeverities are the severities of its anomalies.
var melisaiSeverities = map[string]float64{"critical": 2, "warning": 1}

// melisaiFindings returns the anomalies of a report. The recommendations for the category of an anomaly belong to its
// text.
func melisaiFindings(report []byte) ([]finding, error) {
	var r struct {
		Summary *struct {
			Anomalies       []struct{ Severity, Category, Metric, Message string }
			Recommendations []struct{ Category, Type, Title, Evidence string }
		}
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return nil, err
	}
	if r.Summary == nil {
		return nil, fmt.Errorf("the report has no summary")
	}
	var findings []finding
	for _, a := range r.Summary.Anomalies {
		score, ok := melisaiSeverities[a.Severity]
		if !ok {
			return nil, fmt.Errorf("%s: unknown severity %q", a.Metric, a.Severity)
		}
		text := []string{a.Message}
		for _, rec := range r.Summary.Recommendations {
			if rec.Category == a.Category && rec.Type == "fix" {
				text = append(text, rec.Title+": "+rec.Evidence)
			}
		}
		findings = append(findings, finding{ID: a.Metric, Score: score, Text: strings.Join(text, "; ")})
	}
	return findings, nil
}
