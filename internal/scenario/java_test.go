package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// javaBase has a Java program whose cure takes another JVM.
const javaBase = `name: leak
title: A leak
vm: {mode: allowed}
hosts: {one: }
processes:
  shop:
    host: one
    java: {jdk: 17, flags: [-Xmx64m], path: [moxy-2.5], program: shop.orders.Exceptions, args: [sick]}
measure: shop
diagnose: {target: shop}
expect: {verdict: fd-limit}
cures:
  newer:
    title: a newer one
    change: {processes: {shop: {java: {jdk: 21, args: [cured]}}}}
    moves: [{metric: throughput, factor_at_least: 2, because: half the time}]
`

func TestReadJava(t *testing.T) {
	s, err := Read(files(javaBase), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	want := &Java{
		JDK: "17", Flags: []string{"-Xmx64m"}, Path: []string{"moxy-2.5"}, Program: "shop.orders.Exceptions", Args: []string{"sick"},
	}
	if diff := cmp.Diff(want, s.Site.Processes[0].Java); diff != "" {
		t.Errorf("java (-want +got):\n%s", diff)
	}
	want.JDK, want.Args = "21", []string{"cured"}
	if diff := cmp.Diff(want, s.Cures[0].Site.Processes[0].Java); diff != "" {
		t.Errorf("cured java (-want +got):\n%s", diff)
	}
}

func TestJavaMistakes(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"jdk: 17", "jdk: 18", `leak/scenario.yaml:8: processes.shop.java.jdk: there is no JDK "18"`},
		{"jdk: 21", "jdk: 22", `leak/scenario.yaml:15: cures.newer.change: processes.shop.java.jdk: there is no JDK "22"`},
		{"program", "progam", `leak/scenario.yaml:8: unknown field "progam" in processes.shop.java: did you mean program?`},
		{"shop.orders.Exceptions", "Exceptions.java", `processes.shop.java.program: "Exceptions.java": want a class`},
		{"moxy-2.5", "../moxy", `processes.shop.java.path: "../moxy": want a module`},
		{"moxy-2.5", "app", `processes.shop.java.path: "app": want a module`},
		{"    host: one\n", "    host: one\n    await: {units: 3}\n", "another program counts no connections, units or errors"},
		{"    host: one\n", "    host: one\n    sleep: {}\n", "does 2 things (sleep, java)"},
	} {
		_, err := Read(files(strings.Replace(javaBase, tt.from, tt.to, 1)), "leak", checkNames)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %s", tt.to, err, tt.want)
		}
	}
}

// TestLacksJava: a JVM or library of any phase that is not there is named, with the command that provides it.
func TestLacksJava(t *testing.T) {
	s, err := Read(files(javaBase), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, there := range []string{"java/moxy-2.5", "java/app", "jdk/17/bin/java", "jdk/21/bin/java"} {
		if got, next := s.Lacks(dir), filepath.Join(dir, there); !strings.Contains(got, next) || !strings.Contains(got, "make workloads") {
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
	p, err := s.Site.Processes[0].onJVM("/w", true)
	if err != nil {
		t.Fatal(err)
	}
	want := &Run{
		Command:    []string{"/w/jdk/17/bin/java", "-Xmx64m", "-cp", "/w/java/moxy-2.5/*:/w/java/app/*", "shop.orders.Exceptions", "sick"},
		Throughput: javaThroughput,
	}
	if diff := cmp.Diff(want, p.Run); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
	if s.Site.Processes[0].Run != nil {
		t.Error("the scenario was changed")
	}
	if p, err = s.Site.Processes[0].onJVM("/w", false); err != nil || p.finite() {
		t.Errorf("one that is not measured may end: %+v, error %v", p, err)
	}
}
