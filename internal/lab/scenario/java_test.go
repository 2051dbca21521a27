package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// javaBase has a Java program whose fix takes another JVM.
const javaBase = `name: leak
title: A leak
vm: {mode: allowed}
hosts: {one: }
processes:
  shop:
    host: one
    java: {jdk: 17, flags: [-Xmx64m], properties: {orders.cache: off, a: 1}, path: [moxy-2.5], program: shop.orders.Exceptions, args: [sick]}
measure: shop
diagnose: {target: shop}
expect: {verdict: fd-limit}
cures:
  newer:
    title: a newer one
    change: {processes: {shop: {java: {jdk: 21, properties: {a: null, orders.cache: on}, args: [cured]}}}}
    moves: [{metric: throughput, factor_at_least: 2, because: half the time}]
`

func TestReadJava(t *testing.T) {
	s, err := Read(files(javaBase), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	want := &Java{
		JDK: "17", Flags: []string{"-Xmx64m"}, Properties: map[string]string{"a": "1", "orders.cache": "off"},
		Path: []string{"moxy-2.5"}, Program: "shop.orders.Exceptions", Args: []string{"sick"},
	}
	if diff := cmp.Diff(want, s.Site.Processes[0].Java); diff != "" {
		t.Errorf("java (-want +got):\n%s", diff)
	}
	want.JDK, want.Args = "21", []string{"cured"}
	want.Properties = map[string]string{"orders.cache": "on"}
	if diff := cmp.Diff(want, s.Cures[0].Site.Processes[0].Java); diff != "" {
		t.Errorf("cured java (-want +got):\n%s", diff)
	}
}

// TestJDKs: a scenario on other JVMs is a scenario of its own for each, with the differences laid over it.
func TestJDKs(t *testing.T) {
	text := strings.Replace(javaBase, "vm: ", "ci: true\njdks: {11: , 25: {expect: {verdict: none}, cures: "+
		"null}}\nvm: ", 1)
	names, err := Names(files(text))
	if diff := cmp.Diff([]string{"leak", "leak-jdk11", "leak-jdk25"}, names); diff != "" || err != nil {
		t.Errorf("names (-want +got):\n%s%v", diff, err)
	}
	all, err := All(files(text), checkNames)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range all {
		programs := s.java()
		cured := ""
		if len(programs) > 1 {
			cured = programs[1].JDK
		}
		got = append(got, fmt.Sprintf("%s, %s, %s/, ci %v, JDK %s and %q, %s", s.Name, s.Title, s.Dir, s.CI,
			programs[0].JDK, cured, s.Expect.Verdict))
	}
	want := []string{
		`leak, A leak, leak/, ci true, JDK 17 and "21", fd-limit`,
		`leak-jdk11, A leak (on JDK 11), leak/, ci false, JDK 11 and "21", fd-limit`,
		`leak-jdk25, A leak (on JDK 25), leak/, ci false, JDK 25 and "", none`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scenarios (-want +got):\n%s", diff)
	}
	for i, name := range names {
		one, err := Read(files(text), name, checkNames)
		if err != nil || one.Name != all[i].Name {
			t.Errorf("%s read alone: %v, error %v", name, one, err)
		}
	}
	if _, err := Read(files(text), "leak-jdk21", checkNames); err == nil || !strings.Contains(err.Error(),
		"no leak-jdk21 in its jdks") {
		t.Errorf("one that is not there: error %v", err)
	}
}

func TestJDKMistakes(t *testing.T) {
	for _, tt := range []struct{ jdks, want string }{
		{"{12: }", `leak/scenario.yaml:4: jdks: there is no JDK "12"`},
		{"{17: }", "jdks.17: that is the scenario's own"},
		{"{25: yes}", "jdks.25: want nothing, or the fields that differ"},
		{"{25: {titel: x}}", `leak/scenario.yaml:4: unknown field "titel": did you mean title?`},
		{
			"{25: {expect: {verdict: fd-limt}}}",
			`leak/scenario.yaml:4: jdks.25: expect.verdict: there is no check or verdict "fd-limt"`,
		},
		{"[25]", "jdks: want names with a colon each"},
	} {
		_, err := All(files(strings.Replace(javaBase, "hosts: ", "jdks: "+tt.jdks+"\nhosts: ", 1)), checkNames)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: error %v, want %s", tt.jdks, err, tt.want)
		}
	}
	_, err := All(files(base+"jdks: {25: }\n"), checkNames)
	if err == nil || !strings.Contains(err.Error(), "jdks: no process has java") {
		t.Errorf("without Java: error %v", err)
	}
}

func TestJavaMistakes(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"jdk: 17", "jdk: 18", `leak/scenario.yaml:8: processes.shop.java.jdk: there is no JDK "18"`},
		{
			"jdk: 21", "jdk: 22",
			`leak/scenario.yaml:15: cures.newer.change: processes.shop.java.jdk: there is no JDK "22"`,
		},
		{
			"program", "progam",
			`leak/scenario.yaml:8: unknown field "progam" in processes.shop.java: did you mean program?`,
		},
		{"shop.orders.Exceptions", "Exceptions.java", `processes.shop.java.program: "Exceptions.java": want a class`},
		{"moxy-2.5", "../moxy", `processes.shop.java.path: "../moxy": want a module`},
		{
			"orders.cache", "orders cache",
			`leak/scenario.yaml:8: processes.shop.java.properties: "orders cache": want the name of`,
		},
		{"moxy-2.5", "app", `processes.shop.java.path: "app": want a module`},
		{
			"    host: one\n", "    host: one\n    await: {units: 3}\n",
			"another program counts no connections, units or errors",
		},
		{"    host: one\n", "    host: one\n    sleep: {}\n", "does 2 things (sleep, java)"},
	} {
		_, err := Read(files(strings.Replace(javaBase, tt.from, tt.to, 1)), "leak", checkNames)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %s", tt.to, err, tt.want)
		}
	}
}

// TestLacksJava: a missing JVM or library of any phase is named, with the command that provides it.
func TestLacksJava(t *testing.T) {
	s, err := Read(files(javaBase), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, there := range []string{"java/moxy-2.5", "java/app", "jdk/17/bin/java", "jdk/21/bin/java"} {
		if got, next := s.Lacks(dir), filepath.Join(dir, there); !strings.Contains(got, next) ||
			!strings.Contains(got, "make workloads") {
			t.Errorf("got %q, want that %s is missing, and what provides it", got, next)
		}
		if err := os.MkdirAll(filepath.Join(dir, there), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Lacks(dir); got != "" {
		t.Errorf("got %q, and all is there", got)
	}
	if got := s.LacksInGuest(); !strings.Contains(got, "no JVM") {
		t.Errorf("in a guest: got %q", got)
	}
}

func TestOnJVM(t *testing.T) {
	s, err := Read(files(javaBase), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Site.onJVM(&s.Site.Processes[0], "/w")
	if err != nil {
		t.Fatal(err)
	}
	want := &Run{
		Command: []string{
			"/w/jdk/17/bin/java", "-Xmx64m", "-Da=1", "-Dorders.cache=off", "-cp", "/w/java/moxy-2.5/*:/w/java/app/*",
			"shop.orders.Exceptions", "sick",
		},
		Throughput: javaThroughput,
	}
	if diff := cmp.Diff(want, p.Run); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
	if s.Site.Processes[0].Run != nil {
		t.Error("the scenario was changed")
	}
	s.Site.Measure = "another"
	if p, err = s.Site.onJVM(&s.Site.Processes[0], "/w"); err != nil || p.finite() {
		t.Errorf("one that is not measured may end: %+v, error %v", p, err)
	}
}

// TestHostCPUs: the JVM is made to believe in its host's CPUs if no limit, of its cgroup or one above, says less.
func TestHostCPUs(t *testing.T) {
	groups := []Cgroup{
		{Name: "node", Quota: 250 * time.Millisecond},
		{Name: "node/pod"},
		{Name: "nodes"},
		{Name: "wide", Quota: 160 * time.Millisecond, Period: 10 * time.Millisecond},
	}
	for _, tc := range []struct {
		group string
		cpus  int
		want  []string
	}{
		{"", 0, nil},
		{"", 16, []string{"-XX:ActiveProcessorCount=16"}},
		{"node", 16, nil},
		{"node/pod", 16, nil},
		{"node/pod", 2, []string{"-XX:ActiveProcessorCount=2"}},
		{"nodes", 16, []string{"-XX:ActiveProcessorCount=16"}},
		{"wide", 16, []string{"-XX:ActiveProcessorCount=16"}},
	} {
		site := Site{Cgroups: groups}
		got := site.cpuFlags(&Process{Cgroup: tc.group, Java: &Java{HostCPUs: tc.cpus}})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%d CPUs in %q (-want +got):\n%s", tc.cpus, tc.group, diff)
		}
	}
}
