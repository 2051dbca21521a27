package stacks

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// maxPprof bounds an unpacked pprof file. 100,000 different samples of 100 frames are 25 MiB.
const maxPprof = 32 << 20

// maxDecode bounds the estimated memory that decoding a pprof file takes, in bytes. The estimate for 50,000 stacks of
// 40 frames is 98 MiB; 83 MiB were measured. The memory is freed after decoding. With what the garbage collector
// adds, it stays below the 256 MiB of the packaged unit.
const maxDecode = 144 << 20

// units are the names and units of the values, as in pprof's own profiles: `go tool pprof -sample_index=samples`
// shows counts instead.
var units = map[Event]profile.ValueType{
	CPU:        {Type: "cpu", Unit: "nanoseconds"},
	HostCPU:    {Type: "host-cpu", Unit: "nanoseconds"},
	Script:     {Type: "script-cpu", Unit: "nanoseconds"},
	Waits:      {Type: "waits", Unit: "nanoseconds"},
	ScriptWall: {Type: "script-wall", Unit: "nanoseconds"},
	Coroutine:  {Type: "coroutine", Unit: "nanoseconds"},
	Goroutine:  {Type: "goroutine", Unit: "nanoseconds"},
	Wall:       {Type: "wall", Unit: "nanoseconds"},
	OffCPU:     {Type: "off-cpu", Unit: "nanoseconds"},
	Lock:       {Type: "lock", Unit: "nanoseconds"},
	Alloc:      {Type: "alloc_space", Unit: "bytes"},
}

// ValueType returns the name of the second value of each sample in [Profile.WritePprof], behind "samples".
func (p *Profile) ValueType() string { return units[p.Event].Type }

// What has no field in pprof's profile.proto: labels of samples, and the beginnings of comments.
const (
	labelThread = "thread"
	labelTID    = "tid"
	labelState  = "state"
	labelClass  = "class"
	labelAt     = "at"

	commentEngine = "engine: "
	commentLost   = "lost: "
	commentBucket = "bucket: "
)

// WritePprof writes the profile as gzipped pprof, which [ParsePprof] reads back without a loss. A function's name is
// the frame's, and its system name has the kind behind it, as in [Profile.WriteText]; a mapping is a module. Thread,
// tid, state, class and time bucket are labels, so `go tool pprof -tagfocus=thread=http -top FILE` works; engine,
// lost samples and the length of the time buckets are comments.
func (p *Profile) WritePprof(w io.Writer) error {
	value := units[p.Event]
	out := &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: value.Type, Unit: value.Unit}},
		DefaultSampleType: value.Type,
		PeriodType:        &profile.ValueType{Type: value.Type, Unit: value.Unit},
		Period:            p.Interval,
		DurationNanos:     int64(p.Duration),
		Comments:          []string{commentEngine + p.Engine, commentLost + strconv.FormatInt(p.Lost, 10)},
	}
	if p.Bucket > 0 {
		out.Comments = append(out.Comments, commentBucket+p.Bucket.String())
	}
	p.pprofLocations(out)
	for _, s := range p.Samples {
		sample := &profile.Sample{Value: []int64{s.Count, s.Value}}
		for _, f := range s.Stack {
			sample.Location = append(sample.Location, out.Location[f])
		}
		p.pprofLabels(sample, s)
		out.Sample = append(out.Sample, sample)
	}
	return out.Write(w)
}

// pprofLocations makes a location for each frame, with shared functions and mappings.
func (p *Profile) pprofLocations(out *profile.Profile) {
	// For pprof the first mapping is the program's file, whose name heads its reports: that is none of the modules.
	none := &profile.Mapping{ID: 1, HasFunctions: true, HasLineNumbers: true}
	modules, functions := map[string]*profile.Mapping{"": none}, map[Frame]*profile.Function{}
	out.Mapping = []*profile.Mapping{none}
	for i, f := range p.Frames {
		if modules[f.Module] == nil {
			m := &profile.Mapping{
				ID: uint64(len(out.Mapping) + 1), File: f.Module, HasFunctions: true,
				HasLineNumbers: true,
			}
			modules[f.Module] = m
			out.Mapping = append(out.Mapping, m)
		}
		key := Frame{Name: f.Name, Kind: f.Kind}
		if functions[key] == nil {
			fn := &profile.Function{ID: uint64(len(out.Function) + 1), Name: f.Name, SystemName: f.Name + "_[" +
				marks[f.Kind] + "]"}
			functions[key] = fn
			out.Function = append(out.Function, fn)
		}
		out.Location = append(out.Location, &profile.Location{
			ID: uint64(i + 1), Mapping: modules[f.Module],
			Line: []profile.Line{{Function: functions[key], Line: int64(f.Line)}},
		})
	}
}

func (p *Profile) pprofLabels(out *profile.Sample, s Sample) {
	t := p.ThreadOf(s)
	labels := map[string]string{labelThread: t.Name, labelState: stateNames[s.State], labelClass: s.Class}
	numbers := map[string]int64{labelTID: int64(t.ID), labelAt: int64(s.At)}
	for key, v := range labels {
		if v != "" {
			if out.Label == nil {
				out.Label = map[string][]string{}
			}
			out.Label[key] = []string{v}
		}
	}
	for key, n := range numbers {
		if n != 0 {
			if out.NumLabel == nil {
				out.NumLabel, out.NumUnit = map[string][]int64{}, map[string][]string{}
			}
			out.NumLabel[key] = []int64{n}
			out.NumUnit[key] = []string{map[string]string{labelTID: "id", labelAt: "nanoseconds"}[key]}
		}
	}
}

// ParsePprof reads what [Profile.WritePprof] writes, gzipped. Its memory is bounded, and a file of another program is
// an error.
func ParsePprof(r io.Reader) (*Profile, error) { return ParsePprofWithin(r, maxDecode) }

// ParsePprofWithin is ParsePprof with another bound on the estimated memory for decoding, in bytes, if that is lower.
func ParsePprofWithin(r io.Reader, memory int) (*Profile, error) {
	memory = min(memory, maxDecode)
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	limit := min(maxPprof, memory)
	data, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	if len(data) > limit {
		return nil, fmt.Errorf("pprof: larger than %d bytes unpacked", limit)
	}
	if err := weighPprof(data, memory); err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	tables, strs, err := splitPprof(data)
	if err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	in, err := profile.ParseUncompressed(tables)
	if err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	if err := in.CheckValid(); err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	out, err := fromPprof(in, data, strs)
	if err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	return out, nil
}

// fromPprof takes the tables, and the samples from the data.
func fromPprof(in *profile.Profile, data []byte, strs []string) (*Profile, error) {
	event, err := eventOf(in.SampleType)
	if err != nil {
		return nil, err
	}
	b := NewBuilder(event)
	frames := map[uint64]int{}
	for _, l := range in.Location {
		f, err := frameOf(l)
		if err != nil {
			return nil, err
		}
		frames[l.ID] = b.Frame(f)
	}
	samples := pprofSamples{strings: strs, frames: frames}
	err = eachField(data, func(f wireField) error {
		if f.number != fieldSample {
			return nil
		}
		s, t, err := samples.read(f.bytes)
		if err != nil {
			return err
		}
		s.Thread = b.Thread(t)
		b.Add(s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := b.Profile()
	if out.Lost > 0 {
		return nil, fmt.Errorf("more than %d samples, or their sum overflows", maxSamples)
	}
	out.Interval, out.Duration = in.Period, time.Duration(in.DurationNanos)
	if err := out.readComments(in.Comments); err != nil {
		return nil, err
	}
	out.findBucket()
	return out, out.Validate()
}

func eventOf(types []*profile.ValueType) (Event, error) {
	for _, e := range Events() {
		if len(types) == 2 && types[0].Type == "samples" && types[1].Type == units[e].Type &&
			types[1].Unit == units[e].Unit {
			return e, nil
		}
	}
	return "", errors.New("its values are not samples and those of a perfdoctor event")
}

func frameOf(l *profile.Location) (Frame, error) {
	if len(l.Line) != 1 {
		return Frame{}, fmt.Errorf("location %d has %d lines, want one", l.ID, len(l.Line))
	}
	line := l.Line[0]
	f := Frame{Name: line.Function.Name, Line: int(line.Line)}
	if l.Mapping != nil {
		f.Module = l.Mapping.File
	}
	mark, ok := strings.CutPrefix(line.Function.SystemName, f.Name+"_[")
	kind := slices.Index(marks[:], strings.TrimSuffix(mark, "]"))
	if !ok || kind < 0 {
		return Frame{}, fmt.Errorf("location %d: the system name %.60q is not its name and a kind", l.ID,
			line.Function.SystemName)
	}
	f.Kind = Kind(kind)
	if f.Name == "" || line.Line < 0 || !valid(f.Name) || !valid(f.Module) {
		return Frame{}, fmt.Errorf("location %d has a bad name, module or line", l.ID)
	}
	return f, nil
}

func (p *Profile) readComments(comments []string) error {
	for _, c := range comments {
		if engine, ok := strings.CutPrefix(c, commentEngine); ok {
			p.Engine = engine
		}
		if lost, ok := strings.CutPrefix(c, commentLost); ok {
			n, err := number(lost)
			if err != nil {
				return err
			}
			p.Lost = n
		}
		if bucket, ok := strings.CutPrefix(c, commentBucket); ok {
			d, err := duration(bucket)
			if err != nil {
				return err
			}
			p.Bucket = d
		}
	}
	return nil
}
