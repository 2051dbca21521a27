package scenario

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/collect/vantage"
	"github.com/perfdoctor/perfdoctor/internal/input/spelling"
)

// validator finds mistakes that the decoder cannot: names that lead nowhere, and combinations that mean nothing.
type validator struct {
	file   string
	root   *yaml.Node // where paths are looked up: the file, or the site of a trial
	prefix string     // of paths in messages, when root is not the file
	checks []string
	// metrics are the ones that moves and foretold may name.
	metrics []string
	errs    []error
}

// fail reports what is wrong at a path of keys such as "processes.client.host".
func (v *validator) fail(path, format string, args ...any) {
	v.failAt(find(v.root, path), path, format, args...)
}

func (v *validator) failAt(n *yaml.Node, path, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s:%d: %s%s: %s", v.file, n.Line, v.prefix, path, fmt.Sprintf(format, args...)))
}

// find returns the node at the path, or the deepest one on the way to it.
func find(n *yaml.Node, path string) *yaml.Node {
	for key := range strings.SplitSeq(path, ".") {
		i := -1
		if n.Kind == yaml.MappingNode {
			i = indexOf(n, key)
		}
		if i < 0 {
			return n
		}
		if n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1]
		}
		n = n.Content[i+1]
	}
	return n
}

// name reports an unknown name at the path, or in the list or mapping there. there are the known names.
func (v *validator) name(path, what, name string, there []string) {
	if slices.Contains(there, name) {
		return
	}
	at := find(v.root, path)
	for _, n := range at.Content {
		if n.Kind == yaml.ScalarNode && n.Value == name {
			at = n
		}
	}
	if name == "" {
		v.failAt(at, path, "missing: want a %s: %s", what, strings.Join(there, ", "))
		return
	}
	if near := spelling.Nearest(name, there); near != "" {
		v.failAt(at, path, "there is no %s %q: did you mean %s?", what, name, near)
		return
	}
	v.failAt(at, path, "there is no %s %q: there is %s", what, name, strings.Join(there, ", "))
}

// Names become parts of directories, control groups and device aliases. Hosts and groups have names as package lab
// wants them; scenarios, phases and processes have names that are easy to type on a command line.
var (
	hostName  = regexp.MustCompile(`^[a-z0-9][a-z0-9_]{0,31}$`)
	phaseName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
)

func (v *validator) pattern(path, name string, want *regexp.Regexp) {
	if !want.MatchString(name) {
		v.fail(path, "the name %q: want %s", name, want)
	}
}

// address reports text that is not an address: with a port for listening or connecting, with a prefix on an
// interface.
func (v *validator) address(path, text string) {
	if _, err := netip.ParseAddrPort(text); err != nil {
		v.fail(path, "%q is not an address with a port, such as 10.91.0.2:9000", text)
	}
}

func (v *validator) cidr(path, text string) {
	if _, err := netip.ParsePrefix(text); err != nil {
		v.fail(path, "%q is not an address with a prefix, such as 10.91.0.2/24", text)
	}
}

func (v *validator) scenario(s *Scenario, dir string) {
	v.metrics = metricNames(s.Site.Processes)
	v.pattern("name", s.Name, phaseName)
	if s.Name != dir {
		v.fail("name", "%q: must be the name of its directory, %s", s.Name, dir)
	}
	if s.Title == "" {
		v.fail("title", "missing: say in one line what is wrong, or right")
	}
	v.name("vm.mode", "mode", s.VM.Mode, []string{VMNever, VMAllowed, VMRequired})
	if s.VM.Mode != VMAllowed && s.VM.Reason == "" {
		v.fail("vm.reason", "missing: say why %s", s.VM.Mode)
	}
	v.site(&s.Site)
	v.jdks(s)
	v.machine(s.VM.Mode, &s.Site)
	v.foretold("foretold", s.Foretold)
	if s.Story() {
		v.rungs(s)
	} else {
		v.expect("expect", &s.Expect)
		if s.Left != nil {
			v.fail("left", "a story alone has it: give the scenario rungs, or say in cures what is left")
		}
		if len(s.Expect.Or) > 0 { // fixes and placebos are judged by the one verdict
			v.fail("expect.or", "a rung of a story alone has it")
		}
	}
	v.engineTools(s)
	v.affinity(s)
	v.trials(s)
}

func (v *validator) trials(s *Scenario) {
	seen := map[string]bool{PhaseSick: true}
	for _, list := range []struct {
		kind   string
		trials []Trial
	}{{"cures", s.Cures}, {"placebos", s.Placebos}} {
		for i := range list.trials {
			t := &list.trials[i]
			path := list.kind + "." + t.Name
			v.pattern(path, t.Name, phaseName)
			if seen[t.Name] {
				v.fail(path, "a phase of that name is there already")
			}
			seen[t.Name] = true
			v.trial(path, list.kind == "cures", t, s)
		}
	}
}

func (v *validator) expect(at string, e *Expect) {
	v.name(at+".verdict", "check or verdict", e.Verdict, append([]string{VerdictNone, VerdictOpen}, v.checks...))
	v.known(at+".or", e.Or)
	if e.Severity != "" {
		v.name(at+".severity", "severity", e.Severity, []string{"warning", "critical"})
	}
	v.known(at+".required", e.Required)
	v.known(at+".forbidden", e.Forbidden)
	for _, gap := range e.NotAssessed {
		path := at + ".not_assessed." + gap.Name
		if slices.Contains(v.checks, gap.Name) {
			v.fail(path, "the check is there: require it")
		}
		if gap.Reason == "" {
			v.fail(path, "the reason is missing")
		}
	}
	switch {
	case e.Verdict == VerdictOpen && len(e.NotAssessed) == 0:
		v.fail(at+".verdict", "open: say in not_assessed which finding is missing, and why")
	case (e.Verdict == VerdictOpen || e.Verdict == VerdictNone) && (e.Severity != "" || e.Subject != "" ||
		len(e.Or)+len(e.Evidence) > 0):
		v.fail(at, "or, severity, subject and evidence are those of a verdict, which is %s", e.Verdict)
	}
	for _, name := range e.Required {
		if slices.Contains(e.Forbidden, name) {
			v.fail(at+".forbidden", "%s is both required and forbidden", name)
		}
	}
}

func (v *validator) known(path string, checks []string) {
	for _, name := range checks {
		v.name(path, "check", name, v.checks)
	}
}

// machine reports settings of the whole machine in a scenario that may run on the user's machine.
func (v *validator) machine(mode string, s *Site) {
	if len(s.Sysctls) > 0 && mode != VMRequired {
		v.fail("sysctls", "these are the whole machine's: they need vm: {mode: required}; those of a namespace are "+
			"hosts.NAME.sysctls")
	}
}

func (v *validator) trial(path string, cure bool, t *Trial, s *Scenario) {
	if t.Title == "" {
		v.fail(path+".title", "missing: say what is changed")
	}
	if t.Change == nil {
		v.fail(path+".change", "missing: without one it is the same phase again")
	}
	changed := validator{file: v.file, root: t.merged, prefix: path + ".change: ", checks: v.checks}
	changed.site(&t.Site)
	changed.machine(s.VM.Mode, &t.Site)
	v.errs = append(v.errs, changed.errs...)
	v.known(path+".gone", t.Gone)
	v.known(path+".still", t.Still)
	if t.Verdict != "" {
		v.name(path+".verdict", "check or verdict", t.Verdict, append([]string{VerdictNone}, v.checks...))
	}
	isCheck := s.Expect.Verdict != VerdictNone && s.Expect.Verdict != VerdictOpen
	if !isCheck && len(t.Gone)+len(t.Still)+len(t.Moves) == 0 && t.Verdict == "" {
		v.fail(path, "give gone, still, verdict or moves: without any of them nothing is asserted")
	}
	v.moves(path+".moves", cure, t.Moves)
	v.foretold(path+".foretold", t.Foretold)
}

// moves reports moves without a bound, and moves without a required reason.
func (v *validator) moves(path string, reasons bool, moves []Move) {
	for i := range moves {
		m := &moves[i]
		v.name(path, "metric", m.Metric, v.metrics)
		if m.FactorAtLeast == nil && m.FactorAtMost == nil && m.AtLeast == nil && m.AtMost == nil {
			v.fail(path, "%s has no bound: give factor_at_least, factor_at_most, at_least or at_most", m.Metric)
		}
		if reasons && m.Because == "" {
			v.fail(path, "%s: because is missing: show the arithmetic", m.Metric)
		}
	}
}

func (v *validator) foretold(path string, list []Foretold) {
	for _, f := range list {
		v.name(path, "metric", f.Metric, v.metrics)
		if f.Because == "" {
			v.fail(path, "%s: because is missing: show the arithmetic", f.Metric)
		}
	}
}

// site checks what the names in a site refer to. A change may have removed what another part needs.
func (v *validator) site(s *Site) {
	hosts := s.hostNames()
	if len(hosts) == 0 {
		v.fail("hosts", "missing: even one process needs a host")
	}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		v.pattern("hosts."+h.Name, h.Name, hostName)
		if h.Masquerade != "" {
			v.name("hosts."+h.Name+".masquerade", "link or bridge", h.Masquerade, s.linkNames())
		}
		if h.Engine != "" {
			v.name("hosts."+h.Name+".engine", "engine", h.Engine, []string{EngineDocker})
		}
		if h.DropSYN != nil && h.DropSYN.Port == 0 {
			v.fail("hosts."+h.Name+".drop_syn", "the port is missing")
		}
	}
	v.links(s, hosts)
	var groups, processes []string
	for _, g := range s.Cgroups {
		groups = append(groups, g.Name)
		for element := range strings.SplitSeq(g.Name, "/") {
			v.pattern("cgroups."+g.Name, element, hostName)
		}
		if g.Period != 0 && g.Quota == 0 {
			v.fail("cgroups."+g.Name, "a period means nothing without a quota")
		}
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		path := "processes." + p.Name
		processes = append(processes, p.Name)
		v.pattern(path, p.Name, phaseName)
		v.name(path+".host", "host", p.Host, hosts)
		if p.Cgroup != "" {
			v.name(path+".cgroup", "cgroup", p.Cgroup, groups)
		}
		v.process(path, p)
		v.container(path, p, s)
	}
	v.name("diagnose.target", "process", s.Diagnose.Target, append(processes, TargetHost))
	if s.Measure != "" {
		v.name("measure", "process", s.Measure, processes)
	}
	v.vantages(&s.Diagnose, processes)
	if s.Diagnose.duration() < s.Diagnose.interval() {
		v.fail("diagnose", "the duration %v is shorter than the interval %v", s.Diagnose.duration(),
			s.Diagnose.interval())
	}
}

// longestDevice is IFNAMSIZ less the closing zero (include/uapi/linux/if.h).
const longestDevice = 15

func (v *validator) vantages(d *Diagnose, processes []string) {
	if (d.Ping == "") != (len(d.Vantages) == 0) {
		v.fail("diagnose", "ping and vantages go together: a destination, and the processes from whose hosts it "+
			"is pinged")
	}
	if d.Ping != "" {
		v.address("diagnose.ping", d.Ping)
	}
	for name, process := range d.Vantages {
		v.name("diagnose.vantages", "vantage", name, vantage.Names())
		v.name("diagnose.vantages."+name, "process", process, processes)
	}
}

func (v *validator) links(s *Site, hosts []string) {
	for _, l := range s.Links {
		path := "links." + l.Name
		if len(l.Ends) != 2 {
			v.fail(path+".ends", "want two hosts, as in {client: 10.0.0.1/24, server: 10.0.0.2/24}")
		}
		var ends []string
		for _, e := range l.Ends {
			v.name(path+".ends", "host", e.Host, hosts)
			v.cidr(path+".ends."+e.Host, e.Address)
			ends = append(ends, e.Host)
		}
		if l.Delay > 0 && len(l.RPS) > 0 {
			v.fail(path+".rps", "a link with a delay has no receive queues of its own")
		}
		for host := range l.RPS {
			v.name(path+".rps", "end", host, ends)
		}
	}
	for _, b := range s.Bridges {
		path := "bridges." + b.Name
		if len(b.Name) > longestDevice {
			v.fail(path, "the name is that of the device, which has %d bytes at most", longestDevice)
		}
		v.name(path+".host", "host", b.Host, hosts)
		for _, p := range b.Ports {
			v.name(path+".ports", "host", p.Host, hosts)
			v.cidr(path+".ports."+p.Host, p.Address)
		}
	}
}

func (v *validator) process(path string, p *Process) {
	if modes := p.modes(); len(modes) != 1 {
		v.fail(path, "does %d things (%s): want one of serve, connect, answer, load, spin, pool, open_files, "+
			"udp_flood, sleep, run "+
			"and java",
			len(modes), strings.Join(modes, ", "))
	}
	switch {
	case p.Serve != nil:
		v.address(path+".serve.listen", p.Serve.Listen)
	case p.Connect != nil:
		v.address(path+".connect.to", p.Connect.To)
	case p.Answer != nil:
		v.plan(path+".answer", p.Answer.Check())
	case p.Load != nil:
		v.plan(path+".load", p.loadPlan().Check())
	case p.Flood != nil:
		v.address(path+".udp_flood.to", p.Flood.To)
	case p.Pool != nil && p.Pool.To != "":
		v.address(path+".pool.to", p.Pool.To)
	case p.Run != nil:
		v.run(path, p)
	case p.Java != nil:
		v.java(path+".java", p)
	}
}

// container reports what a container cannot do, and a container without an engine.
func (v *validator) container(path string, p *Process, s *Site) {
	c := p.Container
	if c == nil {
		return
	}
	path += ".container"
	if i := slices.Index(s.hostNames(), p.Host); i >= 0 && s.Hosts[i].Engine == "" {
		v.fail(path, "the host %s has no engine: give hosts.%s.engine", p.Host, p.Host)
	}
	if p.Run != nil {
		v.fail(path, "a container has perfdoctor in it and no other program: run is not for it")
	}
	if p.Cgroup != "" {
		v.fail(path, "the engine makes the cgroup of a container: give cpus or memory instead of a cgroup")
	}
	if len(p.Affinity) > 0 {
		v.fail(path, "the engine places a container: its threads have no affinity here")
	}
	if c.Network != "" {
		v.name(path+".network", "network", c.Network, []string{NetworkBridge, NetworkHost})
	}
	if c.Network == NetworkHost && len(c.Publish) > 0 {
		v.fail(path+".publish", "in the host's network there is nothing to publish")
	}
}

// sites returns the sites of all phases; for a story, those that were checked when it was read.
func (s *Scenario) sites() []*Site {
	sites := append([]*Site{&s.Site}, s.states...)
	for _, trials := range [][]Trial{s.Cures, s.Placebos} {
		for i := range trials {
			sites = append(sites, &trials[i].Site)
		}
	}
	return sites
}

// engineTools reports the commands of an engine that are missing in the file's needs.
func (v *validator) engineTools(s *Scenario) {
	engine := slices.ContainsFunc(s.sites(), func(site *Site) bool {
		return slices.ContainsFunc(site.Hosts, func(h Host) bool { return h.Engine != "" })
	})
	for _, tool := range []string{"dockerd", "docker"} {
		if engine && !slices.Contains(s.Needs.Tools, tool) {
			v.fail("needs.tools", "missing: %s, which the engine of a host is started or used with", tool)
		}
	}
}

// affinity reports CPUs that a machine with just the CPUs in the file's needs does not have.
func (v *validator) affinity(s *Scenario) {
	cpus := max(1, s.Needs.CPUs)
	for _, site := range s.sites() {
		for i := range site.Processes {
			p := &site.Processes[i]
			if slices.ContainsFunc(p.Affinity, func(cpu int) bool { return cpu < 0 || cpu >= cpus }) {
				v.fail("processes."+p.Name+".affinity", "%v: want CPUs from 0 to %d, as needs.cpus is %d", p.Affinity,
					cpus-1, cpus)
			}
		}
	}
}

// plan reports what package load says about a plan.
func (v *validator) plan(path string, err error) {
	if err != nil {
		v.fail(path, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (v *validator) run(path string, p *Process) {
	if len(p.Run.Command) == 0 {
		v.fail(path+".run.command", "missing")
	}
	v.otherAwait(path, p)
	for _, f := range p.Run.Files {
		if strings.Contains(f.Name, "/") || f.Name == "" || f.Name[0] == '.' {
			v.fail(path+".run.files", "%q: want the name of a file, without a directory", f.Name)
		}
	}
	for _, pattern := range []string{p.Run.Throughput, p.Run.P99} {
		if re, err := regexp.Compile(pattern); err != nil {
			v.fail(path+".run", "%v", err)
		} else if pattern != "" && re.NumSubexp() != 1 {
			v.fail(path+".run", "the pattern %q needs one group, around the number", pattern)
		}
	}
}

// otherAwait reports conditions that only the lab's own modes can meet.
func (v *validator) otherAwait(path string, p *Process) {
	if p.Await.Connections+p.Await.Units+p.Await.Errors > 0 {
		v.fail(path+".await", "another program counts no connections, units or errors: use listen or end")
	}
}

// modes returns the names of the modes that are set.
func (p *Process) modes() []string {
	var out []string
	for _, m := range []struct {
		name string
		set  bool
	}{
		{"serve", p.Serve != nil},
		{"connect", p.Connect != nil},
		{"answer", p.Answer != nil},
		{"load", p.Load != nil},
		{"spin", p.Spin != nil},
		{"pool", p.Pool != nil},
		{"open_files", p.OpenFiles != nil},
		{"udp_flood", p.Flood != nil},
		{"sleep", p.Sleep != nil},
		{"run", p.Run != nil},
		{"java", p.Java != nil},
	} {
		if m.set {
			out = append(out, m.name)
		}
	}
	return out
}

func (s *Site) hostNames() []string {
	var names []string
	for i := range s.Hosts {
		names = append(names, s.Hosts[i].Name)
	}
	return names
}

// linkNames returns the names of links and bridges, which have devices.
func (s *Site) linkNames() []string {
	var names []string
	for _, l := range s.Links {
		names = append(names, l.Name)
	}
	for _, b := range s.Bridges {
		names = append(names, b.Name)
	}
	return names
}
