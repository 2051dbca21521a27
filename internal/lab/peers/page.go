package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
)

// figures is everything that a run measured, and where.
type figures struct {
	Date   string
	CPUs   string // "2 x NAME"
	Kernel string
	// The load averages of the minute before and the minute after: what else the machine did.
	Load, LoadAfter float64
	Versions        map[string]string
	Contests        []*Contest
	Growths         []Growth
}

// machine returns figures that say where this run is made, and with which programs.
func (b *bench) machine(ctx context.Context) (*figures, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	cpus, err1 := fs.CPUInfo()
	before, err2 := load()
	var uts unix.Utsname
	if err := errors.Join(err1, err2, unix.Uname(&uts)); err != nil {
		return nil, err
	}
	model := runtime.GOARCH
	if len(cpus) > 0 && cpus[0].ModelName != "" {
		model = cpus[0].ModelName
	}
	return &figures{
		Date: time.Now().UTC().Format(time.DateOnly), CPUs: fmt.Sprintf("%d x %s", len(cpus), model),
		Kernel: strings.SplitN(unix.ByteSliceToString(uts.Release[:]), "-", 2)[0], Load: before,
		Versions: b.versions(ctx),
	}, nil
}

// idleLoad is the load average that an idle machine may still have from a build before the run.
const idleLoad = 1

// load returns the load average of the last minute.
func load() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	l, err := fs.LoadAvg()
	if err != nil {
		return 0, err
	}
	return l.Load1, nil
}

var versionWord = regexp.MustCompile(`v?\d+(\.\d+)+[\w.+-]*|iproute2-[\w.]+`)

// versions returns the versions that the programs report.
func (b *bench) versions(ctx context.Context) map[string]string {
	out := map[string]string{"async-profiler": library.Version}
	for name, argv := range map[string][]string{
		"perfdoctor": {b.doctor, "version"}, "ss": {"ss", "-V"}, "sysstat": {"sar", "-V"}, "nft": {"nft", "-v"},
		"perf": {"perf", "version"}, "bpftrace": {"bpftrace", "--version"}, "java": {"java", "-version"},
		"systemd": {"systemd-cgtop", "--version"}, "node_exporter": {"prometheus-node-exporter", "--version"},
		"PerfSpect": {b.perfspect, "--version"}, "melisai": {b.melisai, "--version"},
	} {
		if argv[0] == "" {
			continue
		}
		said, _ := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if v := versionWord.Find(said); v != nil {
			out[name] = string(v)
		}
		if words := strings.Fields(string(said)); name == "perfdoctor" && len(words) > 1 {
			out[name] = words[1] // a commit
		}
	}
	return out
}

func (b *bench) figuresPath() string { return filepath.Join(b.root, "internal/lab/peers/figures.json") }

// soFar returns the file for the measurements of a run that ends too early.
func (b *bench) soFar() string { return filepath.Join(b.root, "bin/peers.json") }

func (f *figures) save(path string) error {
	data, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644) //nolint:gosec // for everybody
}

// committed returns the figures of the last written run.
func (b *bench) committed() (*figures, error) {
	data, err := os.ReadFile(b.figuresPath())
	if err != nil {
		return nil, err
	}
	f := &figures{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("%s: %w", b.figuresPath(), err)
	}
	return f, nil
}

// A likeness says which ratios of two runs may be compared. Ratios of CPU time differ with the processor and the
// kernel's version. Ratios of memory differ only with the number of CPUs: BPF maps and the heap have a part for each
// CPU.
type likeness int

const (
	unlike likeness = iota
	likeInMemory
	alike
)

func (f *figures) like(other *figures) likeness {
	minor := func(release string) string { return strings.Join(strings.SplitN(release, ".", 3)[:2], ".") }
	number := func(cpus string) string { n, _, _ := strings.Cut(cpus, " "); return n }
	switch {
	case f.CPUs == other.CPUs && minor(f.Kernel+"..") == minor(other.Kernel+".."):
		return alike
	case number(f.CPUs) == number(other.CPUs):
		return likeInMemory
	}
	return unlike
}

// worth is the factor by which a ratio must rise, beyond all noise, to be a fault: a tenth. No user notices less, and
// the peak memory of the same program differs less from build to build.
const worth = 1.1

// compare returns an error if perfdoctor's CPU time or memory, as a ratio to the first peer's, has risen by more than
// the spread of the rounds in this run and in the committed one. Ratios that the machines do not allow to compare are
// only printed.
func (b *bench) compare(now *figures) error {
	then, err := b.committed()
	if err != nil {
		return err
	}
	like := now.like(then)
	if like == unlike {
		return fmt.Errorf("%w: %s, Linux %s", errOther, then.CPUs, then.Kernel)
	}
	var worse []string
	for _, c := range now.Contests {
		i := slices.IndexFunc(then.Contests, func(old *Contest) bool { return old.Name == c.Name })
		if i < 0 {
			return fmt.Errorf("%s: not in %s: run make bench-peers", c.Name, b.figuresPath())
		}
		for _, m := range measures()[1:] {
			was, ok1 := ratio(then.Contests[i], then.Contests[i].Field[1], m.of, surer)
			is, ok2 := ratio(c, c.Field[1], m.of, surer)
			line := fmt.Sprintf("%s: %s by that of %s: was %v, is %v", c.Name, m.name, c.Field[1].Name, was, is)
			switch {
			case !ok1 || !ok2:
				line += ": not measured"
			case like < m.needs:
				line += ": not compared, as the figures are of another machine"
			case is.low > worth*was.high:
				worse = append(worse, line)
			}
			b.say("%s\n", line)
		}
	}
	if len(worse) > 0 {
		return fmt.Errorf("dearer than before, beyond noise and a tenth:\n%s", strings.Join(worse, "\n"))
	}
	return nil
}

// A measure is a column of the table.
type measure struct {
	name, unit string
	of         func(Cost) float64
	needs      likeness // likeness of the machines that comparing its ratios needs
}

func measures() []measure {
	return []measure{
		{"wall time", "s", wallOf, alike},
		{"CPU time", "s", cpuOf, alike},
		{"peak memory", "MiB", mebibytes, likeInMemory},
	}
}

// text returns a contest as rows of a table.
func (c *Contest) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n**%s**: %s", c.Name, c.Work)
	if len(c.Field[0].Costs) > 0 {
		fmt.Fprintf(&out, "; %d rounds", len(c.Field[0].Costs))
	}
	out.WriteString("\n\n| | wall, s | CPU, s | peak, MiB | perfdoctor's wall by it | CPU by it | peak by it | " +
		"command |\n|---|---|---|---|---|---|---|---|\n")
	for _, e := range c.Field {
		if e.Missing != "" {
			fmt.Fprintf(&out, "| %s | not measured, because %s | | | | | | %s |\n", e.Name, oneLine(e.Missing),
				code(e.Command))
			continue
		}
		fmt.Fprintf(&out, "| %s |", e.Name)
		for _, m := range measures() {
			fmt.Fprintf(&out, " %s |", cell(values(e.Costs, m.of)))
		}
		for _, m := range measures() {
			r, ok := ratio(c, e, m.of, sure)
			fmt.Fprintf(&out, " %s |", when(ok && e != c.Field[0], r))
		}
		fmt.Fprintf(&out, " %s |\n", code(e.Command))
	}
	return out.String() + c.more()
}

// more returns what only some contests have.
func (c *Contest) more() string {
	var out strings.Builder
	short := slices.DeleteFunc(slices.Clone(c.Field[0].Costs), func(k Cost) bool { return k.Lost == "" })
	if len(short) > 0 {
		fmt.Fprintf(&out, "\nIn %d of %d rounds perfdoctor says that it left something out: %s.\n", len(short),
			len(c.Field[0].Costs), oneLine(short[0].Lost))
	}
	for _, e := range c.Field {
		if len(e.Costs) == 0 {
			continue
		}
		if e.Costs[0].Kept > 0 {
			fmt.Fprintf(&out, "\nThroughput kept with %s: %v.\n", e.Name, geometric(values(e.Costs, keptOf), sure))
		}
		if e.Costs[0].Units > 0 {
			micro := func(c Cost) float64 { return 1e6 * cpuOfUnit(c) }
			fmt.Fprintf(&out, "\n%s: %.0f series, %v µs of CPU each; %v %% of a CPU.\n", e.Name, e.Costs[0].Units,
				geometric(values(e.Costs, micro), sure), geometric(values(e.Costs, share), sure))
		}
	}
	return out.String()
}

// cell returns the geometric mean, or "" if nothing was counted.
func cell(values []float64) string {
	if len(values) == 0 || slices.Min(values) <= 0 {
		return ""
	}
	return figure(geometric(values, sure).mid)
}

func when(ok bool, e estimate) string {
	if !ok {
		return ""
	}
	return e.String()
}

func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

func code(command string) string {
	if command == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(command, "|", `\|`) + "`"
}

// document returns the generated part of docs/performance.md.
func (f *figures) document() string {
	var out strings.Builder
	where := fmt.Sprintf("Measured on %s: %s, Linux %s, load average %.1f before and %.1f after.", f.Date, f.CPUs,
		f.Kernel, f.Load, f.LoadAfter)
	if f.Load > idleLoad {
		where += " The machine had other work: times are longer than on an idle one, and intervals wider."
	}
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(f.Versions)) {
		versions = append(versions, name+" "+f.Versions[name])
	}
	out.WriteString(wrapped(where + " Versions: " + strings.Join(versions, ", ") + "."))
	out.WriteString("\n### Goals\n\n| of | what | measured | goal | |\n|---|---|---|---|---|\n")
	for _, v := range f.judged() {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", v.of, v.what, when(v.measured, v.got), v.wanted(),
			v.word())
	}
	out.WriteString("\n### Beside peers\n")
	for _, c := range f.Contests {
		out.WriteString(c.text())
	}
	out.WriteString("\n### Growth\n\n| of | CPU seconds at each size | command |\n|---|---|---|\n")
	for _, g := range f.Growths {
		fmt.Fprintf(&out, "| %s | %s | %s |\n", g.Of, g.sizes(), code(g.Command))
	}
	return out.String()
}

func (g Growth) sizes() string {
	var out []string
	for _, p := range g.Points {
		out = append(out, fmt.Sprintf("%d: %s", p.Size, cell(p.CPU)))
	}
	return strings.Join(out, "; ")
}

// claim returns what a user is told. It covers all runs, not just the best.
func (f *figures) claim() string {
	i := slices.IndexFunc(f.Contests, func(c *Contest) bool { return c.Name == "host-10s" })
	if i < 0 {
		return ""
	}
	costs := f.Contests[i].Field[0].Costs
	span := func(of func(Cost) float64, format string) string {
		v := values(costs, of)
		return fmt.Sprintf(format+" to "+format, slices.Min(v), slices.Max(v))
	}
	cpus, _, _ := strings.Cut(f.CPUs, " ")
	return wrapped(fmt.Sprintf("Ten seconds of a host with %s CPUs took %s s of CPU and %s MiB of memory (%d runs on "+
		"%s).", cpus, span(cpuOf, "%.2f"), span(mebibytes, "%.0f"), len(costs), f.Date))
}

// wrapped breaks a text at spaces, like the prose here.
func wrapped(text string) string {
	const width = 120
	var out strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		if n := len([]rune(word)); column+1+n > width {
			out.WriteByte('\n')
			column = 0
		}
		if column > 0 {
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += len([]rune(word))
	}
	return out.String() + "\n"
}

// replace updates the figures and the pages with what was measured again on the same machine.
func (b *bench) replace(now *figures) error {
	f, err := b.committed()
	if err != nil {
		return err
	}
	if now.like(f) != alike {
		return errOther
	}
	for _, c := range now.Contests {
		if i := slices.IndexFunc(f.Contests, func(old *Contest) bool { return old.Name == c.Name }); i >= 0 {
			f.Contests[i] = c
		}
	}
	for _, g := range now.Growths {
		f.Growths = append(slices.DeleteFunc(f.Growths, func(old Growth) bool { return old.Of == g.Of }), g)
	}
	f.LoadAfter = now.Load
	return b.write(f)
}

// write writes the figures beside this code, and their text into the pages.
func (b *bench) write(f *figures) error {
	return errors.Join(f.save(b.figuresPath()), b.fill("docs/performance.md", f.document()),
		b.fill("README.md", f.claim()), b.fill("docs/guide.md", f.claim()))
}

// The marks around the generated part of a handwritten page.
const (
	begin = "<!-- measured: written by make bench-peers -->\n"
	end   = "<!-- /measured -->\n"
)

func (b *bench) fill(page, text string) error {
	path := filepath.Join(b.root, page)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(data, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !ok || !ended {
		return fmt.Errorf("%s: there is no %q with %q after it", path, begin, end)
	}
	return os.WriteFile(path, slices.Concat(before, []byte(begin+text+end), after), 0o644) //nolint:gosec // for everybody
}
