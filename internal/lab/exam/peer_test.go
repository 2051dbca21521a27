package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"golang.org/x/tools/txtar"
)

// TestPeerFindings: a peer's output becomes findings under its own names, and the worst one an answer.
func TestPeerFindings(t *testing.T) {
	parsers := map[string]func([]byte) ([]finding, error){
		peerMelisai: melisaiFindings,
		peerAPerf:   aperfFindings,
		peerJMC:     func(data []byte) ([]finding, error) { return jmcFindings(string(data)) },
	}
	files, err := filepath.Glob(filepath.Join("testdata", "peers", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(archive.Files) != 3 {
				t.Fatalf("%d files: want the output, findings.json and answer.json", len(archive.Files))
			}
			peer, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".txtar"), "-")
			got, err := parsers[peer](archive.Files[0].Data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(unmarshal[[]finding](t, archive.Files[1].Data), got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			answer := &PeerAnswer{Words: []string{}}
			if err := meaningsOf(t, peer).answer(got, answer); err != nil {
				answer.Broken = err.Error()
			}
			if diff := cmp.Diff(unmarshal[*PeerAnswer](t, archive.Files[2].Data), answer); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func unmarshal[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func meaningsOf(t *testing.T, peer string) *meanings {
	t.Helper()
	words, err := readVocabulary(theExam)
	if err != nil {
		t.Fatal(err)
	}
	m, err := readMeanings(theExam, peer, words)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPeerOutputBroken: truncated output, or output of another tool, is not an answer that nothing was found.
func TestPeerOutputBroken(t *testing.T) {
	_, ofMelisai := melisaiFindings([]byte(`{}`))
	_, ofSeverity := melisaiFindings([]byte(`{"summary": {"anomalies": [{"severity": "info", "metric": "m"}]}}`))
	_, ofAPerf := aperfFindings([]byte(`vmstat_findings = {"per_run`))
	_, ofJMC := jmcFindings("FullGc\tINFO\thigh\t\t\t\n")
	for name, err := range map[string]error{
		"melisai": ofMelisai, "melisai's severity": ofSeverity, "aperf": ofAPerf, "jmc": ofJMC,
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestMeaningsValidate: a row of the table has words of the vocabulary, or says why a finding is not an answer.
func TestMeaningsValidate(t *testing.T) {
	words, err := readVocabulary(theExam)
	if err != nil {
		t.Fatal(err)
	}
	m := &meanings{file: "peer.yaml", Findings: []meaning{
		{ID: "right", Means: "m", Words: []string{"io-wait"}},
		{ID: "aside", Means: "m", Aside: "advice"},
		{ID: "neither", Means: "m"},
		{ID: "both", Means: "m", Words: []string{"io-wait"}, Aside: "advice"},
		{ID: "unknown", Means: "m", Words: []string{"slow"}},
	}}
	got := errors.Join(m.validate(words)...)
	want := "peer.yaml: neither: want means, and words or aside\n" +
		"peer.yaml: both: want means, and words or aside\n" +
		`peer.yaml: unknown: there is no "slow" in the vocabulary`
	if diff := cmp.Diff(want, got.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPeerAnswersFile: an existing file is continued, but not by another version.
func TestPeerAnswersFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peers", "jmc.json")
	first, err := openAnswers(file, "jmc 1")
	if err != nil {
		t.Fatal(err)
	}
	first.Cases["one"] = PeerAnswer{Words: []string{"io-wait"}, Text: "waits", Seconds: 12.5}
	if err := first.save(file); err != nil {
		t.Fatal(err)
	}
	second, err := openAnswers(file, "jmc 1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("(-first +second):\n%s", diff)
	}
	if _, err := openAnswers(file, "jmc 2"); err == nil || !strings.Contains(err.Error(), "want another -out") {
		t.Errorf("another version: %v", err)
	}
}

// TestPeerChoose: a peer that is not installed is left out, unless it is asked for.
func TestPeerChoose(t *testing.T) {
	for _, test := range []struct {
		flags peerFlags
		want  string
	}{
		{peerFlags{}, "jmc"},
		{peerFlags{melisai: "/m"}, "melisai jmc"},
		{peerFlags{melisai: "/m", aperf: "/a"}, "melisai aperf jmc"},
		{peerFlags{peer: "aperf", aperf: "/a", melisai: "/m"}, "aperf"},
		{peerFlags{peer: "melisai"}, "-melisai is missing: it can be had by no package client: exam/README.md"},
		{peerFlags{peer: "jcm"}, `there is no peer "jcm": want melisai, aperf or jmc`},
	} {
		peers, err := test.flags.choose()
		var got []string
		for _, p := range peers {
			got = append(got, p.name())
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.flags, diff)
		}
	}
}

// TestRemoveDeadJVMs removes only the data of JVMs that are gone, and nothing that a link leads to.
func TestRemoveDeadJVMs(t *testing.T) {
	tmp, outside := t.TempDir(), t.TempDir()
	for _, name := range []string{"hsperfdata_nobody/22", "hsperfdata_nobody/23", "hsperfdata_root/notes", "other/22"} {
		touch(t, filepath.Join(tmp, name))
	}
	touch(t, filepath.Join(outside, "22"))
	if err := os.Symlink(outside, filepath.Join(tmp, "hsperfdata_link")); err != nil {
		t.Fatal(err)
	}
	removeDeadJVMs(tmp, map[int]procfs.ProcStat{23: {}})
	var left []string
	for _, pattern := range []string{filepath.Join(tmp, "*", "*"), filepath.Join(outside, "*")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			left = append(left, strings.TrimPrefix(strings.TrimPrefix(file, tmp), outside))
		}
	}
	want := []string{"/hsperfdata_link/22", "/hsperfdata_nobody/23", "/hsperfdata_root/notes", "/other/22", "/22"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("(-want +left):\n%s", diff)
	}
}

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
