package check

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// rec is a recording of memory_total_bytes; meta is added to its meta.json.
func rec(t *testing.T, duration float64, meta string) *recording.Recording {
	t.Helper()
	r, err := recording.Read(fstest.MapFS{
		"meta.json":     {Data: fmt.Appendf(nil, `{"schema":1,"duration_seconds":%v%s}`, duration, meta)},
		"samples.jsonl": {Data: []byte(`{"t":0,"m":{"memory_total_bytes":[[1024]]}}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rule makes a valid check.
func rule(name string, stage Stage, run func(*Pass) error) *Check {
	return &Check{
		Name: name, Stage: stage, Doc: "Title of " + name + "\n\nBody.", URL: "https://www.kernel.org/doc/",
		Needs: []metric.Metric{metric.MemoryTotal},
		Run:   run,
	}
}

// reports finds one problem for each subject.
func reports(severity Severity, subjects ...Subject) func(*Pass) error {
	return func(p *Pass) error {
		for _, s := range subjects {
			p.Report(Finding{Subject: s, Severity: severity})
		}
		return nil
	}
}

// place is where in perfdoctor a check failed.
var place = regexp.MustCompile(` \([a-z]+\.\S+, [a-z_]+\.go:\d+\)`)

func TestOutcomes(t *testing.T) {
	limit := &Param{Name: "limit", Default: 3, Unit: quantity.Bytes, Why: "test"}
	needy := rule("needy", Path, func(*Pass) error { t.Error("run without what it needs"); return nil })
	needy.Needs = append(needy.Needs, metric.SwapFree)
	read := func(p *Pass) { p.Read(p.Param(limit)) }
	checks := []*Check{
		rule("finds", Path, func(p *Pass) error { read(p); return reports(Warning, Host)(p) }),
		rule("fine", Path, func(p *Pass) error { read(p); return nil }),
		rule("cannot", Path,
			func(p *Pass) error { read(p); return fmt.Errorf("x: %w", NotAssessed("wait", "only %d samples", 1)) }),
		rule("breaks", Path, func(*Pass) error { return errors.New("bad data") }),
		rule("panics", Path, func(p *Pass) error {
			p.Report(Finding{Subject: Host, Severity: Critical})
			p.Window().AtLeast(quantity.Of("ports", 1, quantity.Ports))
			return nil
		}),
		rule("index", Path, func(*Pass) error { none := make([]int, 0, 1); _ = none[len(none)]; return nil }),
		needy,
		rule("last", Path, func(*Pass) error { return nil }),
	}
	for _, c := range checks {
		c.Params = []*Param{limit}
	}
	r := rec(t, 10,
		`,"not_measured":[{"metric":"swap_free_bytes","status":"unsupported","reason":"no swap","remedy":"swapon"}]`)
	res := Run(r, checks, Options{Params: map[*Param]float64{limit: 7}})
	var got []string
	for _, o := range res.Outcomes {
		line := fmt.Sprintf("%s: %s %s (%s)", o.Check, o.State, place.ReplaceAllString(o.Reason, " (place)"), o.Remedy)
		for _, v := range o.Read {
			line += " read " + v.String()
		}
		got = append(got, line)
	}
	const bug = "report this as a bug with the recording (--save)"
	want := []string{
		"finds: findings  () read limit: 7 B", "fine: fine  () read limit: 7 B",
		"cannot: not assessed only 1 samples (wait) read limit: 7 B",
		"breaks: not assessed the check failed: bad data (" + bug + ")",
		`panics: not assessed the check failed: quantity: "window" is in "s", "ports" in "ports": they cannot be added or compared (place) (` + bug + ")",
		"index: not assessed the check failed: index out of range [0] with length 0 (place) (" + bug + ")",
		"needy: not assessed no swap (swapon)", "last: fine  ()",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(res.Findings) != 1 || res.Findings[0].Check != "finds" || res.Findings[0].Confidence != High {
		t.Errorf("findings of checks that broke are kept: %+v", res.Findings)
	}
	if limit.Value().Number() != 3 {
		t.Error("a run changed the default of a parameter")
	}
}

func pid(id string) Subject { return Subject{Kind: "pid", ID: id} }

// explained gives "finding <- its explanation" in the order of the result.
func explained(res *Result) (out []string) {
	for _, f := range res.Findings {
		line := f.ID()
		if f.ExplainedBy != "" {
			line += " <- " + f.ExplainedBy
		}
		out = append(out, line)
	}
	return out
}

// edges makes a graph of "cause effect" pairs.
func edges(pairs ...string) (out Causes) {
	for _, p := range pairs {
		cause, effect, _ := strings.Cut(p, " ")
		out = append(out, Edge{Cause: cause, Effect: effect, Why: "test"})
	}
	return out
}

func TestExplain(t *testing.T) {
	a := rule("a", Path, reports(Warning, Host))
	b := rule("b", Kernel, reports(Warning, pid("1")))
	c := rule("c", Limits, reports(Critical, pid("1"), pid("2")))
	far := rule("far", Path, reports(Warning, pid("2")))
	info := rule("info", Path, reports(Info, Host))
	fine := rule("fine", Connections, func(*Pass) error { return nil })
	cannot := rule("cannot", Connections, func(*Pass) error { return NotAssessed("", "nothing was recorded") })
	states := func(c *Check, f Fact) *Check {
		c.Facts = []Fact{f}
		c.Run = func(p *Pass) error {
			p.Report(Finding{Subject: pid("1"), Severity: Warning, Facts: []Fact{f}})
			return nil
		}
		return c
	}
	holds, clears := states(rule("holds", Code, nil), "it-holds"), states(rule("clears", Kernel, nil), "it-cannot-be")
	for _, tc := range []struct {
		name   string
		checks []*Check
		causes Causes
		want   []string
	}{
		{
			"a different subject of the kind is not related",
			[]*Check{b, c},
			edges("b c"),
			[]string{"c pid 2", "b pid 1", "c pid 1 <- b pid 1"},
		},
		{
			"the earliest cause explains all",
			[]*Check{c, b, a},
			edges("a b", "b c"),
			[]string{"c pid 2", "a host", "c pid 1 <- a host", "b pid 1 <- a host"},
		},
		{"in any order", []*Check{a, b, c}, edges("b c", "a b"), []string{
			"c pid 2", "a host", "c pid 1 <- a host",
			"b pid 1 <- a host",
		}},
		{
			"not through a check that is fine",
			[]*Check{far, fine, c},
			edges("far fine", "fine c"),
			[]string{"c pid 1", "c pid 2", "far pid 2"},
		},
		{
			"nor through one that is not assessed",
			[]*Check{far, cannot, c},
			edges("far cannot", "cannot c"),
			[]string{"c pid 1", "c pid 2", "far pid 2"},
		},
		{
			"nor through one that did not run",
			[]*Check{far, c},
			edges("far b", "b c"),
			[]string{"c pid 1", "c pid 2", "far pid 2"},
		},
		{
			"nor through information",
			[]*Check{a, info, c},
			edges("a info", "info c"),
			[]string{"c pid 1", "c pid 2", "a host", "info host <- a host"},
		},
		{
			"nor through a finding about something else",
			[]*Check{far, b, c},
			edges("far b", "b c"),
			[]string{"c pid 2", "far pid 2", "b pid 1", "c pid 1 <- b pid 1"},
		},
		{"info explains nothing", []*Check{info, c}, edges("info c"), []string{"c pid 1", "c pid 2", "info host"}},
		{
			"where its numbers say so, and of a later stage",
			[]*Check{c, holds},
			Causes{{Cause: "holds", Effect: "c", If: "it-holds"}},
			[]string{"c pid 2", "holds pid 1", "c pid 1 <- holds pid 1"},
		},
		{
			"not where they do not",
			[]*Check{c, b},
			Causes{{Cause: "b", Effect: "c", If: "it-holds"}},
			[]string{"c pid 1", "c pid 2", "b pid 1"},
		},
		{
			"not where those of the effect clear the cause",
			[]*Check{a, clears},
			Causes{{Cause: "a", Effect: "clears", Unless: "it-cannot-be"}},
			[]string{"a host", "clears pid 1"},
		},
		{
			"where they do not",
			[]*Check{a, b},
			Causes{{Cause: "a", Effect: "b", Unless: "it-cannot-be"}},
			[]string{"a host", "b pid 1 <- a host"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := Run(rec(t, 10, ""), tc.checks, Options{Causes: tc.causes})
			if diff := cmp.Diff(tc.want, explained(res)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if p := res.Principal(); p == nil || p.ID() != tc.want[0] {
				t.Errorf("principal: %+v", p)
			}
		})
	}
	if p := Run(rec(t, 10, ""), []*Check{info}, Options{}).Principal(); p != nil {
		t.Errorf("info is the principal finding: %+v", p)
	}
}

// TestUndeclaredParam: a rule cannot compare with a threshold that a user cannot set.
func TestUndeclaredParam(t *testing.T) {
	hidden := &Param{Name: "hidden", Default: 1, Why: "test"}
	c := rule("a", Path, func(p *Pass) error { p.Param(hidden); return nil })
	o := Run(rec(t, 10, ""), []*Check{c}, Options{}).Outcomes[0]
	if o.State != Unassessed ||
		!strings.Contains(o.Reason, `a reads the threshold "hidden", which it does not declare`) {
		t.Errorf("%+v", o)
	}
}

// TestUndeclaredFact: a finding cannot state a fact that no edge can name.
func TestUndeclaredFact(t *testing.T) {
	c := rule("a", Path, func(p *Pass) error {
		p.Report(Finding{Subject: Host, Severity: Warning, Facts: []Fact{"made-up"}})
		return nil
	})
	o := Run(rec(t, 10, ""), []*Check{c}, Options{}).Outcomes[0]
	if o.State != Unassessed || !strings.Contains(o.Reason, `a states "made-up", which it does not declare`) {
		t.Errorf("%+v", o)
	}
}

func TestValidateCauses(t *testing.T) {
	run := func(*Pass) error { return nil }
	suite := []*Check{rule("a", Path, run), rule("b", Path, run), rule("c", Path, run)}
	suite[0].Facts = []Fact{"it-holds"}
	good := edges("a b", "b c", "a c")
	good[0].If = "it-holds"
	if err := good.Validate(suite); err != nil {
		t.Errorf("a good graph: %v", err)
	}
	ring := edges("a b", "b c", "c a")
	ring[2].Unless = "it-holds"
	for want, causes := range map[string]Causes{
		"gone -> a: there is no check":                 edges("gone a"),
		"a -> gone: there is no check":                 edges("a gone"),
		"a -> a: a check does not explain itself":      edges("a a"),
		"a -> b: the edge is there twice":              edges("a b", "a b"),
		"a -> b: the edge has no reason":               {{Cause: "a", Effect: "b"}},
		`a -> b: no finding of a states "gone"`:        {{Cause: "a", Effect: "b", Why: "x", If: "gone"}},
		`a -> b: no finding of b states "it-holds"`:    {{Cause: "a", Effect: "b", Why: "x", Unless: "it-holds"}},
		"nothing is the first cause: a -> b -> c -> a": ring,
		"nothing is the first cause: b -> c -> a -> b": ring,
		"nothing is the first cause: b -> c -> b":      edges("a b", "b c", "c b"),
	} {
		if err := causes.Validate(suite); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestOrder(t *testing.T) {
	low := func(p *Pass) error {
		p.Report(Finding{Subject: Host, Severity: Warning, Confidence: Low})
		return nil
	}
	res := Run(rec(t, 10, ""), []*Check{
		rule("z-code", Code, reports(Critical, Host)), rule("info", Path, reports(Info, Host)),
		rule("b", Kernel, reports(Warning, pid("2"), pid("1"))),
		rule("a-unsure", Kernel, low), rule("a", Kernel, reports(Warning, Host)),
		rule("path", Path, reports(Warning, Host)),
	}, Options{})
	want := []string{"z-code host", "path host", "a host", "b pid 1", "b pid 2", "a-unsure host", "info host"}
	if diff := cmp.Diff(want, explained(res)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestConfidence(t *testing.T) {
	lossy :=
		`,"collectors":[{"name":"mem","status":"ok","samples":9,"late_samples":1,"metrics":["memory_total_bytes"]},` +
			`{"name":"other","status":"ok","lost":[{"what":"things","count":3}],"metrics":["uptime_seconds"]}]`
	uses := rule("uses", Path, reports(Warning, Host))
	uses.Uses = []metric.Metric{metric.Uptime}
	for _, tc := range []struct {
		check      *Check
		duration   float64
		meta       string
		confidence Confidence
		doubts     []string
	}{
		{rule("x", Path, reports(Warning, Host)), 5, "", High, nil},
		{rule("x", Path, reports(Warning, Host)), 4, "", Medium, []string{"only 4 s were observed"}},
		{rule("x", Path, reports(Warning, Host)), 10, lossy, Medium, []string{"mem: 1 of 10 samples were late"}},
		{uses, 10, lossy, Medium, []string{"mem: 1 of 10 samples were late", "other: 3 things"}},
		{rule("x", Path, func(p *Pass) error {
			p.Report(Finding{Subject: Host, Severity: Warning, Confidence: Low, Doubts: []string{"own"}})
			return nil
		}), 1, "", Low, []string{"own", "only 1 s were observed"}},
	} {
		f := Run(rec(t, tc.duration, tc.meta), []*Check{tc.check}, Options{}).Findings[0]
		if f.Confidence != tc.confidence || !cmp.Equal(f.Doubts, tc.doubts) {
			t.Errorf("confidence %s, doubts %q; want %s, %q", f.Confidence, f.Doubts, tc.confidence, tc.doubts)
		}
	}
}

func TestValidate(t *testing.T) {
	run := func(*Pass) error { return nil }
	if err := Validate([]*Check{rule("a", Path, run), rule("b-2", Code, run)}); err != nil {
		t.Errorf("a good suite: %v", err)
	}
	broken := func(change func(*Check)) []*Check {
		c := rule("x", Path, run)
		change(c)
		return []*Check{c}
	}
	for want, suite := range map[string][]*Check{
		`"a" is listed twice`:           {rule("a", Path, run), rule("a", Path, run)},
		"entry 1 of the suite is empty": {nil},
		`the fact "No_Kebab" is not`:    broken(func(c *Check) { c.Facts = []Fact{"No_Kebab"} }),
		"not kebab-case":                broken(func(c *Check) { c.Name = "No_Kebab" }),
		"no such stage: 9":              broken(func(c *Check) { c.Stage = 9 }),
		"title line and a body":         broken(func(c *Check) { c.Doc = "title only" }),
		"source, Run and Needs":         broken(func(c *Check) { c.URL = "" }),
		"source, Run and Needs ":        broken(func(c *Check) { c.Run = nil }),
		"source, Run and Needs must":    broken(func(c *Check) { c.Needs = nil }),
		`parameter "p" needs`:           broken(func(c *Check) { c.Params = []*Param{{Name: "p"}} }),
		`parameter "p" is listed twice`: broken(
			func(c *Check) { c.Params = []*Param{{Name: "p", Why: "x"}, {Name: "p", Why: "x"}} }),
		`parameter "p" has no default`: broken(
			func(c *Check) { c.Params = []*Param{{Name: "p", Why: "x", Default: math.NaN()}} }),
	} {
		if err := Validate(suite); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestScope: a check about JVMs does not apply to a target that is not a JVM. If nobody looked, it is a gap.
func TestScope(t *testing.T) {
	c := &Check{
		Name: "of-jvms", Only: &Scope{Fact: metric.JVMInfo, Name: "JVM"}, Needs: []metric.Metric{metric.JVMUptime},
		Run: func(*Pass) error { t.Error("it ran"); return nil },
	}
	for name, tc := range map[string]struct {
		fill  func(a *recording.Appender)
		state State
	}{
		"none":          {func(a *recording.Appender) { a.None(metric.JVMInfo) }, Inapplicable},
		"nobody looked": {func(*recording.Appender) {}, Unassessed},
		"one, not measured": {
			func(a *recording.Appender) { a.Info(metric.JVMInfo, "1", "java", "HotSpot") },
			Unassessed,
		},
	} {
		b := recording.NewBuilder()
		a := b.Appender()
		tc.fill(a)
		a.Commit()
		o := Run(b.Done(recording.Meta{}), []*Check{c}, Options{}).Outcomes[0]
		if o.State != tc.state || o.Reason == "" {
			t.Errorf("%s: %+v, want %s", name, o, tc.state)
		}
	}
}

// TestShared: what several checks read is made once in a run. It is made anew in the next run, and again if making it
// failed.
func TestShared(t *testing.T) {
	type account struct{ n int }
	made := 0
	look := func(p *Pass) error {
		a := Shared(p, func(*recording.Recording) *account {
			made++
			if made == 1 {
				panic("bad data")
			}
			return &account{made}
		})
		p.Read(quantity.Of("account", float64(a.n), quantity.None))
		return nil
	}
	checks := []*Check{rule("fails", Path, look), rule("makes", Path, look), rule("reads", Path, look)}
	for run, want := range []struct {
		state State
		read  float64
	}{{Unassessed, 2}, {Fine, 3}} {
		res := Run(rec(t, 10, ""), checks, Options{})
		if res.Outcomes[0].State != want.state {
			t.Errorf("run %d: %+v, want %s", run, res.Outcomes[0], want.state)
		}
		for _, o := range res.Outcomes[1:] {
			if len(o.Read) != 1 || o.Read[0].Number() != want.read {
				t.Errorf("run %d: %+v, want that number %v was read", run, o, want.read)
			}
		}
	}
}
