package jcmd

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/want-*.txt")

// recorded returns the answers of one kind, by file name: of JDK 11, 17, 21 and 25 with each collector, of JVMs under a
// quota of half a CPU that were told to have 32, and of deadlocks.
func recorded(t testing.TB, kind string, atLeast int) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/" + kind + "-*.txt")
	if err != nil || len(files) < atLeast {
		t.Fatalf("%d files %s-*, %v", len(files), kind, err)
	}
	out := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".txt")] = string(b)
	}
	return out
}

func golden(t *testing.T, kind string, atLeast int, show func(text string) (string, error)) {
	t.Helper()
	var got strings.Builder
	files := recorded(t, kind, atLeast)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s, err := show(files[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fmt.Fprintf(&got, "%s\n%s", name, s)
	}
	file := "testdata/want-" + kind + ".txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestParseThreads(t *testing.T) {
	golden(t, "threads", 8, func(text string) (string, error) {
		d, err := ParseThreads(text)
		var b strings.Builder
		for _, th := range d.Threads {
			fmt.Fprintf(&b, "  %q java=%v daemon=%v id=%d cpu=%v allocated=%d %s\n", th.Name, th.Java, th.Daemon, th.ID,
				th.CPU,
				th.Allocated, th.State)
			if len(th.Frames) > 0 {
				fmt.Fprintf(&b, "    at %s, %d calls\n", th.Frames[0], len(th.Frames))
			}
			for _, l := range th.Locks {
				fmt.Fprintf(&b, "    %s %s at call %d\n", l.Use, l.Class, l.Frame)
			}
		}
		for _, l := range d.Deadlocks {
			fmt.Fprintf(&b, "  deadlock %+v\n", l.Waits)
		}
		return b.String(), err
	})
}

func TestParseFlags(t *testing.T) {
	golden(t, "flags", 20, func(text string) (string, error) {
		flags, err := ParseFlags(text)
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			fmt.Fprintf(&b, "  %s=%s (%s)\n", name, flags[name].Value, flags[name].Origin)
		}
		return b.String(), err
	})
}

func TestParseInfo(t *testing.T) {
	golden(t, "info", 23, func(text string) (string, error) {
		i, err := ParseInfo(text)
		return fmt.Sprintf("  %s\n  up %v s, %d CPUs, %d active, limited %v: %v CPUs, %d B, from flag %v\n  args %q "+
			"agents %+v known "+
			"%v\n  code %+v\n  operations %v\n",
			i.VM, i.Uptime, i.CPUs, i.Active, i.Container, i.Quota, i.Memory, i.FromFlag, i.Args, i.Agents,
			i.AgentsKnown, i.Code, i.Operations), err
	})
}

func TestBadNumbers(t *testing.T) {
	const head = "Full thread dump X:\n"
	for _, text := range []string{
		"", "1234:\nThe -XX:+X option", head,
		head + `"a" #1 prio=5 cpu=1ms nid=0x`, head + `"a" #1 cpu=many nid=1`, head + `"a" #1 allocated=1T nid=1`,
		head + `"a" #1 allocated=9999999999999999999G nid=1`, head + `"a" #1 nid=99999999999`, head + `"a #1 nid=1`,
		head + `"a" #1`,
	} {
		if d, err := ParseThreads(text); err == nil {
			t.Errorf("%.40q: no error but %v", text, d)
		}
	}
	const code = "CodeCache: size=1Kb used=1Kb max_used=1Kb\n full_count=0\n compilation: enabled\n"
	for _, text := range []string{
		"", code, "CPU: total 2 (initial active 2)", code + "CPU: total 0 (initial active 2)",
		code + "CPU: total 2 (initial active " +
			"99999999999)",
		"CodeCache: size=99999999999999999999Kb used=1Kb max_used=1Kb\n full_count=0\n compilation: enabled\nCPU: " +
			"total 2 (initial active 2)",
		code + "CPU: total 2 (initial active 2)\nelapsed time: 1.2.3 seconds",
		code + "CPU: total 2 (initial active 2)\ncontainer (cgroup) information:\ncpu_quota: 5x\n",
		code + "CPU: total 2 (initial active 2)\ncontainer (cgroup) information:\nmemory_limit_in_bytes: 1 parsec\n",
	} {
		if i, err := ParseInfo(text); err == nil {
			t.Errorf("%.60q: no error but %+v", text, i)
		}
	}
	if f, err := ParseFlags("1234:\njava.lang.IllegalArgumentException: Unknown diagnostic command\n"); err == nil {
		t.Errorf("no flags, no error but %v", f)
	}
}

// TestOwnableSynchronizer: a deadlock of ReentrantLocks is printed with other words.
func TestOwnableSynchronizer(t *testing.T) {
	const text = "Full thread dump X:\n\"a\" #1 nid=1 x\n\nFound one Java-level deadlock:\n=====\n\"a\":\n" +
		"  waiting for ownable synchronizer 0x00000000fef08268, (a " +
		"java.util.concurrent.locks.ReentrantLock$NonfairSync),\n" +
		"  which is held by \"b\"\n\n\"b\":\n  waiting to lock monitor 0x1 (object 0x2, a java.lang.Object),\n " +
		" which " +
		"is held by \"a\"\n\n" +
		"Java stack information for the threads listed above:\n"
	d, err := ParseThreads(text)
	want := []Deadlock{{[]Wait{
		{"a", "java.util.concurrent.locks.ReentrantLock$NonfairSync", "b"}, {"b", "java.lang.Object", "a"},
	}}}
	if diff := cmp.Diff(want, d.Deadlocks); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestAgentsOf(t *testing.T) {
	got := AgentsOf([]string{
		"-Xmx1g", "-agentlib:jdwp=transport=dt_socket", "-agentpath:/opt/p/libprof.so=key=1",
		"-javaagent:/a/dd.jar=x", "-javaagent:",
	})
	want := []Agent{{Name: "jdwp"}, {Name: "libprof.so", Path: "/opt/p/libprof.so"}, {Name: "/a/dd.jar", Java: true}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseHistogram(t *testing.T) {
	const most = 5
	golden(t, "histogram", 4, func(text string) (string, error) {
		list, err := ParseHistogram(text, most)
		var b strings.Builder
		for _, c := range list {
			fmt.Fprintf(&b, "  %d %s (%s): %d B\n", c.Objects, c.Name, c.Module, c.Bytes)
		}
		return b.String(), err
	})
	for _, bad := range []string{"", "Total 1 2", "   1:   x   2   [B", "   1:   -1   2   [B"} {
		if got, err := ParseHistogram(bad, most); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
	for name, want := range map[string]string{
		"[[I": "int[][]", "[Ljava.lang.String;": "java.lang.String[]", "a.B": "a.B",
	} {
		if got := sourceName(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func FuzzParseHistogram(f *testing.F) {
	for _, s := range recorded(f, "histogram", 4) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const most = 3
		list, err := ParseHistogram(s, most)
		if (err == nil) != (len(list) > 0) || len(list) > most {
			t.Errorf("%d classes, %v", len(list), err)
		}
		for _, c := range list {
			if c.Objects < 0 || c.Bytes < 0 || c.Name == "" {
				t.Errorf("class %+v", c)
			}
		}
	})
}

func FuzzParseThreads(f *testing.F) {
	for _, s := range recorded(f, "threads", 8) {
		f.Add(s[:min(len(s), 4000)])
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseThreads(s)
		for _, th := range d.Threads {
			if err == nil && (th.ID <= 0 || th.Allocated < -1) {
				t.Errorf("thread %+v", th)
			}
		}
	})
}

func FuzzParseInfo(f *testing.F) {
	for _, s := range recorded(f, "info", 23) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if i, err := ParseInfo(s); err == nil && (i.Active <= 0 || i.Quota < 0 || i.Memory < 0 ||
			len(i.Code.Heaps) == 0) {
			t.Errorf("%+v", i)
		}
	})
}

func FuzzParseFlags(f *testing.F) {
	for _, s := range recorded(f, "flags", 20) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if flags, err := ParseFlags(s); err == nil && len(flags) == 0 {
			t.Error("no flags and no error")
		}
	})
}

// TestOperations: as JDK 11 and 17, 21 and 25 write them.
func TestOperations(t *testing.T) {
	const text = "CodeCache: size=1Kb used=1Kb max_used=1Kb\n full_count=0\n compilation: enabled\nCPU: total 2 " +
		"(initial active 2)\n" +
		"VM Operations (20 events):\nEvent: 1.806 Executing VM operation: G1CollectFull\nEvent: 1.812 Executing VM " +
		"operation: G1CollectFull done\n" +
		"Event: 2.100 Executing VM operation: GenCollectFull (System.gc())\nEvent: 2.110 Executing VM operation: " +
		"GenCollectFull (System.gc()) done\n" +
		"Event: 3 Executing safepoint VM operation: SerialGCCollect (System.gc())\nEvent: 4 Executing non-safepoint " +
		"VM operation: X\n"
	i, err := ParseInfo(text)
	want := []Operation{
		{1.806, "G1CollectFull", ""},
		{2.1, "GenCollectFull", "System.gc()"},
		{3, "SerialGCCollect", "System.gc()"},
		{4, "X", ""},
	}
	if err != nil || !slices.Equal(i.Operations, want) {
		t.Errorf("%+v, %v", i.Operations, err)
	}
	if _, err := ParseInfo(text + "Event: 1.2.3 Executing VM operation: X\n"); err == nil {
		t.Error("a bad time is read")
	}
}
