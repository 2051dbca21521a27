package code

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	typeCheckInfo = &check.Param{
		Name: "info", Default: 0.1, Unit: quantity.Ratio,
		Why: "of searches: a healthy program that reads JSON with Jackson had 0.4 %, a loop with one odd object " +
			"among 512 had 4.8 %",
	}
	searchFloor = &check.Param{
		Name: "search", Default: 0.03, Unit: quantity.Ratio,
		Why: "of searches, where most of the time is in the comparison: 5.7 % and more while two CPUs wait for the " +
			"line; Jackson had 0.4 %",
	}
	compareShare = &check.Param{
		Name: "waiting", Default: 0.6, Unit: quantity.Ratio,
		Why: "of the comparisons: 83 to 93 % while two CPUs wait for the line, 34 % while others had one of them; " +
			"Jackson had 2 %",
	}
	typeCheckWarn = &check.Param{
		Name: "warn", Default: 0.25, Unit: quantity.Ratio,
		Why: "of searches and the comparisons before them: polluted programs had 89 to 99 %",
	}
	typeCheckSamples = &check.Param{
		Name: "samples", Default: 200, Unit: quantity.Events,
		Why: "2 s of one CPU: a share of 10 % of 200 is right to within 4 points",
	}
)

var typePollution = &check.Check{
	Name:  "type-pollution",
	Stage: check.Code,
	Doc: `Type checks against interfaces write to memory that all CPUs share

HotSpot remembers in each class the last interface that an object of it was
checked against (instanceof, a cast, a generic call). Code that checks objects
of one class against two interfaces in turn makes it search the class's list
each time and write the answer, and each write takes the cache line from all
other CPUs (JDK-8180450). Adding CPUs then makes it slower. JDK 23 and newer,
and 21 from 21.0.8 on at the latest, look the answer up in a table instead.

No stack shows it: the search is inlined into the caller. Measured, on x86-64:
samples of program counters, by the machine code around them. The search is
recognised by repne scasq and runs only when the remembered interface is
another one. At the comparison before it, a CPU waits for the line that another
has written. That wait, or a sample at the write that follows a search,
distinguishes type pollution from checks that honestly answer no: these search
the list and write nothing. A loop that does little but such checks compares
much, too.

Fix: check against one type only on the hot path, a concrete class rather than
an interface, or run a JDK with the fix. The type pollution agent, given at
start, names the classes and places. Risk: casts to concrete classes couple code.
Won't help: a larger heap or more threads.
Disproof: the agent counts few checks, or the same program is as slow on JDK 25.`,
	URL:   "https://bugs.openjdk.org/browse/JDK-8180450",
	Needs: []metric.Metric{metric.TypeCheckSamples},
	Uses: []metric.Metric{
		metric.CPUProfileSamples, metric.ProcessCPU, metric.JVMVersion, metric.JVMFlag, metric.JVMSuperHash,
		metric.JVMInfo,
		metric.TargetInfo,
	},
	Only: evidence.OnlyJVM,
	Params: []*check.Param{
		typeCheckInfo, typeCheckWarn, searchFloor, compareShare, typeCheckSamples,
		evidence.ParamIdle, evidence.ParamBusy,
	},
	Beyond: "an agent, or another JDK",
	Run:    runTypePollution,
}

// typeChecks are the samples of one JVM.
type typeChecks struct {
	pid                            string
	search, write, compare, others float64
}

func (t *typeChecks) all() float64 { return t.search + t.write + t.compare + t.others }

func (t *typeChecks) share(label string, n float64) quantity.Value {
	all := quantity.Of("samples of the JVM", t.all(), quantity.Events)
	return quantity.Of("samples", n, quantity.Events).Per(all).Named("%s", label)
}

// searching is the share of the samples in searches, including the write of the result.
func (t *typeChecks) searching() quantity.Value {
	return t.share("share of the CPU samples in the search of a type check", t.search+t.write)
}

// comparing is the share just before the jump to a search, where a CPU waits for what another has written.
func (t *typeChecks) comparing() quantity.Value {
	return t.share("share in comparisons before a search", t.compare)
}

// checking is the sum of both.
func (t *typeChecks) checking() quantity.Value {
	return t.share("with the comparison before it", t.search+t.write+t.compare)
}

// writes are few, since a write is short, and prove that searches find their interface.
func (t *typeChecks) writes() quantity.Value {
	return quantity.Of("samples at the write of what a search found", t.write, quantity.Events)
}

func runTypePollution(p *check.Pass) error {
	enough := false
	for _, t := range typeChecksOf(p) {
		if !quantity.Of("samples", t.all(), quantity.Events).AtLeast(p.Param(typeCheckSamples)) {
			continue
		}
		enough = true
		p.Read(t.searching())
		assessTypeChecks(p, t)
	}
	if !enough {
		return check.NotAssessed("let the process work while it is watched, or watch it longer",
			"fewer than %.0f samples were taken of each JVM", p.Param(typeCheckSamples).Number())
	}
	return nil
}

func typeChecksOf(p *check.Pass) []*typeChecks {
	var list []*typeChecks
	byPID := map[string]*typeChecks{}
	for _, s := range p.Counter(metric.TypeCheckSamples) {
		n, ok := s.Increase()
		if !ok {
			continue
		}
		t := byPID[s.Label("pid")]
		if t == nil {
			t = &typeChecks{pid: s.Label("pid")}
			byPID[t.pid] = t
			list = append(list, t)
		}
		switch s.Label("at") {
		case "search":
			t.search += n
		case "write":
			t.write += n
		case "compare":
			t.compare += n
		default:
			t.others += n
		}
	}
	return list
}

func assessTypeChecks(p *check.Pass, t *typeChecks) {
	busy := true
	if used, ok := evidence.ProcessCPU(p, t.pid); ok {
		if used.Below(p.Param(evidence.ParamIdle)) {
			return
		}
		busy = used.AtLeast(p.Param(evidence.ParamBusy))
	}
	if fixed, _ := pollutionFixed(p, t.pid); fixed {
		return
	}
	searches := t.searching().AtLeast(p.Param(typeCheckInfo))
	waits := t.searching().AtLeast(p.Param(searchFloor)) && t.comparing().AtLeast(p.Param(compareShare))
	if searches || waits {
		shown := waits || t.write > 0
		p.Report(pollutionFinding(p, t, busy && shown && t.checking().AtLeast(p.Param(typeCheckWarn))))
	}
}

func pollutionFinding(p *check.Pass, t *typeChecks, warn bool) check.Finding {
	_, version := pollutionFixed(p, t.pid)
	share := t.searching()
	f := check.Finding{
		Subject:    evidence.JVMSubject(p, t.pid),
		Severity:   check.Info,
		Confidence: check.Medium,
		Weight:     share.Number(),
		Summary: fmt.Sprintf("type checks search lists in %s of the CPU samples, %s with the comparisons: type "+
			"pollution is suspected",
			share.Text(), t.checking().Text()),
		Evidence: []quantity.Value{share, t.checking(), t.writes()},
		Remedies: []check.Remedy{
			{
				Action: "Run a JDK with the fix (23 or newer, or a late update of 21).",
				Risk:   "a new release of the JDK has to be tested with the program",
				Effect: fmt.Sprintf("the share from %s to 0 %%", share.Text()),
			},
			{
				Action: "Check against one concrete class on the hot path, not against several interfaces in turn.",
				Risk:   "code is coupled to the class",
				Effect: fmt.Sprintf("the share from %s to below %s", share.Text(), p.Param(typeCheckInfo).Text()),
				Before: "if (x instanceof Shape) ((Drawable) x).draw();",
				After:  "if (x instanceof Circle c) c.draw();",
			},
			{
				Action:  "Find the classes and places with the type pollution agent, which must be given at start.",
				Command: "java -javaagent:type-pollution-agent.jar ...",
				Risk:    "it rewrites classes, and slows the program while it runs: not in production",
				Effect:  "names what to change",
			},
		},
		Placebos: []string{"More CPUs: each write takes the cache line from all of them."},
		Disproof: "the agent counts few checks, or the same program on JDK 25 is as slow.",
	}
	if t.write > 0 {
		f.Doubts = append(f.Doubts, "checks that honestly answer no search the list, too; their part of it is not "+
			"known")
	} else {
		f.Confidence = check.Low
		f.Doubts = append(f.Doubts, "no sample was at the write that follows a search: checks that honestly answer "+
			"no search the list, too")
	}
	if version != "" {
		f.Notes = append(f.Notes, "the JVM is "+version+", which has no table of interfaces")
	} else {
		f.Doubts = append(f.Doubts, "the JVM's version is not known: it may have the fix")
	}
	if cpu, ok := hotcode.CodeOf(p.Recording); ok && strconv.Itoa(p.Meta.Target.PID) == t.pid {
		for _, m := range cpu.Methods(evidence.NamedCulprits) {
			f.Notes = append(f.Notes, fmt.Sprintf("a candidate by its own CPU time: %s:%d, %s", m.Name, m.Line,
				quantity.Of("", m.Own/cpu.Total(), quantity.Ratio).Text()))
		}
	}
	if warn {
		f.Severity = check.Warning
	}
	return f
}

// release reads the first and third number of a version such as 21.0.8+9-LTS.
var release = regexp.MustCompile(`^(\d+)(?:\.(\d+)\.(\d+))?`)

// The first feature release with the table (JDK-8180450), and an update of 21 that was seen with it. Earlier updates
// of 21 may have it too: their flag shows it.
const (
	fixedRelease = 23
	fixedUpdate  = 8 // 21.0.8
)

// pollutionFixed reports whether the JVM has the fix, and its version. It goes by the flag UseSecondarySupersTable if
// the flags were read, else by the counter of the time spent making the tables, else by the version.
func pollutionFixed(p *check.Pass, pid string) (fixed bool, version string) {
	if s, ok := evidence.First(p.Info(metric.JVMVersion, "pid", pid)); ok {
		version = s.Label("version")
	}
	if value, _ := evidence.JVMFlag(p, pid, "UseSecondarySupersTable"); value != "" {
		return value == "true", version
	}
	if _, ok := evidence.First(p.Counter(metric.JVMSuperHash, "pid", pid)); ok {
		return true, version
	}
	m := release.FindStringSubmatch(version)
	if m == nil {
		return false, version
	}
	feature, err := strconv.Atoi(m[1])
	if err != nil {
		return false, version
	}
	update, err := strconv.Atoi(m[3])
	return feature >= fixedRelease || feature == 21 && err == nil && update >= fixedUpdate, version
}
