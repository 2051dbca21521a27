package recording

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/partial"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// The names inside a recording: files that open with ordinary tools.
const (
	metaFile    = "meta.json"
	samplesFile = "samples.jsonl"
)

// Bounds on the contents of a file, so that a hostile one costs neither memory nor time. A 10 s recording of a busy
// host is below 4 MiB; an hour of one is below 500 MiB and would be cut into several.
const (
	maxMeta    = 4 << 20
	maxSamples = 512 << 20
	maxLine    = 16 << 20  // 100,000 series of 160 bytes
	maxLines   = 2_000_000 // one line per collector and second: an hour has 100,000
	maxPoints  = 20_000_000
	maxTxtar   = 24 << 20  // a txtar file is in memory as a whole, and once more while it is parsed
	maxZip     = 512 << 20 // the file itself; it is not read as a whole
	maxEntries = 100       // in a zip: a recording has two files, six profiles and four raw files
)

// ErrFormat is wrapped by every error about a file that is damaged, truncated, too new or hostile.
var ErrFormat = errors.New("not a usable recording")

// Open reads a recording from a directory, a zip or a txtar file.
func Open(path string) (rec *Recording, err error) {
	err = within(path, func(files fs.FS) error {
		rec, err = Read(files)
		return err
	})
	return rec, err
}

// OpenMeta reads only the data about a recording: meta.json. Its errors are the same as those of [Open].
func OpenMeta(path string) (m Meta, err error) {
	err = within(path, func(files fs.FS) error {
		m, err = readMeta(files, newBudget())
		return err
	})
	return m, err
}

// within passes the files of a recording to a function. Errors about the content name the path.
func within(path string, read func(fs.FS) error) error {
	err := firewall.Run("the recording", func() error { return opened(path, read) })
	if firewall.IsFault(err) {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	return err
}

func opened(path string, read func(fs.FS) error) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("open recording: %w", err)
	}
	if !st.IsDir() && !st.Mode().IsRegular() { // opening a pipe waits for ever, reading a device never ends
		return fmt.Errorf("%s: %w: it is neither a file nor a directory", path, ErrFormat)
	}
	if st.IsDir() {
		root, err := os.OpenRoot(path) // a link in the directory must not lead out of it
		if err != nil {
			return fmt.Errorf("open recording: %w", err)
		}
		defer root.Close()
		return named(path, read(root.FS()))
	}
	if strings.HasSuffix(path, ".txtar") {
		return withinTxtar(path, st.Size(), read)
	}
	if err := checkDirectory(path, st.Size()); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	z, err := zip.OpenReader(path)
	if err != nil {
		return fmt.Errorf("%s: %w: %w (a recording is a directory, a .zip or a .txtar made with --save)", path,
			ErrFormat, err)
	}
	defer z.Close()
	if len(z.File) > maxEntries {
		return fmt.Errorf("%s: %w: it has more than %d files", path, ErrFormat, maxEntries)
	}
	return named(path, read(z))
}

// endOfDirectory is the signature of a zip's last record, which says where its directory is (APPNOTE.TXT, 4.3.16).
const endOfDirectory = "PK\x05\x06"

// maxDirectory bounds the directory of a zip: archive/zip holds all of it, with hundreds of bytes for an entry of 46.
const maxDirectory = 1 << 20

// checkDirectory bounds the directory of a zip before archive/zip reads it. The last end record in the file counts.
func checkDirectory(path string, size int64) error {
	if size > maxZip {
		return fmt.Errorf("it is larger than %d bytes", maxZip)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	tail := make([]byte, min(size, 22+1<<16)) // the record, and the longest comment behind it
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return err
	}
	at := bytes.LastIndex(tail, []byte(endOfDirectory))
	if at < 0 || at+20 > len(tail) {
		return nil // no zip: archive/zip says so
	}
	entries := binary.LittleEndian.Uint16(tail[at+10:])
	length := int64(binary.LittleEndian.Uint32(tail[at+12:]))
	// archive/zip reads entries from here on as long as there are any, whatever the record says about number and
	// length.
	begin := int64(binary.LittleEndian.Uint32(tail[at+16:]))
	end := size - int64(len(tail)) + int64(at)
	// A zip64 file has its numbers in a separate record. Here it has the largest values, which are too large.
	if entries > maxEntries || length > maxDirectory || begin > end || end-begin > maxDirectory {
		return fmt.Errorf("it has more than %d files, or a directory of more than %d bytes", maxEntries, maxDirectory)
	}
	return nil
}

func withinTxtar(path string, size int64, read func(fs.FS) error) error {
	if size > maxTxtar {
		return fmt.Errorf("%s: %w: it is larger than %d bytes: save it as a .zip", path, ErrFormat, maxTxtar)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("open recording: %w", err)
	}
	fsys, err := txtar.FS(txtar.Parse(data))
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	return named(path, read(fsys))
}

func named(path string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Read reads a recording from a file system. Every error about the content wraps [ErrFormat].
func Read(fsys fs.FS) (*Recording, error) { return read(fsys, stacks.ParsePprofWithin) }

func read(fsys fs.FS, parse profileParser) (*Recording, error) {
	weight := newBudget()
	meta, err := readMeta(fsys, weight)
	if err != nil {
		return nil, err
	}
	f, err := openRegular(fsys, samplesFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := &Builder{rec: &Recording{series: map[string]*family{}}}
	if err := readSamples(b, io.LimitReader(f, maxSamples+1), weight); err != nil {
		return nil, err
	}
	rec := b.Done(meta)
	if err := rec.readProfiles(fsys, weight, parse); err != nil {
		return nil, err
	}
	return rec, nil
}

// openRegular opens one of the files. It checks the kind first: opening a pipe in a directory would wait for a
// writer.
func openRegular(fsys fs.FS, name string) (fs.File, error) {
	st, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a file", ErrFormat, name)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return f, nil
}

func readMeta(fsys fs.FS, weight *budget) (Meta, error) {
	f, err := openRegular(fsys, metaFile)
	if err != nil {
		return Meta{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMeta+1))
	if err != nil {
		return Meta{}, fmt.Errorf("%w: %s: %w", ErrFormat, metaFile, err)
	}
	if len(data) > maxMeta {
		return Meta{}, fmt.Errorf("%w: %s is larger than %d bytes", ErrFormat, metaFile, maxMeta)
	}
	if err := weight.take(metaFile, metaWeight(data)); err != nil {
		return Meta{}, err
	}
	var version struct { // on its own: a newer schema may have given any other field another type
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return Meta{}, fmt.Errorf("%w: %s: %s", ErrFormat, metaFile, brief(err))
	}
	switch {
	case version.Schema > SchemaVersion:
		return Meta{}, fmt.Errorf("%w: its schema is version %d, this perfdoctor reads up to %d: use a newer "+
			"perfdoctor",
			ErrFormat, version.Schema, SchemaVersion)
	case version.Schema < 1:
		return Meta{}, fmt.Errorf("%w: %s has no schema version", ErrFormat, metaFile)
	}
	var m Meta
	if err := json.Unmarshal(data, &m); err != nil {
		return Meta{}, fmt.Errorf("%w: %s: %s", ErrFormat, metaFile, brief(err))
	}
	if !(m.Duration >= 0) || math.IsInf(m.Duration, 0) {
		return Meta{}, fmt.Errorf("%w: %s: duration_seconds is %v", ErrFormat, metaFile, m.Duration)
	}
	return m, nil
}

// line is one line of samples.jsonl: the time in seconds since the start, and for each metric the rows measured then.
// A row is the label values followed by the number. Without a row, the metric was measured and there was nothing.
type line struct {
	T float64                      `json:"t"`
	M map[string][]json.RawMessage `json:"m"`
}

func readSamples(b *Builder, r io.Reader, weight *budget) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxLine)
	n, points, size := 0, 0, 0
	last := time.Duration(-1)
	for sc.Scan() {
		if n++; n > maxLines {
			return fmt.Errorf("%w: %s has more than %d lines", ErrFormat, samplesFile, maxLines)
		}
		if size += len(sc.Bytes()) + len("\n"); size > maxSamples {
			return fmt.Errorf("%w: %s holds more than %d bytes", ErrFormat, samplesFile, maxSamples)
		}
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		if err := weight.afford(samplesFile, jsonWeight(sc.Bytes())); err != nil {
			return fmt.Errorf("%w (line %d)", err, n)
		}
		labels := b.labels
		series := b.count
		added, at, err := readLine(b, sc.Bytes())
		if err != nil {
			return fmt.Errorf("%w: %s line %d: %s", ErrFormat, samplesFile, n, brief(err))
		}
		if at < last {
			return fmt.Errorf("%w: %s line %d: time goes backwards", ErrFormat, samplesFile, n)
		}
		last = at
		own := added*pointWeight + (b.count-series)*seriesWeight + b.labels - labels
		if err := weight.take(samplesFile, own); err != nil {
			return fmt.Errorf("%w (line %d)", err, n)
		}
		if points += added; points > maxPoints {
			return fmt.Errorf("%w: %s holds more than %d numbers", ErrFormat, samplesFile, maxPoints)
		}
	}
	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%w: %s line %d is longer than %d bytes", ErrFormat, samplesFile, n+1, maxLine)
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("%w: %s line %d: %w", ErrFormat, samplesFile, n+1, err)
	}
	return nil
}

// brief cuts the text of an error about foreign bytes: encoding/json quotes numbers whole, and one number can be a
// line of megabytes.
func brief(err error) string { return fmt.Sprintf("%.200s", err) }

func readLine(b *Builder, data []byte) (points int, at time.Duration, err error) {
	var l line
	if err := json.Unmarshal(data, &l); err != nil {
		return 0, 0, err
	}
	if !(l.T >= 0 && l.T < 1e9) {
		return 0, 0, fmt.Errorf("time %v is out of range", l.T)
	}
	a := &Appender{b: b, at: time.Duration(math.Round(l.T*1e6)) * time.Microsecond}
	for name, rows := range l.M {
		m, known := metric.ByName(name)
		if !known {
			continue // from a newer perfdoctor with the same schema: a metric that no check here knows
		}
		if len(rows) == 0 {
			a.None(m)
		}
		for _, raw := range rows {
			r, err := parseRow(m, raw)
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w", name, err)
			}
			a.rows = append(a.rows, r)
		}
	}
	if lost, _ := a.Commit(); len(lost) > 0 {
		return 0, 0, fmt.Errorf("more than %d series, or one label set twice for the same time", maxSeries)
	}
	return len(a.rows) + len(a.none), a.at, nil
}

func parseRow(m metric.Metric, raw json.RawMessage) (row, error) {
	var cells []any
	if err := json.Unmarshal(raw, &cells); err != nil {
		return row{}, err
	}
	d := m.Describe()
	if len(cells) != len(d.Labels)+1 {
		return row{}, fmt.Errorf("a row has %d cells, want %d (labels %v and a number)", len(cells), len(d.Labels)+1,
			d.Labels)
	}
	r := row{metric: m}
	for _, c := range cells[:len(cells)-1] {
		s, ok := c.(string)
		if !ok {
			return row{}, fmt.Errorf("a label value is %T, want a string", c)
		}
		r.labels = append(r.labels, s)
	}
	v, ok := cells[len(cells)-1].(float64)
	if !ok {
		return row{}, fmt.Errorf("the value is %T, want a number", cells[len(cells)-1])
	}
	if !sane(v) {
		return row{}, fmt.Errorf("the value %g is out of range", v)
	}
	r.value = v
	return r, nil
}

// Bounds on the magnitude of a number that is not zero. The largest value that a 64-bit counter or limit of the
// kernel holds is 2^64: fs.file-max is 2^63 by default and kernel.shmmax nearly 2^64. Sums, squares and ratios of
// such numbers are finite.
const (
	maxValue   = 1 << 64
	leastValue = 1e-100
)

func sane(v float64) bool {
	abs := math.Abs(v)
	return v == 0 || abs >= leastValue && abs <= maxValue
}

// Save writes the recording: a zip if the path ends in .zip, else a directory. Nothing has the final name before
// everything is written and synced. An existing file or directory is an error and is never overwritten. Only its
// owner may read the recording, as with perf.data: even without secrets it says much about a host.
func (r *Recording) Save(path string) error { return r.SaveAs(path, partial.How{}) }

// SaveAs is [Recording.Save], but a zip may replace a file, and the result may be given to another user.
func (r *Recording) SaveAs(path string, how partial.How) error {
	var err error
	if strings.HasSuffix(path, ".zip") {
		err = how.File(path, func(f *os.File) error { return r.saveZip(f) })
	} else {
		err = how.Dir(path, r.saveDir)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("save recording: %s exists: choose another name", path)
	case err != nil:
		return fmt.Errorf("save recording to %s: %w", path, err)
	}
	return nil
}

// firstOf returns the first error: those after it are mostly the same full disk again.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Recording) saveDir(dir *os.Root) error {
	return r.writeAll(func(name string, write func(io.Writer) error) error {
		if below := path.Dir(name); below != "." {
			if err := dir.MkdirAll(below, 0o700); err != nil {
				return err
			}
		}
		f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		return firstOf(write(f), f.Sync(), f.Close())
	})
}

func (r *Recording) saveZip(f io.Writer) error {
	z := zip.NewWriter(f)
	err := r.writeAll(func(name string, write func(io.Writer) error) error {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: r.Meta.Started})
		if err != nil {
			return err
		}
		return write(w)
	})
	return firstOf(err, z.Close())
}

func (r *Recording) writeAll(create func(string, func(io.Writer) error) error) error {
	if err := r.writeMeasured(create); err != nil {
		return err
	}
	return r.writeProfiles(create)
}

// writeMeasured writes the files that every recording has.
func (r *Recording) writeMeasured(create func(string, func(io.Writer) error) error) error {
	if err := create(metaFile, r.WriteMeta); err != nil {
		return err
	}
	return create(samplesFile, func(w io.Writer) error { return r.WriteSamples(w) })
}

// WriteMeta writes meta.json.
func (r *Recording) WriteMeta(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r.Meta)
}

// WriteSamples writes samples.jsonl: all metrics, or only the given ones, in the order of time, metric name and
// labels.
func (r *Recording) WriteSamples(w io.Writer, only ...metric.Metric) error {
	byTime := map[time.Duration]map[string][]string{}
	for name, f := range r.series {
		if len(only) == 0 || slices.ContainsFunc(only, func(m metric.Metric) bool {
			return m.Describe().
				Name == name
		}) {
			f.rowsByTime(byTime, name)
		}
	}
	bw := bufio.NewWriter(w)
	times := make([]time.Duration, 0, len(byTime))
	for t := range byTime {
		times = append(times, t)
	}
	slices.Sort(times)
	for _, t := range times {
		if err := writeLine(bw, t, byTime[t]); err != nil {
			return err
		}
	}
	return bw.Flush()
}

func (f *family) rowsByTime(byTime map[time.Duration]map[string][]string, name string) {
	at := func(t time.Duration) map[string][]string {
		if byTime[t] == nil {
			byTime[t] = map[string][]string{}
		}
		return byTime[t]
	}
	for _, t := range f.marks {
		if m := at(t); m[name] == nil {
			m[name] = []string{}
		}
	}
	for _, s := range f.list {
		for _, p := range s.Points {
			at(p.At)[name] = append(at(p.At)[name], encodeRow(s.Labels, p.Value))
		}
	}
}

func encodeRow(labels []string, value float64) string {
	cells := make([]any, 0, len(labels)+1)
	for _, l := range labels {
		cells = append(cells, l)
	}
	b, err := json.Marshal(append(cells, value))
	if err != nil { // only NaN or Inf, which Appender.add refuses and JSON cannot hold
		panic(fmt.Sprintf("recording: %v: %v", labels, err))
	}
	return string(b)
}

// writeLine writes one line.
func writeLine(w *bufio.Writer, t time.Duration, metrics map[string][]string) error {
	names := make([]string, 0, len(metrics))
	for n := range metrics {
		names = append(names, n)
	}
	slices.Sort(names)
	rows := make([]string, 0, len(names))
	for _, n := range names {
		rows = append(rows, fmt.Sprintf("%q:[%s]", n, strings.Join(metrics[n], ",")))
	}
	_, err := fmt.Fprintf(w, "{\"t\":%.6f,\"m\":{%s}}\n", t.Seconds(), strings.Join(rows, ","))
	return err
}

// Cut returns the recording with only these metrics, including their profiles. From the data about the collection it
// keeps only what concerns them.
func (r *Recording) Cut(ms []metric.Metric) *Recording {
	out := &Recording{Meta: r.Meta, series: map[string]*family{}, profiles: map[stacks.Event]*stacks.Profile{}}
	out.Meta.Collectors, out.Meta.Unsupported = nil, nil
	wanted := func(name string) bool {
		return slices.ContainsFunc(ms, func(m metric.Metric) bool { return m.Describe().Name == name })
	}
	for name, f := range r.series {
		if wanted(name) {
			out.series[name] = f
		}
	}
	for e, p := range r.profiles {
		if wanted(profileMetric(e).Describe().Name) {
			out.profiles[e] = p
		}
	}
	for _, c := range r.Meta.Collectors {
		c.Metrics = slices.DeleteFunc(slices.Clone(c.Metrics), func(name string) bool { return !wanted(name) })
		if len(c.Metrics) > 0 {
			out.Meta.Collectors = append(out.Meta.Collectors, c)
		}
	}
	for _, u := range r.Meta.Unsupported {
		if wanted(u.Metric) {
			out.Meta.Unsupported = append(out.Meta.Unsupported, u)
		}
	}
	return out
}

// With returns the recording with the data of these metrics from another recording, made meanwhile on another host.
// It moves times by the difference of the two wall clocks at the start. It leaves out what lies outside of this
// recording's window, and what this recording has already. Points is how many numbers were added.
func (r *Recording) With(other *Recording, ms ...metric.Metric) (out *Recording, points int) {
	out = &Recording{Meta: r.Meta, series: maps.Clone(r.series), profiles: r.profiles, raws: r.raws}
	later := other.Meta.Started.Sub(r.Meta.Started)
	for _, m := range ms {
		name := m.Describe().Name
		theirs := other.series[name]
		if theirs == nil {
			continue
		}
		b := Builder{rec: &Recording{series: map[string]*family{}}}
		for _, source := range []struct {
			from *family
			move time.Duration
		}{{r.series[name], 0}, {theirs, later}} {
			n := b.copyWithin(source.from, source.move, r.Meta.Duration)
			if source.from == theirs {
				points += n
			}
		}
		if f := b.rec.series[name]; f != nil {
			f.sort()
			out.series[name] = f
		}
	}
	return out, points
}

// copyWithin adds a family's points, moved in time, that lie between 0 and the end, and returns how many.
func (b *Builder) copyWithin(f *family, move time.Duration, end float64) int {
	if f == nil {
		return 0
	}
	n := 0
	for _, s := range f.list {
		for _, p := range s.Points {
			if at := (p.At + move).Truncate(time.Microsecond); at >= 0 && at.Seconds() <= end {
				n += b.put(row{s.Metric, s.Labels, p.Value}, at)
			}
		}
	}
	return n
}
