package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// jdks returns the JVMs that workloads/jdks provides: the long-term support releases in use.
func jdks() []string { return []string{"11", "17", "21", "25"} }

// javaThroughput is what shop.Load prints at the end (workloads/java/app).
const javaThroughput = `operations/s: ([0-9.]+)`

// javaApp is the directory of the programs and the common libraries, below the workloads' directory java.
const javaApp = "app"

// The names of class path entries, system properties and classes. They become part of a path or an argument.
var (
	javaSet   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
	javaKey   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)
	javaClass = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*\.[A-Z][A-Za-z0-9]*$`)
)

func (v *validator) java(path string, p *Process) {
	v.name(path+".jdk", "JDK", p.Java.JDK, jdks())
	if !javaClass.MatchString(p.Java.Program) {
		v.fail(path+".program", "%q: want a class of workloads/java with its package, such as shop.orders.Exceptions",
			p.Java.Program)
	}
	if p.Java.HostCPUs < 0 {
		v.fail(path+".host_cpus", "%d: want a number of CPUs", p.Java.HostCPUs)
	}
	for _, set := range p.Java.Path {
		if !javaSet.MatchString(set) || set == javaApp {
			v.fail(path+".path", "%q: want a module of workloads/java beside app", set)
		}
	}
	for key := range p.Java.Properties {
		if !javaKey.MatchString(key) {
			v.fail(path+".properties", "%q: want the name of a system property, such as orders.cache", key)
		}
	}
	v.otherAwait(path, p)
}

func (j *Java) runtime(workloads string) string {
	return filepath.Join(workloads, "jdk", j.JDK, "bin", "java")
}

// libraries returns the directories of the class path, in order.
func (j *Java) libraries(workloads string) []string {
	var dirs []string
	for _, set := range append(slices.Clone(j.Path), javaApp) {
		dirs = append(dirs, filepath.Join(workloads, "java", set))
	}
	return dirs
}

// cpuFlags returns flags that make the JVM use the CPU count of its host where no limit is lower. The JVM respects a
// limit by itself (JDK 21, src/hotspot/os/linux/cgroupSubsystem_linux.cpp, active_processor_count: the quota in whole
// CPUs, rounded up), but never counts more CPUs than the machine has.
func (s *Site) cpuFlags(p *Process) []string {
	cpus := float64(p.Java.HostCPUs)
	if cpus == 0 || s.quotaOf(p.Cgroup) < cpus {
		return nil
	}
	return []string{fmt.Sprintf("-XX:ActiveProcessorCount=%d", p.Java.HostCPUs)}
}

// quotaOf returns the lowest limit of a cgroup and its ancestors, in CPUs. Without a limit it is infinite.
func (s *Site) quotaOf(name string) float64 {
	least := math.Inf(1)
	for _, g := range s.Cgroups {
		if g.Quota > 0 && (name == g.Name || strings.HasPrefix(name, g.Name+"/")) {
			least = min(least, g.Quota.Seconds()/cmp.Or(g.Period, defaultQuotaPeriod).Seconds())
		}
	}
	return least
}

// onJVM returns the process as one that runs another program. If its throughput counts, it prints it at the end.
func (s *Site) onJVM(p *Process, workloads string) (*Process, error) {
	workloads, err := filepath.Abs(workloads) // the program has a working directory of its own
	if err != nil {
		return nil, err
	}
	var path []string
	for _, dir := range p.Java.libraries(workloads) {
		path = append(path, filepath.Join(dir, "*"))
	}
	// The flags of the file come later, so they win.
	command := slices.Concat([]string{p.Java.runtime(workloads)}, s.cpuFlags(p), p.Java.Flags)
	for _, key := range slices.Sorted(maps.Keys(p.Java.Properties)) {
		command = append(command, "-D"+key+"="+p.Java.Properties[key])
	}
	command = append(command, "-cp", strings.Join(path, string(filepath.ListSeparator)), p.Java.Program)
	out := *p
	out.Run = &Run{Command: append(command, p.Java.Args...)}
	if p.Name == s.Measure {
		out.Run.Throughput = javaThroughput
	}
	return &out, nil
}

// NeedsJava reports whether any phase runs a program of workloads/java.
func (s *Scenario) NeedsJava() bool { return len(s.java()) > 0 }

// java returns the Java programs of all phases.
func (s *Scenario) java() []*Java {
	var all []*Java
	for _, site := range s.sites() {
		for i := range site.Processes {
			if j := site.Processes[i].Java; j != nil {
				all = append(all, j)
			}
		}
	}
	return all
}

// lacksJava says which of the scenario's JVMs and libraries are missing, or "".
func (s *Scenario) lacksJava(workloads string) string {
	for _, j := range s.java() {
		for _, path := range append(j.libraries(workloads), j.runtime(workloads)) {
			if _, err := os.Stat(path); err != nil {
				return fmt.Sprintf("there is no %s: run `make workloads`, or say with --workloads where it put them",
					path)
			}
		}
	}
	return ""
}
