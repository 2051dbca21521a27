package recording

import (
	"archive/zip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/redact"
)

// TestEveryLabelIsThoughtAbout: redactions decides what happens to a new label's values when a recording is redacted.
func TestEveryLabelIsThoughtAbout(t *testing.T) {
	used := map[string]bool{}
	for _, m := range metric.All() {
		for _, l := range m.Describe().Labels {
			used[l] = true
			if _, ok := redactions[l]; !ok {
				t.Errorf("label %s of %s: decide in redactions whether its values may name somebody", l, m.Describe().
					Name)
			}
		}
	}
	for l := range redactions {
		if !used[l] {
			t.Errorf("redactions has label %s, which no metric has", l)
		}
	}
}

// TestWaitsAreRedacted: the waits of threads have the pseudonym of the destination that other metrics have.
func TestWaitsAreRedacted(t *testing.T) {
	for _, destination := range []string{"10.9.8.7:5432", "[fd12:3456::9]:5432"} {
		b := NewBuilder()
		a := b.Appender()
		a.Gauge(metric.DestinationAsked, 1, destination)
		a.Gauge(metric.ThreadStateTime, 1, "7", "7", "server", "waiting", "read", "answer", destination)
		a.Commit()
		hidden, err := b.Done(Meta{Schema: SchemaVersion, Duration: 1}).Redacted(redact.New([]byte("a key of a test")))
		if err != nil {
			t.Fatal(err)
		}
		asked := hidden.Gauge(metric.DestinationAsked)[0].Label("destination")
		on := hidden.Gauge(metric.ThreadStateTime)[0].Label("on")
		if on != asked || on == destination {
			t.Errorf("a wait for %s became one for %s, and the destination %s", destination, on, asked)
		}
	}
}

// TestRawFilesAreLeftOut: raw files are left out of a recording in the making and of one that was read.
func TestRawFilesAreLeftOut(t *testing.T) {
	b := NewBuilder()
	a := b.Appender()
	a.Gauge(metric.MemoryTotal, 1)
	a.File("jvm.jfr", []byte("a password that a program put into an event"))
	a.Commit()
	made := b.Done(Meta{Schema: SchemaVersion, Duration: 1})
	path := filepath.Join(t.TempDir(), "plain.zip")
	if err := made.Save(path); err != nil {
		t.Fatal(err)
	}
	read, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, rec := range map[string]*Recording{"made": made, "read": read} {
		hidden, err := rec.Redacted(redact.New([]byte("a key of a test")))
		if err != nil {
			t.Fatal(err)
		}
		if got := hidden.Meta.Redacted.LeftOut; !slices.Equal(got, []string{"profiles/jvm.jfr"}) {
			t.Errorf("%s: %q was left out, want the raw file", name, got)
		}
		path := filepath.Join(t.TempDir(), "redacted.zip")
		if err := hidden.Save(path); err != nil {
			t.Fatal(err)
		}
		z, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			if strings.Contains(f.Name, "jfr") {
				t.Errorf("%s: the redacted recording has %s", name, f.Name)
			}
		}
		if err := z.Close(); err != nil {
			t.Error(err)
		}
		if _, err := hidden.Redacted(redact.New([]byte("another key"))); err == nil {
			t.Errorf("%s: a redacted recording was redacted again", name)
		}
	}
}
