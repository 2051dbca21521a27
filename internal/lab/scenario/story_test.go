package scenario

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// storyBase has three faults, with a placebo between them.
const storyBase = `name: leak
title: Three faults
vm: {mode: allowed}
hosts: {one: {sysctls: {net.ipv4.tcp_tw_reuse: 0}}}
cgroups: {box: {quota: 20ms}}
processes:
  leak: {host: one, cgroup: box, open_files: {count: 600, per_second: 30}}
  spin: {host: one, spin: {threads: 2}}
measure: leak
diagnose: {target: leak, duration: 4s}
expect: {forbidden: [softnet-drops]}
foretold: [{metric: throughput, value: 30, because: the rate}]
rungs:
  quota:
    title: a quota
    expect: {verdict: cpu-throttled}
    cure: {title: none, change: {cgroups: {box: {quota: 80ms}}}}
    moves: [{metric: throughput, factor_at_least: 2, because: four times the time}]
  reuse:
    placebo: true
    cure: {title: reuse, change: {hosts: {one: {sysctls: {net.ipv4.tcp_tw_reuse: 1}}}}}
    moves: [{metric: throughput, factor_at_most: 1.1}]
  files:
    title: files are not closed
    expect: {verdict: fd-limit, forbidden: [cpu-throttled]}
    diagnose: {duration: 5s}
    cure: {title: they are, change: {processes: {leak: {open_files: {per_second: null}}}}}
    moves: [{metric: throughput, factor_at_most: 0.1, because: none is opened}, {metric: errors, at_most: 0, because: none}]
  drops:
    title: drops
    expect: {verdict: softnet-drops}
    diagnose: {target: spin}
    cure: {title: one thread, change: {processes: {spin: {spin: {threads: 1}}}}}
    moves: [{metric: throughput, at_least: 0, because: it is zero}]
`

func story(t *testing.T) *Scenario {
	t.Helper()
	s, err := Read(files(storyBase), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClimb has the states of each way: what each must say, what was changed to get there, and from which state.
func TestClimb(t *testing.T) {
	one := uint64(1)
	for _, tt := range []struct {
		name  string
		climb Climb
		want  []string // name, kind, verdict; change and the phase before it
	}{
		{"the order of the file", Climb{}, []string{
			"1-quota rung cpu-throttled",
			"2-files rung fd-limit; quota after 1-quota",
			"3-reuse placebo fd-limit; reuse after 2-files",
			"4-drops rung softnet-drops; files after 2-files",
			"5-healthy healthy none; drops after 4-drops",
		}},
		{"another order", Climb{Order: []string{"files", "drops", "quota", "reuse"}}, []string{
			"1-quota rung cpu-throttled",
			"2-quota rung cpu-throttled; files after 1-quota, out of turn",
			"3-quota rung cpu-throttled; drops after 2-quota, out of turn",
			"4-healthy healthy none; quota after 3-quota",
			"5-reuse placebo none; reuse after 4-healthy",
		}},
		{"without the placebo", Climb{Order: []string{"quota", "files", "drops"}}, []string{
			"1-quota rung cpu-throttled", "2-files rung fd-limit; quota after 1-quota",
			"3-drops rung softnet-drops; files after 2-files",
			"4-healthy healthy none; drops after 3-drops",
		}},
		{"two left out", Climb{Seed: &one}, []string{
			"1-files rung fd-limit", "2-reuse placebo fd-limit; reuse after 1-files",
			"3-healthy healthy none; files after 1-files",
		}},
		{"one rung", Climb{Rung: "files"}, []string{
			"1-files rung fd-limit",
			"2-drops rung softnet-drops; files after 1-files",
		}},
		{"one rung alone", Climb{Rung: "files", Alone: true}, []string{"1-files rung fd-limit"}},
		{"the placebo", Climb{Rung: "reuse"}, []string{
			"1-files rung fd-limit",
			"2-reuse placebo fd-limit; reuse after 1-files",
		}},
		{"healthy", Climb{Healthy: true}, []string{"1-healthy healthy none"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, err := story(t).climb(tt.climb)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range list {
				line := p.name + " " + p.kind + " " + p.expect.Verdict
				if p.rung != nil {
					line += "; " + p.rung.Name + " after " + list[p.from].name
				}
				if p.loose {
					line += ", out of turn"
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStates: a state is the file with the changes of what is fixed. It is diagnosed as the first remaining fault says.
func TestStates(t *testing.T) {
	list, err := story(t).climb(Climb{Order: []string{"drops", "quota", "reuse", "files"}})
	if err != nil {
		t.Fatal(err)
	}
	type state struct {
		threads, files int
		quota, reuse   string
		target, window string
		forbidden      []string
		foretold       int
	}
	var got []state
	for _, p := range list {
		got = append(got, state{
			p.site.Processes[1].Spin.Threads, int(p.site.Processes[0].OpenFiles.PerSecond),
			p.site.Cgroups[0].Quota.String(), p.site.Hosts[0].Sysctls["net.ipv4.tcp_tw_reuse"],
			p.site.Diagnose.Target, p.site.Diagnose.Duration.String(), p.expect.Forbidden, len(p.foretold),
		})
	}
	all := []string{"softnet-drops"}
	want := []state{
		{2, 30, "20ms", "0", "leak", "4s", all, 1},
		{1, 30, "20ms", "0", "leak", "4s", all, 0},
		{1, 30, "80ms", "0", "leak", "5s", []string{"cpu-throttled", "softnet-drops"}, 0},
		{1, 30, "80ms", "1", "leak", "5s", nil, 0},
		{1, 0, "80ms", "0", "leak", "4s", all, 0},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(state{})); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// TestLeft: what is left is expected when all is fixed, in that state and for a placebo on it, and nowhere else.
func TestLeft(t *testing.T) {
	left := "left: {verdict: cpu-throttled, forbidden: [fd-limit]}\n"
	base := strings.Replace(storyBase, "rungs:\n", left+"rungs:\n", 1)
	s, err := Read(files(base), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.climb(Climb{Order: []string{"quota", "files", "drops", "reuse"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []Expect
	for _, p := range list[2:] {
		got = append(got, *p.expect)
	}
	want := []Expect{
		{Verdict: "softnet-drops", Forbidden: []string{"softnet-drops"}},
		{Verdict: "cpu-throttled", Forbidden: []string{"fd-limit", "softnet-drops"}},
		{Verdict: "cpu-throttled", Forbidden: []string{"fd-limit"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("drops, all fixed, and a placebo then (-want +got):\n%s", diff)
	}
}

// TestLeftWithoutVerdict: what is left may be anything but what was fixed.
func TestLeftWithoutVerdict(t *testing.T) {
	for left, wrong := range map[string]bool{"{forbidden: [fd-limit]}": false, "{required: [fd-limit]}": true} {
		base := strings.Replace(storyBase, "rungs:\n", "left: "+left+"\nrungs:\n", 1)
		s, err := Read(files(base), "leak", checkNames)
		if (err != nil) != wrong {
			t.Errorf("left: %s: error %v, want one: %v", left, err, wrong)
		}
		if err == nil && s.left().Verdict != "" {
			t.Errorf("left: %s: the verdict is to be %s, want none asserted", left, s.left().Verdict)
		}
	}
}

// TestLeftOut: a seed always leaves out the same two, and at least one fault is always left.
func TestLeftOut(t *testing.T) {
	s, seen := story(t), map[string]bool{}
	for seed := range uint64(40) {
		out := s.leftOut(&seed)
		if again := s.leftOut(&seed); len(out) != 2 || cmp.Diff(out, again) != "" {
			t.Errorf("seed %d: %v and then %v, want the same two", seed, out, again)
		}
		seen[strings.Join(out, " ")] = true
	}
	if want := map[string]bool{"quota files": true, "quota drops": true, "files drops": true}; cmp.Diff(
		want, seen) != "" {
		t.Errorf("left out over 40 seeds: %v, want each two, in the order of the file", seen)
	}
	s.Rungs = s.Rungs[:2]
	if seed := uint64(1); len(s.leftOut(&seed)) != 0 {
		t.Error("the only fault was left out")
	}
}

// TestPlaceboThatMovesAFault: what it names is expected when it is tried on the next fault of the file, and nowhere
// else.
func TestPlaceboThatMovesAFault(t *testing.T) {
	base := strings.Replace(storyBase, "    placebo: true\n",
		"    placebo: true\n    expect: {verdict: cpu-throttled}\n", 1)
	s, err := Read(files(base), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		order []string
		want  string
	}{
		{nil, "cpu-throttled"}, // on files
		{[]string{"reuse", "quota", "files", "drops"}, "cpu-throttled"}, // on quota, whose verdict it is
		{[]string{"quota", "files", "reuse", "drops"}, "softnet-drops"},
		{[]string{"quota", "files", "drops", "reuse"}, VerdictNone},
	} {
		list, err := s.climb(Climb{Order: tt.order})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(list, func(p phaseSpec) bool { return p.kind == KindPlacebo })
		if got := list[at].expect.Verdict; got != tt.want {
			t.Errorf("order %v: the placebo's verdict is to be %s, want %s", tt.order, got, tt.want)
		}
	}
}

// regressing has a regression for its last fault.
func regressing(t *testing.T) *Scenario {
	t.Helper()
	base := strings.Replace(storyBase, "    expect: {verdict: softnet-drops}\n", "    regression: [main.spin grew]\n",
		1)
	s, err := Read(files(base), "leak", checkNames)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRegression: the state with a regression has no verdict. The state after its fix is compared with it, as the
// version before, and must be better in the way that was planted.
func TestRegression(t *testing.T) {
	list, err := regressing(t).climb(Climb{})
	if err != nil {
		t.Fatal(err)
	}
	with, last := list[3], list[4]
	if with.kind != KindRung || with.expect.Verdict != VerdictNone {
		t.Errorf("the state with the regression is %s, %s, to have the verdict %s", with.name, with.kind,
			with.expect.Verdict)
	}
	for _, tt := range []struct {
		worse []string
		loose bool
		held  bool
		line  string
	}{
		{[]string{"resident memory: 2 -> 3", "main.spin grew: 2 % -> 8 %"}, false, true, "main.spin grew: 2 % -> 8 %"},
		{[]string{"main.leak grew: 2 % -> 8 %"}, false, false, "main.leak grew: 2 % -> 8 %"},
		{nil, false, false, ""},
		{nil, true, true, ""}, // out of turn
	} {
		phases := []Phase{{Name: "1"}, {Name: "2"}, {Name: "3"}, {
			Name: with.name, Verdict: VerdictNone,
			Measured: measures{Throughput: 90},
		}}
		j := judge{phase: &Phase{Name: last.name, Measured: measures{Throughput: 100}}}
		spec := last
		spec.loose = tt.loose
		j.regression(spec, phases, Options{Compare: func(_, _ *recording.Recording, requests [2]float64) ([]string,
			string,
		) {
			if requests != [2]float64{100, 90} {
				t.Errorf("requests %v: want those of the version before, then those with the regression", requests)
			}
			return tt.worse, "words"
		}})
		if j.phase.held() != tt.held {
			t.Errorf("worse %q: %+v", tt.worse, j.phase.Assertions)
		}
		st := stepOf(&spec, &list[spec.from], &phases[spec.from], j.phase)
		if st.Verdict != VerdictRegression || st.Arithmetic != tt.line || st.Held != tt.held {
			t.Errorf("worse %q: step %+v", tt.worse, st)
		}
	}
}

func TestClimbMistakes(t *testing.T) {
	for _, tt := range []struct {
		climb Climb
		want  string
	}{
		{Climb{Rung: "file"}, `leak has no rung "file": did you mean files?`},
		{Climb{Order: []string{"quota", "xyzzy"}}, `leak has no rung "xyzzy": there is quota, reuse, files, drops`},
		{Climb{Order: []string{"quota", "files", "quota"}}, "quota is named twice"},
		{Climb{Order: []string{"quota", "files"}}, "drops is missing: name each fault once"},
	} {
		if _, err := story(t).PhaseNames(tt.climb); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %s", tt.climb, err, tt.want)
		}
	}
}

// TestStoryMistakes: a mistake in rungs is refused with the line.
func TestStoryMistakes(t *testing.T) {
	for _, tt := range []struct{ name, from, to, want string }{
		{
			"unknown field", "    moves: [{metric: throughput, factor_at_most: 1.1}]", "    mvoes: []",
			`:22: unknown field "mvoes" in rungs.reuse: did you mean moves?`,
		},
		{
			"unknown check", "verdict: fd-limit", "verdict: fd-limits",
			`:25: rungs.files.expect.verdict: there is no check or verdict "fd-limits": did you mean fd-limit?`,
		},
		{
			"unknown check of all states", "{forbidden: [softnet-drops]}", "{forbidden: [softnet-drop]}",
			`:11: expect.forbidden: there is no check "softnet-drop"`,
		},
		{"no fault", "verdict: softnet-drops", "verdict: none", ":31: rungs.drops.expect.verdict: a rung is a fault"},
		{
			"cures beside", "rungs:\n", "cures: {x: {title: x, change: {cgroups: null}, moves: []}}\nrungs:\n",
			"a scenario with rungs has no cures and placebos beside",
		},
		{
			"a verdict of all", "expect: {forbidden: [softnet-drops]}", "expect: {verdict: fd-limit}",
			":11: expect: each rung has its own",
		},
		{
			"an unknown check left", "rungs:\n", "left: {verdict: fd-limits}\nrungs:\n",
			`left.verdict: there is no check or verdict "fd-limits"`,
		},
		{
			"no arithmetic", ", because: four times the time}", "}",
			":18: rungs.quota.moves: throughput: because is missing",
		},
		{
			"no moves", "    moves: [{metric: throughput, at_least: 0, because: it is zero}]\n", "",
			"rungs.drops.moves: missing",
		},
		{"no title", "    title: drops\n", "", "rungs.drops.title: missing"},
		{"no title of a cure", "{title: one thread, change", "{change", "rungs.drops.cure.title: missing"},
		{"no change", "change: {cgroups: {box: {quota: 80ms}}}", "change: null", "rungs.quota.cure.change: missing"},
		{"a name of a state", "  drops:\n", "  healthy:\n", "rungs.healthy: healthy is the name of a state"},
		{
			"a diagnosis of a placebo", "    title: files", "    placebo: true\n    title: files",
			"rungs.files.diagnose: a placebo is diagnosed as the first",
		},
		{
			"half a verdict on a placebo", "    placebo: true\n",
			"    placebo: true\n    expect: {severity: warning}\n",
			"rungs.reuse.expect: without a verdict of its own",
		},
		{
			"a placebo that cures", "    placebo: true\n", "    placebo: true\n    expect: {verdict: none}\n",
			"rungs.reuse.expect.verdict: a placebo cures nothing",
		},
		{
			"diagnose is no mapping", "diagnose: {target: spin}", "diagnose: spin",
			"rungs.drops.diagnose: want the fields that differ",
		},
		{
			"a regression that is not the last fault", "    expect: {verdict: fd-limit, forbidden: [cpu-throttled]}",
			"    regression: [main.open grew]",
			"rungs.files.regression: the last fault alone can be one",
		},
		{
			"a regression with a verdict", "    expect: {verdict: softnet-drops}",
			"    expect: {verdict: softnet-drops}\n    regression: [main.open grew]",
			"rungs.drops.expect: a regression has none",
		},
		{
			"a placebo for a regression", "    placebo: true\n",
			"    placebo: true\n    regression: [main.open grew]\n",
			"rungs.reuse.regression: a placebo is no fault",
		},
		{
			"the same field twice", "change: {hosts: {one: {sysctls: {net.ipv4.tcp_tw_reuse: 1}}}}",
			"change: {cgroups: {box: {quota: 30ms}}}",
			":21: rungs.reuse.cure.change: cgroups.box.quota is changed by quota too: the cures must not depend on " +
				"their order",
		},
		{
			"a part of what another removes", "change: {processes: {spin: {spin: {threads: 1}}}}",
			"change: {processes: {leak: null}}",
			":33: rungs.drops.cure.change: processes.leak is changed by files too",
		},
		{
			"a state that cannot be built", "{threads: 1}", "{threads: one}",
			`:33: processes.spin.spin.threads: "one" is not a whole number`,
		},
		{
			"a name that leads nowhere after a cure", "change: {cgroups: {box: {quota: 80ms}}}",
			"change: {cgroups: {box: null}}",
			`leak/scenario.yaml:7: with the change of quota: processes.leak.cgroup: there is no cgroup "box"`,
		},
		{
			"the target of a state", "diagnose: {target: spin}", "diagnose: {target: spni}",
			`:32: with the change of quota, files: diagnose.target: there is no process "spni": did you mean spin?`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(storyBase, tt.from, tt.to, 1)
			if text == storyBase {
				t.Fatalf("the story has no %q", tt.from)
			}
			_, err := Read(files(text), "leak", checkNames)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestOverlaysAreIndependent: keys with dots are not taken for paths, and a placebo counts like a fix.
func TestOverlaysAreIndependent(t *testing.T) {
	text := strings.Replace(storyBase, "change: {cgroups: {box: {quota: 80ms}}}",
		"change: {cgroups: {box: {quota: 80ms}}, hosts: {one: {sysctls: {net.ipv4.tcp_tw_reuse_delay: 1}}}}", 1)
	if _, err := Read(files(text), "leak", checkNames); err != nil {
		t.Errorf("tcp_tw_reuse and tcp_tw_reuse_delay: %v", err)
	}
}
