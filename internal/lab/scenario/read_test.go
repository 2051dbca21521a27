package scenario

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

// checks are the checks that the scenarios of these tests can name.
var checkNames = []string{"cpu-throttled", "fd-limit", "softnet-drops"}

// base is a valid scenario; tests replace one line of it.
const base = `name: leak
title: A leak
vm: {mode: allowed}
hosts:
  one:
    sysctls: {net.ipv4.tcp_tw_reuse: 0}
  two:
links:
  wire: {ends: {one: 10.91.0.1/24, two: 10.91.0.2/24}}
cgroups:
  box: {quota: 20ms, memory: 64MiB}
processes:
  server: {host: two, serve: {listen: 10.91.0.2:9000}}
  leak:
    host: one
    cgroup: box
    open_files: {count: 600, per_second: 30}
    await: {units: 100, within: 5s}
diagnose: {target: leak, warmup: 1s}
expect:
  verdict: fd-limit
  forbidden: [cpu-throttled]
cures:
  close:
    title: it closes
    change: {processes: {leak: {open_files: {per_second: null, count: 20}, await: {units: 20}}}}
    moves: [{metric: throughput, factor_at_most: 0.5, because: it opens none}]
`

func files(text string) fs.FS {
	return fstest.MapFS{"leak/scenario.yaml": {Data: []byte(text)}, "leak/README.md": {Data: []byte("# leak\n")}}
}

func TestRead(t *testing.T) {
	s, err := Read(files(base), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	cured := s.Cures[0].Site.Processes[1]
	switch {
	case s.Site.Hosts[0].Name != "one" || s.Site.Hosts[0].Sysctls["net.ipv4.tcp_tw_reuse"] != "0":
		t.Errorf("hosts %+v", s.Site.Hosts)
	case s.Site.Cgroups[0] != Cgroup{Name: "box", Quota: 20 * time.Millisecond, Memory: 64 << 20}:
		t.Errorf("cgroups %+v", s.Site.Cgroups)
	case s.Site.Processes[0].Name != "server" || s.Site.Processes[1].Name != "leak":
		t.Errorf("processes are not in the order of the file: %+v", s.Site.Processes)
	case *s.Site.Processes[1].OpenFiles != OpenFiles{Count: 600, PerSecond: 30}:
		t.Errorf("the cure changed what it cures: %+v", s.Site.Processes[1].OpenFiles)
	case *cured.OpenFiles != OpenFiles{Count: 20}:
		t.Errorf("cured open_files %+v", cured.OpenFiles)
	case cured.Await != Await{Units: 20, Within: 5 * time.Second}:
		t.Errorf("cured await %+v", cured.Await)
	case cured.Cgroup != "box":
		t.Error("the cure lost what it does not change")
	}
}

// TestReadPlans: the plans of package load are read with their own names. A load without an end ends with the phase.
func TestReadPlans(t *testing.T) {
	text := strings.Replace(base, "  server: {host: two, serve: {listen: 10.91.0.2:9000}}\n",
		`  server: {host: two, answer: {listen: "10.91.0.2:9000", tls: rsa, service_time: 20ms, stall: {every: 5s, for: 1s}}}
  client: {host: one, load: {target: "10.91.0.2:9000", tls: full, rate: 2.5, requests_per_conn: 1}}
  short: {host: one, for: 3s, load: {target: "10.91.0.2:9000"}}
  steps: {host: one, load: {target: "10.91.0.2:9000", steps: [{rate: 10, for: 2s}, {rate: 20, for: 1s}]}}
`, 1)
	s, err := Read(files(text), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	answer := load.ServerPlan{
		Listen: "10.91.0.2:9000", TLS: load.RSAKey, ServiceTime: 20 * time.Millisecond,
		Stall: load.Stall{Every: 5 * time.Second, For: time.Second},
	}
	if diff := cmp.Diff(&answer, s.Site.Processes[0].Answer); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	for i, want := range []load.Plan{
		{Target: "10.91.0.2:9000", TLS: load.FullTLS, Rate: 2.5, RequestsPerConn: 1, Duration: maxPhase},
		{Target: "10.91.0.2:9000", Duration: 3 * time.Second},
		{Target: "10.91.0.2:9000", Steps: []load.Step{{Rate: 10, For: 2 * time.Second}, {Rate: 20, For: time.Second}}},
	} {
		p := &s.Site.Processes[i+1]
		if diff := cmp.Diff(want, p.loadPlan()); diff != "" {
			t.Errorf("load of %s (-want +got):\n%s", p.Name, diff)
		}
		if ends := i > 0; p.finite() != ends {
			t.Errorf("%s: finite %v, want %v", p.Name, p.finite(), ends)
		}
	}
}

// TestMistakes has every kind of mistake in a file. Each is refused with the line, and with the nearest name if there
// is one.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		name, line, by string // a line of base and its replacement
		want           string
	}{
		{
			"unknown field", "    host: one", "    hots: one",
			`leak/scenario.yaml:15: unknown field "hots" in processes.leak: did you mean host?`,
		},
		{
			"unknown field at the top", "title: A leak", "titel: A leak",
			`:2: unknown field "titel": did you mean title?`,
		},
		{
			"unknown field without a near one", "vm: {mode: allowed}", "vm: {mode: allowed, xyzzy: 1}",
			`:3: unknown field "xyzzy" in vm: it has mode, reason`,
		},
		{
			"what is left of no story", "vm: {mode: allowed}", "vm: {mode: allowed}\nleft: {verdict: none}",
			":4: left: a story alone has it",
		},
		{
			"another verdict of no story", "  verdict: fd-limit", "  verdict: fd-limit\n  or: [cpu-throttled]",
			":22: expect.or: a rung of a story alone has it",
		},
		{
			"unknown field in a cure", "    title: it closes", "    titel: it closes",
			`:25: unknown field "titel" in cures.close: did you mean title?`,
		},
		{
			"unknown field in a change", "    change: {processes: {leak: {open_files: {per_second: null, count: 20}, " +
				"await: {units: 20}}}}",
			"    change: {processes: {leak: {open_files: {cuont: 20}}}}",
			`:26: unknown field "cuont" in processes.leak.open_files: did you mean count?`,
		},
		{
			"time without unit", "    await: {units: 100, within: 5s}", "    await: {within: 5}",
			`:18: processes.leak.await.within: 5 has no unit: write 5s or 5ms`,
		},
		{
			"time with a wrong unit", "    await: {units: 100, within: 5s}", "    await: {within: 5 seconds}",
			`:18: processes.leak.await.within: "5 seconds" is not a time with its unit`,
		},
		{
			"negative time", "diagnose: {target: leak, warmup: 1s}", "diagnose: {target: leak, warmup: -1s}",
			":19: diagnose.warmup: -1s is negative",
		},
		{
			"size with a wrong unit", "  box: {quota: 20ms, memory: 64MiB}", "  box: {memory: 64MB}",
			`:11: cgroups.box.memory: "64MB" is not a size with its unit`,
		},
		{
			"word for a number", "    open_files: {count: 600, per_second: 30}", "    open_files: {count: many}",
			`:17: processes.leak.open_files.count: "many" is not a whole number`,
		},
		{
			"negative number", "    open_files: {count: 600, per_second: 30}", "    open_files: {count: -1}",
			`:17: processes.leak.open_files.count: "-1" is not a whole number of zero or more`,
		},
		{
			"word for true", "vm: {mode: allowed}", "vm: {mode: allowed}\nci: maybe",
			`:4: ci: "maybe" is not true or false`,
		},
		{
			"list for a mapping", "  box: {quota: 20ms, memory: 64MiB}", "  - box",
			":11: cgroups: want names with a colon each",
		},
		{
			"mapping for a list", "  forbidden: [cpu-throttled]", "  forbidden: {cpu-throttled: }",
			":22: expect.forbidden: want a list",
		},
		{"field given twice", "title: A leak", "title: A leak\ntitle: Another", ":3: title is given twice"},
		{
			"process given twice", "  server: {host: two, serve: {listen: 10.91.0.2:9000}}",
			"  leak: {host: two, sleep: }",
			"leak is given twice",
		},
		{"anchor", "vm: {mode: allowed}", "vm: &vm {mode: allowed}", ":3: vm: anchors and aliases are not supported"},
		{"not YAML", "title: A leak", "title: {", "leak/scenario.yaml: "},
		{"two documents", "title: A leak", "title: A leak\n---\nname: other", "want one document"},
		{
			"unknown check", "  verdict: fd-limit", "  verdict: fd-limits",
			`:21: expect.verdict: there is no check or verdict "fd-limits": did you mean fd-limit?`,
		},
		{
			"unknown check in a list", "  forbidden: [cpu-throttled]", "  forbidden: [fd-limit, cpu-throtled]",
			`:22: expect.forbidden: there is no check "cpu-throtled": did you mean cpu-throttled?`,
		},
		{
			"unknown host", "    host: one", "    host: oen",
			`:15: processes.leak.host: there is no host "oen": did you mean one?`,
		},
		{
			"unknown cgroup", "    cgroup: box", "    cgroup: bax",
			`:16: processes.leak.cgroup: there is no cgroup "bax": did you mean box?`,
		},
		{
			"unknown target", "diagnose: {target: leak, warmup: 1s}", "diagnose: {target: leek}",
			`:19: diagnose.target: there is no process "leek": did you mean leak?`,
		},
		{
			"a ping from nowhere", "diagnose: {target: leak, warmup: 1s}",
			`diagnose: {target: leak, ping: "10.91.0.2:9000"}`,
			":19: diagnose: ping and vantages go together",
		},
		{
			"unknown vantage", "diagnose: {target: leak, warmup: 1s}",
			`diagnose: {target: leak, ping: "10.91.0.2:9000", vantages: {outsied: leak}}`,
			`there is no vantage "outsied": did you mean outside?`,
		},
		{
			"a vantage without its process", "diagnose: {target: leak, warmup: 1s}",
			`diagnose: {target: leak, ping: "10.91.0.2:9000", vantages: {outside: leek}}`,
			`there is no process "leek": did you mean leak?`,
		},
		{
			"unknown metric", "    moves: [{metric: throughput, factor_at_most: 0.5, because: it opens none}]",
			"    moves: [{metric: thruput, at_most: 1}]",
			`there is no metric "thruput": did you mean throughput?`,
		},
		{
			"a cure without its arithmetic", "    moves: [{metric: throughput, factor_at_most: 0.5, because: it " +
				"opens none}]",
			"    moves: [{metric: throughput, factor_at_most: 0.5}]",
			"cures.close.moves: throughput: because is missing: show the arithmetic",
		},
		{
			"no bound", "    moves: [{metric: throughput, factor_at_most: 0.5, because: it opens none}]",
			"    moves: [{metric: throughput}]",
			"throughput has no bound",
		},
		{
			"one end", "  wire: {ends: {one: 10.91.0.1/24, two: 10.91.0.2/24}}", "  wire: {ends: {one: 10.91.0.1/24}}",
			":9: links.wire.ends: want two hosts",
		},
		{
			"unknown field of a plan", "  server: {host: two, serve: {listen: 10.91.0.2:9000}}",
			`  server: {host: two, answer: {listen: "10.91.0.2:9000", backlok: 5}}`,
			`:13: unknown field "backlok" in processes.server.answer: did you mean backlog?`,
		},
		{
			"what package load refuses", "  server: {host: two, serve: {listen: 10.91.0.2:9000}}",
			`  server: {host: two, load: {target: "10.91.0.2:9000", tls: yes}}`,
			`:13: processes.server.load: load plan: tls "yes": want one of`,
		},
		{
			"what is no data of a plan", "  server: {host: two, serve: {listen: 10.91.0.2:9000}}",
			`  server: {host: two, load: {target: "10.91.0.2:9000", "-": 1}}`,
			`:13: unknown field "-" in processes.server.load`,
		},
		{
			"delay with rps", "  wire: {ends: {one: 10.91.0.1/24, two: 10.91.0.2/24}}",
			"  wire: {ends: {one: 10.91.0.1/24, two: 10.91.0.2/24}, delay: 10ms, rps: {one: 1}}",
			":9: links.wire.rps: a link with a delay has no receive queues",
		},
		{"host with a dash", "  two:", "  t-wo:", `:7: hosts.t-wo: the name "t-wo": want`},
		{"process with a slash", "  leak:", "  ../leak:", `processes.../leak: the name "../leak": want`},
		{
			"no port", "  server: {host: two, serve: {listen: 10.91.0.2:9000}}",
			"  server: {host: two, serve: {listen: 10.91.0.2}}",
			`:13: processes.server.serve.listen: "10.91.0.2" is not an address with a port`,
		},
		{
			"no prefix", "  wire: {ends: {one: 10.91.0.1/24, two: 10.91.0.2/24}}",
			"  wire: {ends: {one: 10.91.0.1, two: 10.91.0.2/24}}",
			`:9: links.wire.ends.one: "10.91.0.1" is not an address with a prefix`,
		},
		{
			"two modes", "    host: one", "    host: one\n    sleep: {}",
			"processes.leak: does 2 things (open_files, sleep)",
		},
		{
			"a change removes what is needed",
			"    change: {processes: {leak: {open_files: {per_second: null, count: 20}, await: {units: 20}}}}",
			"    change: {hosts: {one: null}}", `cures.close.change: processes.leak.host: there is no host "one"`,
		},
		{
			"a gap that is none", "  forbidden: [cpu-throttled]", "  not_assessed: {fd-limit: later}",
			":22: expect.not_assessed.fd-limit: the check is there: require it",
		},
		{
			"an open verdict without a gap", "  verdict: fd-limit", "  verdict: open",
			"say in not_assessed which finding is missing",
		},
		{"no reason for a VM", "vm: {mode: allowed}", "vm: {mode: required}", ":3: vm.reason: missing"},
		{
			"the machine's setting", "title: A leak", "title: A leak\nsysctls: {net.core.netdev_max_backlog: 1}",
			":3: sysctls: these are the whole machine's: they need vm: {mode: required}",
		},
		{
			"the machine's setting in a cure",
			"    change: {processes: {leak: {open_files: {per_second: null, count: 20}, await: {units: 20}}}}",
			"    change: {sysctls: {net.core.netdev_max_backlog: 1}}",
			":26: cures.close.change: sysctls: these are the whole machine's",
		},
		{
			"an unknown engine", "  two:", "  two: {engine: dokcer}",
			`:7: hosts.two.engine: there is no engine "dokcer": did you mean docker?`,
		},
		{"an engine without its tools", "  two:", "  two: {engine: docker}", "needs.tools: missing: dockerd, which"},
		{
			"a container without an engine", "    cgroup: box", "    container: {cpus: 0.5}",
			":16: processes.leak.container: the host one has no engine: give hosts.one.engine",
		},
		{
			"a container in a cgroup", "    cgroup: box", "    cgroup: box\n    container: {}",
			"processes.leak.container: the engine makes the cgroup of a container",
		},
		{
			"a container with an affinity", "    cgroup: box", "    affinity: [0]\n    container: {}",
			"processes.leak.container: the engine places a container",
		},
		{
			"a CPU that is not needed", "    cgroup: box", "    cgroup: box\n    affinity: [0, 1]",
			":17: processes.leak.affinity: [0 1]: want CPUs from 0 to 0, as needs.cpus is 1",
		},
		{
			"an unknown network", "    cgroup: box", "    container: {network: hots}",
			`:16: processes.leak.container.network: there is no network "hots": did you mean host?`,
		},
		{
			"publish in the host's network", "    cgroup: box", "    container: {network: host, publish: [80]}",
			"processes.leak.container.publish: in the host's network there is nothing to publish",
		},
		{
			"another program in a container", "    open_files: {count: 600, per_second: 30}",
			"    container: {}\n    run: {command: [nginx]}",
			"processes.leak.container: a container has perfdoctor in it and no other program",
		},
		{
			"an unknown limit of a container", "    cgroup: box", "    container: {cpu: 0.5}",
			`:16: unknown field "cpu" in processes.leak.container: did you mean cpus?`,
		},
		{"another name", "name: leak", "name: leek", `:1: name: "leek": must be the name of its directory, leak`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(base, tt.line+"\n", tt.by+"\n", 1)
			if text == base {
				t.Fatalf("base has no line %q", tt.line)
			}
			_, err := Read(files(text), "leak", checkNames)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error %v, want one that is ErrInvalid", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestStoryIsRequired(t *testing.T) {
	_, err := Read(fstest.MapFS{"leak/scenario.yaml": {Data: []byte(base)}}, "leak", checkNames)
	if err == nil || !strings.Contains(err.Error(), "a scenario has a story beside it") {
		t.Errorf("error %v, want one about the README", err)
	}
}

func TestAllReportsEveryFile(t *testing.T) {
	bad := strings.Replace(base, "title: A leak\n", "titel: A leak\n", 1)
	fsys := fstest.MapFS{
		"leak/scenario.yaml": {Data: []byte(base)}, "leak/README.md": {},
		"x/scenario.yaml": {Data: []byte(bad)}, "y/scenario.yaml": {Data: []byte(bad)},
	}
	all, err := All(fsys, checkNames)
	if len(all) != 1 || err == nil {
		t.Fatalf("%d scenarios, error %v", len(all), err)
	}
	for _, at := range []string{"x/scenario.yaml:2", "y/scenario.yaml:2"} {
		if !strings.Contains(err.Error(), at) {
			t.Errorf("error %v, want one that names %s", err, at)
		}
	}
}

// FuzzRead: whatever the bytes are, the answer is a scenario or an ErrInvalid.
func FuzzRead(f *testing.F) {
	f.Add(base)
	f.Add(storyBase)
	f.Add("a: &a [*a]")
	f.Add("")
	f.Add("cures: {x: {change: [1]}}")
	f.Add("- 1")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Read(files(text), "leak", checkNames); err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("error %v, want one that is ErrInvalid", err)
		}
	})
}
