package conventions

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module is the import path that every package of this repository begins with.
const module = "github.com/perfdoctor/perfdoctor/"

// A row says what one package and those below it may import from this repository. The imports of an imported package
// are allowed too, because its API is made of those types.
type row struct {
	pkg  string
	may  []string
	why  string
	pure bool // sees neither the host nor the clock's host: a diagnosis must be repeatable on a laptop
}

// ofRules are the imports that rules of a room may have, and aRoom why.
var ofRules = []string{
	"internal/check", "internal/evidence", "internal/evidence/hotcode", "internal/evidence/ledger",
	"internal/series",
}

const aRoom = "a rule must not be able to see the host, nor another room"

// table is the architecture. A new package needs a row here, with its reason.
var table = []row{
	{
		pkg: "cmd/perfdoctor",
		may: []string{
			"internal/cli", "internal/cli/command", "internal/lab", "internal/lab/commands",
			"internal/lab/vm/guest", "internal/host/door", "internal/cli/experiment",
		},
		why: "main is context, signals and exit code, joins the commands of scenarios to the others, and is the " +
			"process of a scenario that was started from here, one that reads memory for another or undoes its " +
			"experiment, or a guest's init",
	},
	{
		pkg: "internal/cli/command", may: []string{"internal/input/spelling"},
		why: "what all commands share, whatever they do: streams, exit codes, formats, errors in the call",
	},
	{
		pkg: "internal/cli",
		may: []string{
			"internal/cli/command", "internal/cli/experiment", "internal/cli/licenses", "internal/collectors",
			"internal/checks",
			"internal/compare", "internal/evidence",
			"internal/report", "internal/report/html", "internal/daemon/exporter", "internal/daemon/flight",
			"internal/daemon/push", "internal/daemon/front",
			"internal/recording", "internal/host", "internal/jvm", "internal/input/spelling",
			"internal/collect/vantage",
		},
		why: "knows every part that looks at a host, and nothing that builds a sick one",
	},
	{
		pkg: "internal/cli/experiment",
		may: []string{"internal/cli/command", "internal/host", "internal/host/cgroupfs"},
		why: "changes this host and undoes it: what it needs has to be little, as nothing else of perfdoctor does so",
	},
	{
		pkg: "internal/lab/commands",
		may: []string{
			"internal/cli", "internal/cli/command", "internal/lab/scenario", "internal/lab/vm", "internal/lab/vm/guest",
			"internal/check", "internal/checks", "internal/compare", "internal/recording", "internal/report",
			"internal/input/spelling", "scenarios",
		},
		why: "the commands of scenarios, which observe as the command line does",
	},
	{
		pkg: "internal/dev/docgen", may: []string{"internal/cli", "internal/lab/commands"},
		why: "writes the pages about commands, checks and metrics from what the command line shows",
	},
	{
		pkg: "internal/dev/fleetgen", may: []string{"internal/checks"},
		why: "writes a fleet's alert rules and dashboard from the checks",
	},
	{
		pkg: "tools/release", may: []string{"internal/jvm/asprof/library"},
		why: "builds and packs the program and says what is in it; only the pinned profiler is named nowhere else",
	},
	{
		pkg: "tools/conntrack",
		why: "dials for Prometheus's client configuration, in a module whose name it takes: leaf",
	},
	{pkg: "deploy/kubernetes/validate", why: "reads manifests with the types of Kubernetes, in a module of its " +
		"own: leaf"},
	{pkg: "internal/recording/metric/quantity", pure: true, why: "a number with its unit: leaf"},
	{
		pkg: "internal/recording/metric", may: []string{"internal/recording/metric/quantity"}, pure: true,
		why: "a metric has a unit",
	},
	{pkg: "internal/recording/stacks", pure: true, why: "profiles are data of their own: leaf"},
	{pkg: "internal/series", pure: true, why: "joins readings by time, whoever read them: leaf"},
	{
		pkg: "internal/jvm/jfr", may: []string{"internal/recording/stacks", "internal/input/firewall"}, pure: true,
		why: "turns the bytes of a profiler's file into profiles, wherever they were recorded",
	},
	{pkg: "internal/report/junit", pure: true, why: "a file format, whoever fills it: leaf"},
	{
		pkg: "internal/recording",
		may: []string{
			"internal/recording/metric", "internal/recording/partial", "internal/recording/stacks",
			"internal/input/firewall", "internal/input/spelling", "internal/series",
		},
		why: "the file holds metrics and profiles, without secrets; it knows files, not hosts, and says which " +
			"metric a " +
			"misspelt one may be",
	},
	{
		pkg: "internal/check", may: []string{"internal/recording"}, pure: true,
		why: "a check is a pure function of a recording",
	},
	{
		pkg: "internal/checks",
		may: []string{
			"internal/check", "internal/checks/path", "internal/checks/connections", "internal/checks/kernel",
			"internal/checks/limits", "internal/checks/runtime", "internal/checks/code", "internal/checks/signature",
			"internal/checks/waits",
		},
		pure: true, why: "the suite: the rules of all rooms in their order, and what explains what",
	},
	{pkg: "internal/checks/path", may: ofRules, pure: true, why: aRoom},
	{pkg: "internal/checks/connections", may: ofRules, pure: true, why: aRoom},
	{pkg: "internal/checks/kernel", may: ofRules, pure: true, why: aRoom},
	{pkg: "internal/checks/limits", may: ofRules, pure: true, why: aRoom},
	{pkg: "internal/checks/waits", may: ofRules, pure: true, why: aRoom},
	{
		pkg: "internal/checks/runtime", may: append([]string{"internal/checks/signature"}, ofRules...), pure: true,
		why: aRoom + "; two rules of locks and logs leave to the table of signatures what its rows know",
	},
	{pkg: "internal/checks/code", may: ofRules, pure: true, why: aRoom},
	{
		pkg: "internal/checks/signature",
		may: append([]string{"internal/input/strictyaml", "internal/input/spelling"}, ofRules...), pure: true,
		why: "makes rules of a table of profiles' patterns, the built-in one or a user's: it knows no other rule",
	},
	{
		pkg: "internal/checks/checktest", may: []string{"internal/check"},
		why: "runs a room's cases in its tests: files in, what the checks say out",
	},
	{
		pkg: "internal/evidence", may: []string{
			"internal/check", "internal/series", "internal/evidence/hotcode", "internal/evidence/keynumber",
			"internal/evidence/ledger", "internal/evidence/usage",
		},
		pure: true,
		why:  "what several rules read of a recording: it knows no rule",
	},
	{
		pkg: "internal/evidence/usage", may: []string{"internal/recording"}, pure: true,
		why: "counts the CPU time of processes that come and go, once for all that speak of it",
	},
	{
		pkg: "internal/evidence/hotcode", may: []string{"internal/recording", "internal/evidence/usage"}, pure: true,
		why: "tells whose code a profile finds hot, for checks and the report alike",
	},
	{
		pkg: "internal/evidence/ledger", may: []string{"internal/recording"}, pure: true,
		why: "the account of a target's time, for checks and the report alike",
	},
	{pkg: "internal/recording/partial", why: "files that are there as a whole or not at all: leaf"},
	{pkg: "internal/input/firewall", pure: true, why: "turns a panic into an error, for all that read foreign " +
		"bytes: leaf"},
	{pkg: "internal/host/clock", why: "waits, for whoever has a context: leaf"},
	{pkg: "internal/host/cgroupfs", why: "the text of control groups' files, wherever they were read: leaf"},
	{pkg: "internal/host/door", why: "opens what belongs to a target: leaf"},
	{
		pkg: "internal/host/unwind", may: []string{"internal/host/door"},
		why: "walks stacks by what files say of frames, whoever took them",
	},
	{
		pkg: "internal/host", may: []string{"internal/host/door", "internal/host/cgroupfs", "internal/input/firewall"},
		why: "reads kernel, namespaces and cgroups; knows nothing of metrics",
	},
	{pkg: "internal/kernel/syscalls", why: "names of system calls: leaf"},
	{pkg: "internal/kernel/sockdiag", why: "a netlink protocol: leaf"},
	{pkg: "internal/kernel/perfevent", why: "a system call: leaf"},
	{pkg: "internal/kernel/netfilter", why: "a netlink protocol: leaf"},
	{pkg: "bpf", why: "programs of the kernel, and what is generated from them: leaf"},
	{
		pkg: "internal/jvm", may: []string{"internal/host/door", "internal/host/cgroupfs", "internal/input/firewall"},
		why: "HotSpot's attach protocol, hsperfdata and perf maps",
	},
	{
		pkg: "internal/collectors/dotnet/dotnettest", may: []string{"internal/dev/testenv"},
		why: "runs programs of .NET for the tests of those that read them",
	},
	{
		pkg: "internal/jvm/asprof", may: []string{
			"internal/jvm", "internal/recording/stacks",
			"internal/jvm/asprof/library",
		},
		why: "a profiler's session in a JVM: attaches to it, and names events as profiles do",
	},
	{pkg: "internal/jvm/asprof/library", why: "a file for the binary, unpacked: leaf"},
	{
		pkg: "internal/jvm/asprof/fetch", may: []string{"internal/jvm/asprof/library"},
		why: "brings the pinned file before a build; only what pins and packs it may be known to it",
	},
	{
		pkg: "internal/cli/licenses", may: []string{"internal/jvm/asprof/library", "internal/report/html/bundle"},
		why: "says what is in the binary, and the bundled profiler and page program may be in it or not",
	},
	{
		pkg: "internal/collect", may: []string{"internal/host", "internal/recording"},
		why: "the scheduler samples a host into a recording and knows no collector",
	},
	{
		pkg: "internal/collectors",
		may: []string{
			"internal/host/cgroupfs",
			"internal/collect", "internal/host/door", "internal/host/unwind", "internal/kernel/sockdiag",
			"internal/kernel/perfevent",
			"internal/kernel/netfilter", "internal/kernel/syscalls", "internal/jvm", "internal/jvm/jfr",
			"internal/jvm/asprof", "internal/jvm/asprof/library",
			"internal/recording/stacks", "bpf",
		},
		why: "a collector turns what a leaf reads into metrics; it never sees a check",
	},
	{
		pkg: "internal/collect/collecttest", may: []string{"internal/collect", "internal/host", "internal/recording"},
		why: "samples a process with one collector, in that collector's tests",
	},
	{
		pkg: "internal/collect/vantage", may: []string{"internal/recording"},
		why: "measures from another place than the diagnosed host, for its recording: no collector, and for " +
			"scenarios too",
	},
	{
		pkg: "internal/report", may: []string{
			"internal/check", "internal/recording/stacks", "internal/evidence",
			"internal/evidence/hotcode", "internal/evidence/keynumber", "internal/evidence/ledger",
			"internal/report/junit", "internal/compare",
		},
		why: "renders results, which may come from another machine",
	},
	{
		pkg: "internal/evidence/keynumber", may: []string{"internal/recording", "internal/evidence/usage"}, pure: true,
		why: "reads the key numbers of a recording, for the report of one, the comparison of two and the trend of many",
	},
	{
		pkg: "internal/compare", may: []string{
			"internal/check", "internal/recording/stacks",
			"internal/evidence/hotcode", "internal/evidence/keynumber",
		}, pure: true,
		why: "tells two recordings apart, wherever they were made",
	},
	{
		pkg: "internal/report/html", may: []string{
			"internal/report", "internal/report/html/bundle", "internal/report/page",
			"internal/compare",
		}, pure: true,
		why: "writes a page of a report and its recording; it knows no rule, only what each was read from",
	},
	{pkg: "internal/report/html/bundle", why: "files for the binary: leaf"},
	{pkg: "internal/report/page", pure: true, why: "fills templates, whatever their data: leaf"},
	{
		pkg: "internal/daemon/exporter", may: []string{
			"internal/host/cgroupfs", "internal/collect", "internal/check", "internal/report/page",
		},
		why: "the same samples and the same checks, for ever",
	},
	{
		pkg: "internal/daemon/episode", may: []string{"internal/daemon/exporter"},
		why: "tells from windows when a finding begins and ends, for all that act on it",
	},
	{
		pkg: "internal/daemon/flight", may: []string{"internal/daemon/exporter", "internal/daemon/episode"},
		why: "keeps windows and writes them down; it takes what it is handed, and no measurement of its own",
	},
	{
		pkg: "internal/daemon/front", may: []string{
			"internal/daemon/exporter", "internal/daemon/flight", "internal/check", "internal/evidence",
			"internal/report",
		},
		why: "shows what the exporter and the recorder know, to who has a browser and no time",
	},
	{
		pkg: "internal/daemon/push", may: []string{
			"internal/daemon/exporter", "internal/daemon/episode",
			"internal/recording/stacks",
		},
		why: "sends what it is handed to other systems, in their formats",
	},
	{
		pkg: "internal/lab/scenario",
		may: []string{
			"internal/check", "internal/lab", "internal/lab/load", "internal/input/spelling",
			"internal/input/strictyaml", "internal/lab/vm/guest",
			"internal/collect/vantage",
			"internal/report/junit",
		},
		why: "a fault, and the findings expected of it: it builds hosts and judges results; who observes is handed " +
			"in. It " +
			"asks whether it is in a guest before it touches what is not its hosts' own",
	},
	{
		pkg: "internal/lab/exam",
		may: []string{
			"internal/lab/scenario", "internal/input/strictyaml", "internal/input/spelling", "internal/lab",
			"internal/recording/partial",
		},
		why: "builds others' faults as a scenario does, runs the built program as a stranger would, and scores its " +
			"JSON: it knows no rule",
	},
	{pkg: "scenarios", why: "files for the binary, and not a line of code beside: leaf"},
	{pkg: "internal/input/spelling", pure: true, why: "compares words: leaf"},
	{
		pkg: "internal/input/strictyaml", may: []string{"internal/input/spelling"}, pure: true,
		why: "reads what people write and says what is misspelt",
	},
	{
		pkg: "internal/lab", may: []string{"internal/host/cgroupfs", "internal/lab/load", "internal/lab/vm/guest"},
		why: "sick hosts and the load on them, for scenarios, tests and the demo; it must not know what will be " +
			"found. Settings " +
			"of the whole machine it changes in a guest only, and asks whether it is in one",
	},
	{
		pkg: "internal/lab/labtest", may: []string{"internal/lab", "internal/dev/testenv"},
		why: "labs for tests, which may be skipped",
	},
	{
		pkg: "internal/lab/vm", may: []string{"internal/lab/vm/guest"},
		why: "boots a kernel with a program in it and brings its results back; which program, it does not know",
	},
	{
		pkg: "internal/lab/kernels", may: []string{"internal/lab/vm", "internal/collectors"},
		why: "runs tests under other kernels, and knows from the collectors which kernel each declares to need",
	},
	{
		pkg: "internal/lab/languages", may: []string{"internal/lab"},
		why: "puts one fault in six languages to the built program, of which it reads the JSON alone",
	},
	{
		pkg: "internal/lab/peers",
		may: []string{
			"internal/lab", "internal/host", "internal/collectors", "internal/collect", "internal/evidence/keynumber",
			"internal/jvm/asprof", "internal/jvm/asprof/library", "internal/recording/stacks",
		},
		why: "measures the built program beside others, and a collector's single sample as a program of its own",
	},
	{pkg: "workloads/languages", why: "a sick program, which knows nothing of its doctor: leaf"},
	{pkg: "internal/lab/vm/guest", why: "process 1 of a guest, and the stream to its host: leaf"},
	{
		pkg: "internal/dev/hostile", may: []string{"internal/jvm/asprof/library", "internal/recording/stacks"},
		why: "attacks the built program as a hostile target does; a library to swap for perfdoctor's is the library " +
			"itself, and a profile " +
			"that is heavy is made as any",
	},
	{pkg: "internal/dev/e2e", why: "sees a diagnosis as a user does, by running the program: nothing of ours but labs"},
	{
		pkg: "internal/lab/load",
		why: "makes requests with the sockets it is given and counts what came of them; knows neither labs nor " +
			"findings: leaf",
	},
	{pkg: "internal/dev/testenv", why: "what a test needs of its machine: leaf"},
	{
		pkg: "internal/dev/browser", may: []string{"internal/dev/testenv"},
		why: "shows pages to tests, whoever wrote them",
	},
	{pkg: "internal/dev/conventions", why: "these tests read source code only: leaf"},
}

// forTests are packages that any test may import, and nothing else but themselves.
var forTests = []string{
	"internal/checks/checktest", "internal/collect/collecttest", "internal/lab", "internal/lab/labtest",
	"internal/lab/load", "internal/dev/testenv", "internal/collectors/dotnet/dotnettest",
	"internal/dev/browser", "internal/lab/vm/guest",
}

// forAll may be imported by any package that is not pure: waiting belongs to no domain.
var forAll = []string{"internal/host/clock"}

// hostPackages are packages that a pure package must not import: ways to files, processes, sockets and system calls.
var hostPackages = []string{"os", "os/exec", "net", "net/http", "syscall", "golang.org/x/sys/unix"}

// importViolations checks every import of every file against table.
func importViolations(files []file) []string {
	var bad []string
	for _, f := range files {
		r, ok := rowOf(f.pkg())
		if !ok {
			bad = append(bad, fmt.Sprintf("%s: package %s is not in the import table: add a row, with its reason, "+
				"to internal/dev/conventions/imports_test.go", f.path, f.pkg()))
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

// forbidden says why the packages of row r may not import path, or "" if they may.
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
	case test && slices.Contains(forTests, target.pkg), !r.pure && slices.Contains(forAll, target.pkg):
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

// emptyRows finds rows of packages that do not exist. They allow nothing now, but would let a new package of that name
// in unnoticed.
func emptyRows(rows []row, files []file) []string {
	var bad []string
	for _, r := range rows {
		if !slices.ContainsFunc(files, func(f file) bool {
			return f.pkg() == r.pkg ||
				strings.HasPrefix(f.pkg(), r.pkg+"/")
		}) {
			bad = append(
				bad, "there is no package "+r.pkg+": remove its row from internal/dev/conventions/imports_test.go")
		}
	}
	return bad
}

func TestNoEmptyRows(t *testing.T) {
	files := parse(t, os.DirFS("../../.."))
	for _, violation := range emptyRows(table, files) {
		t.Error(violation)
	}
	want := []string{"there is no package internal/gone: remove its row from internal/dev/conventions/imports_test.go"}
	rows := []row{{pkg: "internal/gone"}, {pkg: "internal"}, {pkg: "cmd/perfdoctor"}}
	if diff := cmp.Diff(want, emptyRows(rows, files)); diff != "" {
		t.Errorf("a row without a package is not noticed (-want +got):\n%s", diff)
	}
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
	// The core of the design, checked again in another way so that no combination of rows can undo it.
	for _, name := range []string{"internal/check", "internal/checks", "internal/report"} {
		r, _ := rowOf(name)
		for _, eye := range []string{
			"internal/host", "internal/collect", "internal/collectors",
			"internal/kernel/sockdiag",
		} {
			if slices.Contains(reachable(r), eye) {
				t.Errorf("%s can reach %s, which sees the host", name, eye)
			}
		}
	}
}
