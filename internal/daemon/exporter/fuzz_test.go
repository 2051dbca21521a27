package exporter

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// FuzzWindow serves the metrics of a recording twice, as two windows. Prometheus can read the page.
func FuzzWindow(f *testing.F) {
	for _, name := range []string{
		"cpu-throttled/firing-own", "nic-drops/firing", "no-keepalive/firing",
		"gc-overhead/firing",
	} {
		a, err := txtar.ParseFile(checktest.Find(f, name)[0])
		if err != nil {
			f.Fatal(err)
		}
		parts := map[string][]byte{}
		for _, file := range a.Files {
			parts[file.Name] = file.Data
		}
		f.Add(parts["meta.json"], parts["samples.jsonl"], "host eth0")
	}
	f.Fuzz(func(t *testing.T, meta, samples []byte, subject string) {
		rec, err := recording.Read(fstest.MapFS{"meta.json": {Data: meta}, "samples.jsonl": {Data: samples}})
		if err != nil {
			return
		}
		const target = "process x"
		ledger := newLedger(target, 200, nil, func(string, int) {})
		histograms := newHistograms(target)
		s := &snapshot{registry: prometheus.NewRegistry(), targets: map[string]*told{}}
		subject = strings.ToValidUTF8(subject, "?") // as [recording.Appender] does with its input
		findings := []check.Finding{{Check: "a", Severity: check.Warning, Subject: check.Subject{
			Kind: "pid",
			ID:   subject,
		}}}
		for range 2 {
			families := append(ledger.add(rec), histograms.add(rec)...)
			w := Window{Name: target, Recording: rec, Result: check.Run(rec, []*check.Check{{Name: "a"}},
				check.Options{}), End: time.Unix(10, 0)}
			families = append(families, windowFamilies(w, 0)...)
			w.Result.Findings = findings
			s.put(w, families, Options{MaxFindings: 10})
		}
		list, err := s.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var page bytes.Buffer
		for _, family := range list {
			if _, err := expfmt.MetricFamilyToText(&page, family); err != nil {
				t.Fatal(err)
			}
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		if _, err := parser.TextToMetricFamilies(bytes.NewReader(page.Bytes())); err != nil {
			t.Fatalf("%v:\n%s", err, page.String())
		}
	})
}
