package conventions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// module is the import path that every package of this repository begins with.
const module = "github.com/perfdoctor/perfdoctor/"

// A row says what one package and those below it may import from this repository. What an imported package may
// import itself is allowed too, because its API is made of those types.
type row struct {
	pkg  string
	may  []string
	why  string
	pure bool // sees neither the host nor the clock's host: a diagnosis must be repeatable on a laptop
}

// table is the architecture. A new package needs a row here, with its reason.
var table = []row{
	{
		pkg: "cmd/perfdoctor", may: []string{"internal/cli", "internal/lab", "internal/vm/guest"},
		why: "main is context, signals and exit code; the process of a scenario that was started from here; and a guest's init",
	},
	{
		pkg: "internal/cli",
		may: []string{
			"internal/collectors", "internal/checks", "internal/report", "internal/report/html", "internal/exporter", "internal/scenario",
			"internal/flight", "internal/push",
			"internal/compare",
			"internal/recording", "internal/redact", "internal/host", "internal/jvm", "internal/spelling", "internal/vm",
			"internal/licenses", "internal/vantage", "scenarios",
		},
		why: "the only place that knows every other part",
	},
	{
		pkg: "internal/docgen", may: []string{"internal/cli"},
		why: "writes the pages about commands, checks and metrics from what the command line shows",
	},
	{
		pkg: "internal/fleetgen", may: []string{"internal/checks"},
		why: "writes a fleet's alert rules and dashboard from the checks",
	},
	{
		pkg: "internal/release", may: []string{"internal/asprof/library"},
		why: "builds and packs the program and says what is in it; only the pinned profiler is named nowhere else",
	},
	{pkg: "deploy/kubernetes/validate", why: "reads manifests with the types of Kubernetes, in a module of its own: leaf"},
	{pkg: "internal/quantity", pure: true, why: "a number with its unit: leaf"},
	{pkg: "internal/metric", may: []string{"internal/quantity"}, pure: true, why: "a metric has a unit"},
	{pkg: "internal/stacks", pure: true, why: "profiles are data of their own: leaf"},
	{
		pkg: "internal/jfr", may: []string{"internal/stacks", "internal/firewall"}, pure: true,
		why: "turns the bytes of a profiler's file into profiles, wherever they were recorded",
	},
	{pkg: "internal/junit", pure: true, why: "a file format, whoever fills it: leaf"},
	{pkg: "internal/redact", pure: true, why: "removes secrets from strings, whoever holds them: leaf"},
	{
		pkg: "internal/recording", may: []string{"internal/metric", "internal/stacks", "internal/redact", "internal/firewall", "internal/partial"},
		why: "the file holds metrics and profiles, without secrets; it knows files, not hosts",
	},
	{
		pkg: "internal/check", may: []string{"internal/recording"}, pure: true,
		why: "a check is a pure function of a recording",
	},
	{
		pkg: "internal/checks",
		may: []string{
			"internal/check", "internal/metric", "internal/quantity", "internal/stacks", "internal/hotcode", "internal/strictyaml",
			"internal/spelling",
		},
		pure: true, why: "a rule must not be able to see the host",
	},
	{
		pkg: "internal/hotcode", may: []string{"internal/recording"}, pure: true,
		why: "tells whose code a profile finds hot, for checks and the report alike",
	},
	{pkg: "internal/partial", why: "files that are there as a whole or not at all: leaf"},
	{pkg: "internal/firewall", pure: true, why: "turns a panic into an error, for all that read foreign bytes: leaf"},
	{pkg: "internal/door", why: "opens what belongs to a target: leaf"},
	{pkg: "internal/host", may: []string{"internal/door", "internal/firewall"}, why: "reads kernel, namespaces and cgroups; knows nothing of metrics"},
	{pkg: "internal/sockdiag", why: "a netlink protocol: leaf"},
	{pkg: "internal/perfevent", why: "a system call: leaf"},
	{pkg: "internal/netfilter", why: "a netlink protocol: leaf"},
	{pkg: "bpf", why: "programs of the kernel, and what is generated from them: leaf"},
	{pkg: "internal/jvm", may: []string{"internal/door", "internal/firewall"}, why: "HotSpot's attach protocol, hsperfdata and perf maps"},
	{
		pkg: "internal/asprof", may: []string{"internal/jvm", "internal/stacks", "internal/asprof/library"},
		why: "a profiler's session in a JVM: attaches to it, and names events as profiles do",
	},
	{pkg: "internal/asprof/library", why: "a file for the binary, unpacked: leaf"},
	{
		pkg: "internal/asprof/fetch", may: []string{"internal/asprof/library"},
		why: "brings the pinned file before a build; only what pins and packs it may be known to it",
	},
	{
		pkg: "internal/licenses", may: []string{"internal/asprof/library", "internal/report/html/bundle"},
		why: "says what is in the binary, and the bundled profiler and page program may be in it or not",
	},
	{
		pkg: "internal/collect", may: []string{"internal/host", "internal/recording"},
		why: "the scheduler samples a host into a recording and knows no collector",
	},
	{
		pkg: "internal/collectors",
		may: []string{
			"internal/collect", "internal/door", "internal/sockdiag", "internal/perfevent", "internal/netfilter", "internal/jvm", "internal/jfr",
			"internal/asprof", "internal/asprof/library",
			"internal/stacks", "bpf",
		},
		why: "a collector turns what a leaf reads into metrics; it never sees a check",
	},
	{
		pkg: "internal/vantage", may: []string{"internal/recording"},
		why: "measures from another place than the diagnosed host, for its recording: no collector, and for scenarios too",
	},
	{
		pkg: "internal/report", may: []string{"internal/check", "internal/stacks", "internal/hotcode", "internal/junit", "internal/compare"},
		why: "renders results, which may come from another machine",
	},
	{
		pkg: "internal/compare", may: []string{"internal/check", "internal/stacks", "internal/hotcode"}, pure: true,
		why: "tells two recordings apart, wherever they were made",
	},
	{
		pkg: "internal/report/html", may: []string{"internal/report", "internal/report/html/bundle", "internal/compare"}, pure: true,
		why: "writes a page of a report and its recording; it knows no rule, only what each was read from",
	},
	{pkg: "internal/report/html/bundle", why: "files for the binary: leaf"},
	{
		pkg: "internal/exporter", may: []string{"internal/collect", "internal/check"},
		why: "the same samples and the same checks, for ever",
	},
	{
		pkg: "internal/episode", may: []string{"internal/exporter"},
		why: "tells from windows when a finding begins and ends, for all that act on it",
	},
	{
		pkg: "internal/flight", may: []string{"internal/exporter", "internal/episode"},
		why: "keeps windows and writes them down; it takes what it is handed, and no measurement of its own",
	},
	{
		pkg: "internal/push", may: []string{"internal/exporter", "internal/episode", "internal/stacks"},
		why: "sends what it is handed to other systems, in their formats",
	},
	{
		pkg: "internal/scenario",
		may: []string{
			"internal/check", "internal/lab", "internal/load", "internal/spelling", "internal/strictyaml", "internal/vm/guest",
			"internal/vantage",
			"internal/junit",
		},
		why: "a fault, and the findings expected of it: it builds hosts and judges results; who observes is handed in. It " +
			"asks whether it is in a guest before it touches what is not its hosts' own",
	},
	{pkg: "scenarios", why: "files for the binary, and not a line of code beside: leaf"},
	{pkg: "internal/spelling", pure: true, why: "compares words: leaf"},
	{
		pkg: "internal/strictyaml", may: []string{"internal/spelling"}, pure: true,
		why: "reads what people write and says what is misspelt",
	},
	{
		pkg: "internal/lab", may: []string{"internal/load", "internal/vm/guest"},
		why: "sick hosts and the load on them, for scenarios, tests and the demo; it must not know what will be found. Settings " +
			"of the whole machine it changes in a guest only, and asks whether it is in one",
	},
	{pkg: "internal/lab/labtest", may: []string{"internal/lab", "internal/testenv"}, why: "labs for tests, which may be skipped"},
	{
		pkg: "internal/vm", may: []string{"internal/vm/guest"},
		why: "boots a kernel with a program in it and brings its results back; which program, it does not know",
	},
	{
		pkg: "internal/kernels", may: []string{"internal/vm", "internal/collectors"},
		why: "runs tests under other kernels, and knows from the collectors which kernel each declares to need",
	},
	{pkg: "internal/vm/guest", why: "process 1 of a guest, and the stream to its host: leaf"},
	{
		pkg: "internal/hostile", may: []string{"internal/asprof/library"},
		why: "attacks the built program as a hostile target does; a library to swap for perfdoctor's is the library itself",
	},
	{pkg: "internal/e2e", why: "sees a diagnosis as a user does, by running the program: nothing of ours but labs"},
	{
		pkg: "internal/load",
		why: "makes requests with the sockets it is given and counts what came of them; knows neither labs nor findings: leaf",
	},
	{pkg: "internal/testenv", why: "what a test needs of its machine: leaf"},
	{pkg: "internal/conventions", why: "these tests read source code only: leaf"},
}

// forTests are packages that any test may import, and nothing else but themselves.
var forTests = []string{"internal/lab", "internal/lab/labtest", "internal/load", "internal/testenv"}

// hostPackages are what a pure package must not import: ways to files, processes, sockets and system calls.
var hostPackages = []string{"os", "os/exec", "net", "net/http", "syscall", "golang.org/x/sys/unix"}

// importViolations checks every import of every file against table.
func importViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		r, ok := rowOf(f.pkg())
		if !ok {
			bad = append(bad, fmt.Sprintf("%s: package %s is not in the import table: add a row, with its reason, "+
				"to internal/conventions/imports_test.go", f.path, f.pkg()))
			continue
		}
		for _, path := range f.imports {
			if why := forbidden(r, path, f.isTest()); why != "" {
				bad = append(bad, fmt.Sprintf("%s: %s may not import %s: %s", f.path, r.pkg, path, why))
			}
		}
	}
	return bad
}

// forbidden says why the packages of row r may not import path, or nothing.
func forbidden(r row, path string, test bool) string {
	pkg, ours := strings.CutPrefix(path, module)
	if !ours {
		if r.pure && !test && slices.Contains(hostPackages, path) {
			return "it must not see the host (" + r.why + ")"
		}
		return ""
	}
	target, ok := rowOf(pkg)
	switch {
	case !ok:
		return "there is no row for it"
	case target.pkg == r.pkg:
		return ""
	case test && slices.Contains(forTests, target.pkg):
		return ""
	case !slices.Contains(reachable(r), target.pkg):
		return r.why
	}
	return ""
}

// rowOf finds the row of a package or of the nearest package above it.
func rowOf(pkg string) (row, bool) {
	var best row
	for _, r := range table {
		if (pkg == r.pkg || strings.HasPrefix(pkg, r.pkg+"/")) && len(r.pkg) > len(best.pkg) {
			best = r
		}
	}
	return best, best.pkg != ""
}

// reachable is what r may import, directly and through others.
func reachable(r row) []string {
	var all []string
	for _, pkg := range r.may {
		all = append(all, pkg)
		if next, ok := rowOf(pkg); ok {
			all = append(all, reachable(next)...)
		}
	}
	return all
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range table {
		if seen[r.pkg] {
			t.Errorf("%s has two rows", r.pkg)
		}
		seen[r.pkg] = true
		if r.why == "" {
			t.Errorf("%s has no reason", r.pkg)
		}
	}
	for _, r := range table {
		for _, pkg := range r.may {
			if !seen[pkg] {
				t.Errorf("%s may import %s, which has no row", r.pkg, pkg)
			}
		}
	}
	// The heart of the design, said again in another way so that no combination of rows can undo it.
	for _, name := range []string{"internal/check", "internal/checks", "internal/report"} {
		r, _ := rowOf(name)
		for _, eye := range []string{"internal/host", "internal/collect", "internal/collectors", "internal/sockdiag"} {
			if slices.Contains(reachable(r), eye) {
				t.Errorf("%s can reach %s, which sees the host", name, eye)
			}
		}
	}
}
