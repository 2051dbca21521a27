package checks

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/quantity"
)

var (
	slowPathInfo = &check.Param{
		Name: "info", Default: 0.1, Unit: quantity.Ratio,
		Why: "a healthy program that reads JSON with Jackson had 2.1 % of its samples there",
	}
	slowPathWarn = &check.Param{
		Name: "warn", Default: 0.25, Unit: quantity.Ratio,
		Why: "polluted programs had 62, 66 and 86 %; checks that honestly answer no search the list, too",
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
the share of the samples of the CPU profile whose program counter is next to
repne scasq, the instruction of the search, which runs only when the remembered
interface is another one. Checks that honestly answer no search as well, so
that this is a suspicion.

Cure: check against one type only on the hot path, a concrete class rather than
an interface, or run a JDK with the fix. The type pollution agent, given at
start, names the classes and places. Risk: casts to concrete classes couple code.
Placebo: a larger heap or more threads.
Disproof: the agent counts few checks, or the same program is as slow on JDK 25.`,
	URL:    "https://bugs.openjdk.org/browse/JDK-8180450",
	Needs:  []metric.Metric{metric.TypeCheckSlowPathShare},
	Uses:   []metric.Metric{metric.CPUProfileSamples, metric.ProcessCPU, metric.JVMVersion, metric.JVMFlag, metric.TargetInfo},
	Only:   onlyJava,
	Params: []*check.Param{slowPathInfo, slowPathWarn, codeIdle, codeBusy},
	Run:    runTypePollution,
}

func runTypePollution(p *check.Pass) error {
	s, ok := first(p.Gauge(metric.TypeCheckSlowPathShare))
	if !ok {
		return check.NotAssessed("let the process work while it is profiled", "no program counter was sampled")
	}
	share := quantity.Of("samples next to the search of a type check, share of the CPU samples", s.Last(), quantity.Ratio)
	p.Read(share)
	cpu, profiled := hotcode.CPUOf(p.Recording)
	busy := true
	if profiled && cpu.Window > 0 {
		used := quantity.Of("CPU time", cpu.Total(), quantity.Seconds).Per(quantity.Of("window", cpu.Window, quantity.Seconds)).As(quantity.CPUs)
		if used.Below(p.Param(codeIdle)) {
			return nil
		}
		busy = used.AtLeast(p.Param(codeBusy))
	}
	if fixed, _ := pollutionFixed(p); fixed || share.Below(p.Param(slowPathInfo)) {
		return nil
	}
	p.Report(pollutionFinding(p, share, cpu, busy && share.AtLeast(p.Param(slowPathWarn))))
	return nil
}

func pollutionFinding(p *check.Pass, share quantity.Value, cpu *hotcode.CPU, warn bool) check.Finding {
	_, version := pollutionFixed(p)
	f := check.Finding{
		Subject:    targetSubject(p),
		Severity:   check.Info,
		Confidence: check.Medium,
		Weight:     share.Number(),
		Summary:    fmt.Sprintf("%s of the CPU samples are in searches of type checks: type pollution is suspected", share.Text()),
		Evidence:   []quantity.Value{share},
		Remedies: []check.Remedy{
			{
				Action: "Run a JDK with the fix (23 or newer, or a late update of 21).",
				Risk:   "a new release of the JDK has to be tested with the program",
				Effect: fmt.Sprintf("the share from %s to 0 %%", share.Text()),
			},
			{
				Action: "Check against one concrete class on the hot path, not against several interfaces in turn.",
				Risk:   "code is coupled to the class",
				Effect: fmt.Sprintf("the share from %s to below %s", share.Text(), p.Param(slowPathInfo).Text()),
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
		Doubts:   []string{"checks that honestly answer no search the list, too"},
	}
	if version != "" {
		f.Notes = append(f.Notes, "the JVM is "+version+", which has no table of interfaces")
	} else {
		f.Doubts = append(f.Doubts, "the JVM's version is not known: it may have the fix")
	}
	if cpu != nil {
		for _, m := range cpu.Methods(namedCulprits) {
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

// The first feature release with the table (JDK-8180450), and an update of 21 that was seen with it. Earlier updates of 21 may
// have it too: their flag tells.
const (
	fixedRelease = 23
	fixedUpdate  = 8 // 21.0.8
)

// pollutionFixed tells whether the JVM has the fix: by its flag UseSecondarySupersTable where the flags were read, else by its
// version.
func pollutionFixed(p *check.Pass) (fixed bool, version string) {
	if s, ok := first(p.Info(metric.JVMVersion)); ok {
		version = s.Label("version")
	}
	if s, ok := first(p.Info(metric.JVMFlag, "name", "UseSecondarySupersTable")); ok {
		return s.Label("value") == "true", version
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
