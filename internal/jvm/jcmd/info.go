package jcmd

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Info is the part of `VM.info` that is used (VMError::print_vm_info in src/hotspot/share/utilities/vmError.cpp). The
// rest of that text, including the environment of the process, is not kept.
type Info struct {
	VM        string  // OpenJDK 64-Bit Server VM (17.0.15+6-Debian-1deb12u1, mixed mode, …, g1 gc, linux-amd64)
	Uptime    float64 // seconds since the JVM started
	CPUs      int     // of the machine, as the JVM counts them
	Active    int     // as the JVM uses them, with its limits and -XX:ActiveProcessorCount
	Container bool    // the JVM found control groups: the next three are known
	Quota     float64 // CPUs, quota / period as the JVM reads it; 0 for none
	Memory    int64   // bytes, its memory limit as the JVM reads it; 0 for none
	FromFlag  bool    // -XX:ActiveProcessorCount overrides what the limit says; JDK 11 does not tell
	Args      []string
	Agents    []Agent // of JVMTI; JDK 21 and newer list them, see AgentsKnown
	// AgentsKnown says that the JVM listed its agents; older ones are known by their options only ([AgentsOf]).
	AgentsKnown bool
	Code        CodeCache
	Operations  []Operation // the last ones, ten to twenty, the newest last
}

// Operation is an operation of the VM thread, mostly with all other threads stopped (VM_Operation in
// src/hotspot/share/runtime/vmOperation.hpp).
type Operation struct {
	At    float64 // seconds since the JVM started
	Name  string  // GenCollectFull, G1CollectForAllocation
	Cause string  // of a collection: System.gc(); "" before JDK 21
}

// Agent is a library or jar that watches the JVM. Its options are not kept: they may hold keys.
type Agent struct {
	Name string // jdwp, or the path of a jar
	Path string // of the library, "" when it is the JVM's own
	Java bool   // a jar, by -javaagent or loaded
}

// CodeCache is where compiled code is kept.
type CodeCache struct {
	Heaps   []CodeHeap
	Enabled bool // the compilers work; they stop when the cache is full
	Full    int  // times that a heap was full
}

// CodeHeap is one part of the code cache. Sizes are in bytes.
type CodeHeap struct {
	Name            string // non-profiled nmethods, profiled nmethods, non-nmethods, or "" for a cache in one piece
	Size, Used, Max int64
}

var (
	infoCPU     = regexp.MustCompile(`(?m)^CPU: ?total (\d+) \(initial active (\d+)\)`)
	infoVM      = regexp.MustCompile(`(?m)^# Java VM: (.*)$`)
	infoElapsed = regexp.MustCompile(`(?m)elapsed time: ([0-9.]+) seconds`)
	infoArgs    = regexp.MustCompile(`(?m)^jvm_args: (.*)$`)
	infoActive  = regexp.MustCompile(`(?m)^active_processor_count: (\d+)(.*)$`)
	infoQuota   = regexp.MustCompile(`(?m)^cpu_quota: (\S.*)$`)
	infoPeriod  = regexp.MustCompile(`(?m)^cpu_period: (\S.*)$`)
	infoMemory  = regexp.MustCompile(`(?m)^memory_limit_in_bytes: (\S.*)$`)
	operation   = regexp.MustCompile(
		`(?m)^Event: ([0-9.]{1,20}) Executing (?:(?:non-)?safepoint )?VM operation: (\w+)(?: \((.*)\))?$`)
	codeHeap = regexp.MustCompile(
		`(?m)^(?:CodeHeap '([^']*)'|CodeCache): size=(\d+)Kb,? used=(\d+)Kb,? max_used=(\d+)Kb`)
	codeFull = regexp.MustCompile(`full_count=(\d+)`)
	codeOn   = regexp.MustCompile(`(?mi)^ ?compilation: (enabled|disabled)`)
)

// ParseInfo reads the output of VM.info. A text without the CPU line or the code cache is not an answer to VM.info.
func ParseInfo(text string) (Info, error) {
	var i Info
	var err error
	if i.Code, err = ParseCodeCache(text); err != nil {
		return Info{}, err
	}
	m := infoCPU.FindStringSubmatch(text)
	if m == nil {
		return Info{}, fmt.Errorf("no line \"CPU: total\": the answer begins with %.60q", text)
	}
	if i.CPUs, err = positive(m[1]); err != nil {
		return Info{}, fmt.Errorf("CPUs: %w", err)
	}
	if i.Active, err = positive(m[2]); err != nil {
		return Info{}, fmt.Errorf("active CPUs: %w", err)
	}
	i.VM = submatch(infoVM, text)
	if s := submatch(infoElapsed, text); s != "" {
		if i.Uptime, err = strconv.ParseFloat(s, 64); err != nil || i.Uptime > maxUptime {
			return Info{}, fmt.Errorf("bad elapsed time %.40q", s)
		}
	}
	for _, m := range operation.FindAllStringSubmatch(text, maxOperations) { // the lines of finished ones end otherwise
		at, err := strconv.ParseFloat(m[1], 64)
		if err != nil || at > maxUptime {
			return Info{}, fmt.Errorf("bad time of an operation %.40q", m[1])
		}
		i.Operations = append(i.Operations, Operation{at, m[2], m[3]})
	}
	i.Args = strings.Fields(submatch(infoArgs, text))
	i.Agents, i.AgentsKnown = parseAgents(text)
	return i, i.container(text)
}

// maxOperations bounds what is read of the log: it has LogEventsBufferEntries lines, 20 unless set.
const maxOperations = 1000

// maxUptime is a thousand years in seconds; a larger number is not an uptime.
const maxUptime = 1000 * 365 * 86400

func submatch(re *regexp.Regexp, text string) string {
	if m := re.FindStringSubmatch(text); m != nil {
		return strings.TrimSpace(m[1])
	}
	return ""
}

func positive(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("bad number %.40q", s)
	}
	return int(n), nil
}

// container reads what the JVM says of its control group (os::Linux::print_container_info in
// src/hotspot/os/linux/os_linux.cpp).
func (i *Info) container(text string) error {
	_, text, i.Container = strings.Cut(text, "container (cgroup) information:\n")
	if !i.Container {
		return nil
	}
	text, _, _ = strings.Cut(text, "\n\n")
	if m := infoActive.FindStringSubmatch(text); m != nil {
		i.FromFlag = strings.Contains(m[2], "overridden by -XX:ActiveProcessorCount")
	}
	quota, err := limit(submatch(infoQuota, text))
	if err != nil {
		return fmt.Errorf("cpu_quota: %w", err)
	}
	period, err := limit(submatch(infoPeriod, text))
	if err != nil {
		return fmt.Errorf("cpu_period: %w", err)
	}
	if quota > 0 && period > 0 {
		i.Quota = float64(quota) / float64(period)
	}
	if i.Memory, err = limit(submatch(infoMemory, text)); err != nil {
		return fmt.Errorf("memory_limit_in_bytes: %w", err)
	}
	return nil
}

// limit reads a limit of the control group: "50000", "524288 k", or 0 for none: "-1", "no quota", "unlimited", "not
// supported".
func limit(s string) (int64, error) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, nil
	}
	digits, unit, _ := strings.Cut(s, " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	factor, known := map[string]int64{"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}[strings.TrimSpace(unit)]
	if err != nil || !known || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("bad limit %.40q", s)
	}
	return n * factor, nil
}

// ParseCodeCache reads the output of Compiler.codecache, or the part of VM.info that is the same
// (CodeCache::print_summary in src/hotspot/share/code/codeCache.cpp).
func ParseCodeCache(text string) (CodeCache, error) {
	var c CodeCache
	var total []CodeHeap
	for _, m := range codeHeap.FindAllStringSubmatch(text, -1) {
		h := CodeHeap{Name: m[1]}
		for j, to := range []*int64{&h.Size, &h.Used, &h.Max} {
			kib, err := strconv.ParseInt(m[j+2], 10, 53)
			if err != nil {
				return c, fmt.Errorf("code cache: bad size in %.80q", m[0])
			}
			*to = kib << 10
		}
		if h.Name == "" {
			total = append(total, h)
			continue
		}
		c.Heaps = append(c.Heaps, h)
	}
	if len(c.Heaps) == 0 {
		c.Heaps = total[:min(1, len(total))] // -XX:-SegmentedCodeCache; else the total repeats the parts
	}
	on := submatch(codeOn, text)
	full, err := strconv.Atoi(submatch(codeFull, text))
	if len(c.Heaps) == 0 || on == "" || err != nil {
		return c, errors.New("no code cache in the answer")
	}
	c.Enabled, c.Full = strings.EqualFold(on, "enabled"), full
	return c, nil
}

// parseAgents reads the list that JDK 21 and newer print (JvmtiAgentList, JvmtiAgent::print_path_and_options):
//
//	jdwp path:none, loaded, initialized, options:transport=dt_socket
func parseAgents(text string) (agents []Agent, known bool) {
	_, list, known := strings.Cut(text, "\nJVMTI agents:")
	if !known {
		return nil, false
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " path:")
		if !ok {
			continue // "none"
		}
		path, options, _ := strings.Cut(rest, ",")
		a := Agent{Name: name, Path: path}
		if path == "none" {
			a.Path = ""
		}
		if name == "instrument" {
			_, jar, _ := strings.Cut(options, "options:")
			jar, _, _ = strings.Cut(strings.TrimSpace(jar), "=")
			a = Agent{Name: jar, Java: true}
		}
		agents = append(agents, a)
	}
	return agents, true
}

// AgentsOf returns the agents that a JVM was started with, according to its arguments.
func AgentsOf(args []string) (agents []Agent) {
	for _, arg := range args {
		kind, rest, _ := strings.Cut(arg, ":")
		name, _, _ := strings.Cut(rest, "=")
		switch {
		case name == "":
		case kind == "-agentlib":
			agents = append(agents, Agent{Name: name})
		case kind == "-agentpath":
			agents = append(agents, Agent{Name: name[strings.LastIndexByte(name, '/')+1:], Path: name})
		case kind == "-javaagent":
			agents = append(agents, Agent{Name: name, Java: true})
		}
	}
	return agents
}
