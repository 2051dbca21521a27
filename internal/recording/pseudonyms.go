package recording

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/redact"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Redaction says that names in the recording are pseudonyms.
type Redaction struct {
	// identifies the key: with the same key the same name has the same pseudonym
	Key     string   `json:"key"`
	LeftOut []string `json:"left_out,omitempty"` // files that may hold names or secrets
}

// Redacted returns the recording with pseudonyms in place of the names of hosts, addresses, users, files, control
// groups and containers. It leaves out raw files of profilers: nobody has checked what they contain. Numbers, times,
// and what the checks depend on stay as they were.
func (r *Recording) Redacted(n *redact.Names) (*Recording, error) {
	if r.Meta.Redacted != nil {
		return nil, fmt.Errorf("the recording is redacted already: it has no names to replace")
	}
	out := &Recording{Meta: r.Meta, series: map[string]*family{}}
	devices := r.renamedDevices(n)
	for name, f := range r.series {
		out.series[name] = f.redacted(n, devices)
	}
	if err := out.redactProfiles(r, n); err != nil {
		return nil, err
	}
	out.Meta.Target = redactTarget(r.Meta.Target, n)
	out.Meta.EndedEarly = n.Text(r.Meta.EndedEarly)
	out.Meta.Collectors = redactCollectors(r.Meta.Collectors, n)
	out.Meta.Unsupported = slices.Clone(r.Meta.Unsupported)
	for i := range out.Meta.Unsupported {
		u := &out.Meta.Unsupported[i]
		u.Reason, u.Remedy = n.Text(u.Reason), n.Text(u.Remedy)
	}
	if i := r.Meta.Incident; i != nil {
		own := i.since(0)
		own.Subject, own.Summary, own.Others = n.Text(i.Subject), n.Text(i.Summary), slices.Clone(i.Others)
		for j := range own.Others {
			own.Others[j] = n.Text(own.Others[j])
		}
		for j := range own.Timeline {
			span := &own.Timeline[j]
			span.Subject, span.Summary = n.Text(span.Subject), n.Text(span.Summary)
		}
		out.Meta.Incident = own
	}
	out.Meta.Cost.GivenUp = slices.Clone(r.Meta.Cost.GivenUp) // names of collectors and numbers only
	out.Meta.Cost.Skipped = slices.Clone(r.Meta.Cost.Skipped)
	out.Meta.Redacted = &Redaction{Key: n.ID()}
	left := slices.Clone(r.unread)
	for _, f := range r.raws {
		left = append(left, f.name)
	}
	for _, name := range left {
		out.Meta.Redacted.LeftOut = append(out.Meta.Redacted.LeftOut, profileDir+name)
	}
	return out, nil
}

func redactCollectors(list []CollectorStatus, n *redact.Names) []CollectorStatus {
	list = slices.Clone(list)
	for i := range list {
		c := &list[i]
		c.Reason, c.Remedy, c.Lost = n.Text(c.Reason), n.Text(c.Remedy), slices.Clone(c.Lost)
		for j := range c.Lost {
			c.Lost[j].What = n.Text(c.Lost[j].What)
		}
	}
	return list
}

func redactTarget(t Target, n *redact.Names) Target {
	switch t.Kind {
	case "cgroup":
		t.Name = n.Path(t.Name)
	case "container":
		t.Name = n.Word("container", t.Name)
	default:
		t.Name = n.Name(t.Name)
	}
	t.Cmdline, t.User = n.Args(t.Cmdline), n.User(t.User)
	t.Container, t.Cgroup = n.Word("container", t.Container), n.Path(t.Cgroup)
	t.ExitStatus, t.NetNSDenied = n.Text(t.ExitStatus), n.Text(t.NetNSDenied)
	return t
}

// redactions says what happens to the values of a label. A test requires every label to be here, so that a new one is
// thought about.
var redactions = map[string]func(*redact.Names, string) string{
	"destination": (*redact.Names).Endpoint, "endpoint": (*redact.Names).Endpoint, "source": (*redact.Names).Endpoint,
	"listener": (*redact.Names).Endpoint, "peer": (*redact.Names).Endpoint,
	"user": (*redact.Names).User, "uid": (*redact.Names).User, "container": container,
	"cgroup": (*redact.Names).Path, "dir": (*redact.Names).Path, "path": (*redact.Names).Path,
	"device": (*redact.Names).Device,
	"comm":   (*redact.Names).Name, "waker_comm": (*redact.Names).Name, "thread": (*redact.Names).Name,
	"holder": (*redact.Names).Name,
	"load":   (*redact.Names).Name, "pool": (*redact.Names).Pool, "name": (*redact.Names).Name,
	"value": (*redact.Names).
		Text, "reason": (*redact.Names).Text,
	"at": (*redact.Names).Code, "holder_at": (*redact.Names).Code, "holder_in": (*redact.Names).Code,
	"waiter_at": (*redact.Names).Code, "statement": statement, "holder_statement": statement, "table": table,
	"function": function,
	"waker":    (*redact.Names).Code, "class": (*redact.Names).Wait, "on": (*redact.Names).Object,
	"at_most": nil, "available": nil, "cause": nil, "code": nil, "collector": nil, "compiler": nil,
	"controller": nil, "cpu": nil,
	"cpu_model": nil,
	"cpus":      nil, "current": nil, "cycle": nil, "direction": nil, "driver": nil, "error": nil, "event": nil,
	"exchanges": nil,
	"first":     nil, "for": nil,
	"from": nil, "generation": nil, "governor": nil, "heap": nil, "hook": nil, "irq": nil, "kernel": nil, "kind": nil,
	"holder_pid": nil,
	"level":      nil,
	"loaded":     nil, "lock": nil, "machine": nil, "member": nil, "mode": nil, "netns": nil, "operation": nil,
	"origin": nil,
	"parent": nil, "pid": nil, "program": nil, "queue": nil, "resource": nil, "runtime": nil, "scope": nil, "side": nil,
	"space": nil,
	"state": nil, "type": nil,
	"syscall": nil, "tid": nil, "vantage": nil, "vector": nil, "version": nil, "virtualization": nil, "waker_pid": nil,
	"window":  nil,
	"written": nil,
}

func container(n *redact.Names, s string) string { return n.Word("container", s) }

func table(n *redact.Names, s string) string { return n.Word("table", s) }

func function(n *redact.Names, s string) string { return n.Word("function", s) }

// statement keeps the first word of a statement, "UPDATE": the others name tables and columns.
func statement(n *redact.Names, s string) string {
	rest := strings.TrimLeft(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
	return strings.TrimSpace(s[:len(s)-len(rest)] + " " + n.Word("statement", strings.TrimSpace(rest)))
}

func (f *family) redacted(n *redact.Names, devices map[string]string) *family {
	d := f.metric.Describe()
	out := &family{metric: f.metric, marks: f.marks, list: make([]*Series, 0, len(f.list))}
	for _, s := range f.list {
		own := &Series{Metric: s.Metric, Labels: slices.Clone(s.Labels), Points: s.Points}
		for i, label := range d.Labels {
			switch by := redactions[label]; {
			case label == "device" && (f.metric == metric.Interrupts || f.metric == metric.IRQAffinity):
				own.Labels[i] = lineOf(own.Labels[i], devices)
			case label == "name" && f.metric == metric.JVMAgent:
				own.Labels[i] = n.Program(own.Labels[i])
			case by != nil:
				own.Labels[i] = by(n, own.Labels[i])
			}
		}
		out.list = append(out.list, own)
	}
	out.sort()
	return out
}

// renamedDevices returns the new names of the devices that get one.
func (r *Recording) renamedDevices(n *redact.Names) map[string]string {
	out := map[string]string{}
	for _, f := range r.series {
		i := slices.Index(f.metric.Describe().Labels, "device")
		if i < 0 || f.metric == metric.Interrupts || f.metric == metric.IRQAffinity {
			continue
		}
		for _, s := range f.list {
			if name := s.Labels[i]; n.Device(name) != name {
				out[name] = n.Device(name)
			}
		}
	}
	return out
}

// lineOf returns the name of an interrupt's line. A driver derives it from its device's name ("acme0-TxRx-3") or from
// its own.
func lineOf(line string, devices map[string]string) string {
	for _, name := range slices.SortedFunc(maps.Keys(devices), func(a, b string) int { return len(b) - len(a) }) {
		if strings.Contains(line, name) {
			return strings.ReplaceAll(line, name, devices[name])
		}
	}
	return line
}

func (r *Recording) redactProfiles(from *Recording, n *redact.Names) error {
	for e, p := range from.profiles {
		own := *p
		own.Frames, own.Threads, own.Samples = slices.Clone(p.Frames), slices.Clone(p.Threads), slices.Clone(p.Samples)
		for i := range own.Frames {
			f := &own.Frames[i]
			f.Name, f.Module = n.Code(f.Name), n.Code(f.Module)
		}
		for i := range own.Threads {
			own.Threads[i].Name = n.Name(own.Threads[i].Name)
		}
		for i := range own.Samples {
			own.Samples[i].Class = n.Wait(own.Samples[i].Class)
		}
		merged, err := stacks.Merge(&own) // the canonical order depends on the new names
		if err != nil {
			return err
		}
		if r.profiles == nil {
			r.profiles = map[stacks.Event]*stacks.Profile{}
		}
		r.profiles[e] = merged
	}
	return nil
}
