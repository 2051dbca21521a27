package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Profiles are separate files, so that they open in the tools people have: pprof for a recording, folded text for a
// test case.
const (
	profileDir = "profiles/"
	pprofEnd   = ".pb.gz"
	textEnd    = ".txt"
)

// Bounds on the files below profiles/. A profile in text is at most some ten times its pprof form, which has its own
// bound; 10 s of a JVM with 64 busy threads are a raw file of 4 MiB.
const (
	maxProfile = 64 << 20
	maxRaw     = 32 << 20
	maxRaws    = 4
	textGrowth = 6 // a frame of five bytes, ";a_[n]", is a number of eight in a stack, twice while it is read
)

// profileMetric returns the metric that says that there is a profile of the event.
func profileMetric(e stacks.Event) *metric.Gauge {
	return map[stacks.Event]*metric.Gauge{
		stacks.CPU: metric.CPUProfileSamples, stacks.HostCPU: metric.HostCPUProfileSamples,
		stacks.Script:     metric.ScriptProfileSamples,
		stacks.Wall:       metric.WallProfileSamples,
		stacks.Waits:      metric.WaitProfileSamples,
		stacks.ScriptWall: metric.ScriptWallProfileSamples, stacks.Coroutine: metric.CoroutineProfileSamples,
		stacks.Goroutine: metric.GoroutineProfileSamples,
		stacks.Alloc:     metric.AllocProfileSamples,
		stacks.Lock:      metric.LockProfileSamples, stacks.OffCPU: metric.OffCPUProfileSamples,
	}[e]
}

// A rawFile is a file that a profiler wrote, kept as it is.
type rawFile struct {
	name    string
	content []byte
}

// Profile appends what was sampled of one event over the window, and the number of its samples as that event's metric
// ([metric.CPUProfileSamples] and its like). A recording holds one profile of an event; a second profiler's is
// counted as lost. Like [Appender.Counter] it panics if the profile is not valid.
func (a *Appender) Profile(p *stacks.Profile) {
	plain, redacted := withoutSecrets(p)
	own, err := stacks.Merge(plain) // the canonical form, as a file would return it
	if err != nil {
		panic(fmt.Sprintf("recording: %v", err))
	}
	a.redacted = a.redacted || redacted
	a.profiles = append(a.profiles, own)
}

// rawName matches the names that a raw file may have: nothing that leads out of its directory.
var rawName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,60}$`)

// File keeps the raw output of a profiler, such as jvm.jfr, below profiles/ for other tools: checks do not read it,
// and reading a recording does not load it. A file that is too large is left out and counted as lost. So is a file
// beside a profile in which the name of a thread was redacted. The caller must know that it holds no other secrets. A
// name that is no plain file name, or a profile's, is a collector's bug and panics.
func (a *Appender) File(name string, content []byte) {
	if !rawName.MatchString(name) || strings.HasSuffix(name, pprofEnd) || strings.HasSuffix(name, textEnd) {
		panic(fmt.Sprintf("recording: %q is no name for a raw file", name))
	}
	if len(content) > maxRaw {
		a.Lost(len(content), fmt.Sprintf("bytes of %s, which is larger than a raw file may be (%d MiB)", name,
			maxRaw>>20))
		return
	}
	a.raws = append(a.raws, rawFile{name, slices.Clone(content)})
}

// commitProfiles is the part of [Appender.Commit] for profiles and raw files.
func (a *Appender) commitProfiles() {
	for _, p := range a.profiles {
		total := p.Total()
		if first := a.b.rec.profiles[p.Event]; first != nil {
			a.Lost(int(max(total.Count, 1)),
				fmt.Sprintf("samples of %s by %q: the recording has those by %q", p.Event, p.Engine, first.Engine))
			continue
		}
		if a.b.rec.profiles == nil {
			a.b.rec.profiles = map[stacks.Event]*stacks.Profile{}
		}
		a.b.rec.profiles[p.Event] = p
		a.rows = append(a.rows, row{metric: profileMetric(p.Event), value: float64(total.Count)})
	}
	for _, f := range a.raws {
		if a.redacted {
			a.Lost(len(f.content), fmt.Sprintf("bytes of %s, left out: the name of a thread in it looks like a secret",
				f.name))
			continue
		}
		same := slices.ContainsFunc(a.b.rec.raws, func(x rawFile) bool { return x.name == f.name })
		if same || len(a.b.rec.raws) >= maxRaws {
			a.Lost(len(f.content), fmt.Sprintf("bytes of a second %s, or of a raw file too many", f.name))
			continue
		}
		a.b.rec.raws = append(a.b.rec.raws, f)
	}
}

// Profile returns what was sampled of an event, as the profiler delivered it ([stacks.Profile.Clean] prepares it for
// ranking). The caller must not change it. ok is false if there is none; a check that needs a profile lists the
// event's metric in its Needs.
func (r *Recording) Profile(e stacks.Event) (p *stacks.Profile, ok bool) {
	p, ok = r.profiles[e]
	return p, ok
}

// Ranked returns the profile as it should be ranked ([stacks.Profile.Clean]), made once however many checks ask. ok
// is as in [Recording.Profile]. The caller must not change it.
func (r *Recording) Ranked(e stacks.Event) (p *stacks.Profile, ok bool) {
	r.ranking.Lock()
	defer r.ranking.Unlock()
	if p, ok = r.ranked[e]; ok {
		return p, true
	}
	raw, ok := r.profiles[e]
	if !ok {
		return nil, false
	}
	if r.ranked == nil {
		r.ranked = map[stacks.Event]*stacks.Profile{}
	}
	r.ranked[e] = raw.Clean()
	return r.ranked[e], true
}

// Once returns the result of compute about a recording, under a name. It computes it once, however many checks ask.
// Neither the recording nor the result may change after that.
func Once[T any](r *Recording, name string, compute func() T) T {
	r.computing.Lock()
	again, ok := r.computed[name].(func() T)
	if !ok {
		if r.computed == nil {
			r.computed = map[string]any{}
		}
		again = sync.OnceValue(compute)
		r.computed[name] = again
	}
	r.computing.Unlock() // compute may call Once
	return again()
}

// RankAll prepares the profiles for ranking and drops the profilers' originals, in a recording that is only viewed:
// both together would take twice the memory. It keeps the original of all CPUs, because some checks look at its
// interrupts.
func (r *Recording) RankAll() {
	for e := range r.profiles {
		if e == stacks.HostCPU {
			continue
		}
		if p, ok := r.Ranked(e); ok {
			r.profiles[e] = p
		}
	}
}

// writeProfiles is the part of Save for profiles and raw files.
func (r *Recording) writeProfiles(create func(string, func(io.Writer) error) error) error {
	for _, e := range stacks.Events() {
		if p := r.profiles[e]; p != nil {
			if err := create(profileDir+string(e)+pprofEnd, p.WritePprof); err != nil {
				return err
			}
		}
	}
	for _, f := range r.raws {
		err := create(profileDir+f.name, func(w io.Writer) error {
			_, err := w.Write(f.content)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// profileParser reads a profile within that many bytes of memory.
type profileParser func(r io.Reader, memory int) (*stacks.Profile, error)

// lose removes a metric from the recording, as one that was not measured.
func (r *Recording) lose(m metric.Metric, why error) {
	name := m.Describe().Name
	delete(r.series, name)
	r.Meta.Unsupported = slices.DeleteFunc(slices.Clone(r.Meta.Unsupported),
		func(u Missing) bool { return u.Metric == name })
	r.Meta.Unsupported = append(r.Meta.Unsupported, Missing{
		Metric: name, Status: StatusFailed, Reason: why.Error(), Remedy: "report this as a bug, with the recording",
	})
}

// listRaws notes the raw files, which are not read.
func (r *Recording) listRaws(fsys fs.FS) {
	entries, err := fs.ReadDir(fsys, strings.TrimSuffix(profileDir, "/"))
	if err != nil {
		return // there are no profiles
	}
	for _, e := range entries[:min(len(entries), maxEntries)] {
		if name := e.Name(); rawName.MatchString(name) && !strings.HasSuffix(name, pprofEnd) &&
			!strings.HasSuffix(name, textEnd) {
			r.unread = append(r.unread, name)
		}
	}
}

func (r *Recording) readProfiles(fsys fs.FS, b *budget, parse profileParser) error {
	r.listRaws(fsys)
	for _, e := range stacks.Events() {
		m := profileMetric(e)
		p, err := readProfile(fsys, e, b, parse)
		if firewall.IsFault(err) { // our own mistake costs this profile
			r.lose(m, err)
			continue
		}
		if err != nil {
			return err
		}
		if p != nil {
			if r.profiles == nil {
				r.profiles = map[stacks.Event]*stacks.Profile{}
			}
			r.profiles[e] = p
		} else if len(r.Gauge(m)) > 0 {
			return fmt.Errorf("%w: %s has %s, but there is no %s%s%s", ErrFormat, samplesFile, m.Describe().Name,
				profileDir, e, pprofEnd)
		}
	}
	return nil
}

// readProfile reads the profile of an event in either form. It returns nil if there is none.
func readProfile(fsys fs.FS, e stacks.Event, b *budget, parsePprof profileParser) (*stacks.Profile, error) {
	binary, text := profileDir+string(e)+pprofEnd, profileDir+string(e)+textEnd
	_, noBinary := fs.Stat(fsys, binary)
	_, noText := fs.Stat(fsys, text)
	name, parse := binary, parsePprof
	switch {
	case errors.Is(noBinary, fs.ErrNotExist) && errors.Is(noText, fs.ErrNotExist):
		return nil, nil
	case errors.Is(noBinary, fs.ErrNotExist):
		name, parse = text, parseText
	case noText == nil:
		return nil, fmt.Errorf("%w: there are both %s and %s", ErrFormat, binary, text)
	}
	f, err := openRegular(fsys, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := firewall.Parse(name, func() (*stacks.Profile, error) {
		return parse(io.LimitReader(f, maxProfile+1),
			b.left+decodeRoom)
	})
	switch {
	case firewall.IsFault(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %s", ErrFormat, name, brief(err))
	}
	if p.Event != e {
		return nil, fmt.Errorf("%w: %s is a profile of %s", ErrFormat, name, p.Event)
	}
	return p, b.take(name, p.Weight())
}

func parseText(r io.Reader, memory int) (*stacks.Profile, error) {
	limit := min(maxProfile, memory/textGrowth)
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return stacks.ParseText(text)
}

// WriteTxtar writes the recording as a txtar file, for people to read and edit: profiles are text there, and raw
// files are left out. The comment comes first.
func (r *Recording) WriteTxtar(w io.Writer, comment string) error {
	ar := &txtar.Archive{Comment: []byte(comment + "\n")}
	add := func(name string, write func(io.Writer) error) error {
		var b strings.Builder
		if err := write(&b); err != nil {
			return err
		}
		ar.Files = append(ar.Files, txtar.File{Name: name, Data: []byte(b.String())})
		return nil
	}
	if err := r.writeMeasured(add); err != nil {
		return err
	}
	for _, e := range stacks.Events() {
		if p := r.profiles[e]; p != nil {
			if err := add(profileDir+string(e)+textEnd, p.WriteText); err != nil {
				return err
			}
		}
	}
	_, err := w.Write(txtar.Format(ar))
	return err
}
