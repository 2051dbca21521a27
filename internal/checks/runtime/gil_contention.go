package runtime

import (
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	gilWanted = &check.Param{
		Name: "wanted", Default: 1, Unit: quantity.Threads,
		Why: "with one thread in line at any moment, work takes twice as long as it computes",
	}
	gilRequest = evidence.RequestSeconds()
)

var gilContention = &check.Check{
	Name:  "gil-contention",
	Stage: check.Runtime,
	Doc: `Threads of a Python or Ruby program wait for the interpreter's lock

One thread of a process of CPython or Ruby runs scripts at a time: the one that has the interpreter's lock (GIL, GVL).
Others that want to run wait for it, however many CPUs are idle: each time while the holder computes for 5 ms in Python
(sys.getswitchinterval) or 100 ms in Ruby. Threads that wait for the network or a file have released the lock, and do
not count.

Measured: threads that stand in a futex(2) of the lock, looked at up to ten times a second; the profile of scripts
shows what the holder does meanwhile. In Ruby the method in which a thread stands distinguishes this lock from other
waits. It is a warning where a program that serves nobody has a thread in line at any moment, and where requests to a
server take long because of this wait; else information.

Fix: processes instead of threads (workers of gunicorn, uvicorn or puma, multiprocessing, ProcessPoolExecutor), or
compute in code that releases the lock (numpy, hashlib, zlib). Won't help: more threads or CPUs. Disproof: py-spy dump
--pid PID, or rbspy snapshot, shows few active threads without the lock.`,
	URL:   "https://docs.python.org/3/glossary.html#term-global-interpreter-lock",
	Only:  &check.Scope{Fact: metric.ScriptRuntime, Name: "interpreter whose functions are read"},
	Needs: []metric.Metric{metric.ScriptRuntime, metric.ScriptLockWait},
	Uses: append([]metric.Metric{metric.ScriptProfileSamples, metric.TargetInfo},
		evidence.RequestMetrics()...),
	Params: []*check.Param{gilWanted, gilRequest},
	Run:    runGILContention,
}

func runGILContention(p *check.Pass) error {
	window := quantity.Of("window", p.Meta.Duration, quantity.Seconds)
	read := false
	for _, s := range p.Gauge(metric.ScriptLockWait) {
		if p.Meta.Duration <= 0 {
			continue
		}
		wanted := quantity.Of("waited for the interpreter's lock", s.Last(), quantity.Seconds).Per(window).
			As(quantity.Threads).Named("threads that want the interpreter's lock at any moment")
		p.Read(wanted)
		read = true
		if wanted.AtLeast(p.Param(gilWanted)) {
			p.Report(gilFinding(p, s.Label("pid"), wanted))
		}
	}
	if !read {
		p.Read(quantity.Of("threads that want the interpreter's lock at any moment", 0, quantity.Threads))
	}
	return nil
}

func gilFinding(p *check.Pass, pid string, wanted quantity.Value) check.Finding {
	l := gilOf(p, pid)
	f := check.Finding{
		Subject: subjectOf(p, pid), Severity: check.Info, Confidence: check.High,
		Weight:   wanted.Number() / (1 + wanted.Number()),
		Summary:  wanted.Text() + " of " + l.language + " want the interpreter's lock (" + l.short + ") at any moment",
		Evidence: []quantity.Value{wanted},
		Remedies: []check.Remedy{{
			Action: "Run processes instead of threads: " + l.processes + ".",
			Risk:   "each has its own memory: what threads share must be sent or kept elsewhere",
			Effect: wanted.Label() + ": from " + wanted.Text() + " towards 0",
			Before: l.before, After: l.after,
		}, {
			Action: "Make what holds the lock cheaper, or compute it in code that releases the lock" + l.gives + ".",
			Risk:   "none", Effect: "the lock is held for less",
		}},
		Placebos: []string{"More threads: they wait for the same lock.", "More CPUs: one thread runs at a time."},
		Disproof: l.shows + " --pid " + pid + " shows few active threads without the lock.",
	}
	if who, notes := gilHolder(p); who != "" {
		f.Summary += ", which is held most often in " + who
		f.Notes = notes
	}
	if serves, known := evidence.Serves(p); known && !serves {
		f.Severity = check.Warning
		f.Notes = append(f.Notes, "the target listens on no port: its threads are there to compute, one at a time")
		return f
	}
	evidence.Noticed(p, &f, wanted, gilRequest)
	return f
}

// A gil is what the lock of an interpreter is called, and what to do about it.
type gil struct{ language, short, processes, before, after, gives, shows string }

// gilOf returns the lock of the interpreter that a process runs.
func gilOf(p *check.Pass, pid string) gil {
	for _, s := range p.Info(metric.ScriptRuntime) {
		if s.Label("pid") == pid && strings.HasPrefix(s.Label("runtime"), "Ruby") {
			return gil{
				language: "Ruby", short: "GVL", processes: "workers of puma (WEB_CONCURRENCY) or unicorn, fork",
				before: "threads 8, 8", after: "workers 2\nthreads 4, 4", shows: "rbspy snapshot",
			}
		}
	}
	return gil{
		language: "Python", short: "GIL",
		processes: "workers of gunicorn or uvicorn, multiprocessing, ProcessPoolExecutor",
		before:    "with ThreadPoolExecutor(8) as pool:", after: "with ProcessPoolExecutor(8) as pool:",
		gives: " (numpy, hashlib, zlib)", shows: "py-spy dump",
	}
}

// subjectOf names a process as other rules name the target. It is the target, unless the target has several
// processes.
func subjectOf(p *check.Pass, pid string) check.Subject {
	if pid == strconv.Itoa(p.Meta.Target.PID) {
		return evidence.TargetSubject(p)
	}
	return check.Subject{Kind: "pid", ID: pid}
}

// gilHolder names the functions that ran and so had the lock: the heaviest, and notes on it and others.
func gilHolder(p *check.Pass) (who string, notes []string) {
	c, ok := hotcode.ScriptsOf(p.Recording)
	if !ok {
		return "", nil
	}
	return evidence.HeaviestPlaces(c, "of the time that scripts ran")
}
