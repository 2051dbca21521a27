// Package scenario builds a fault on purpose, has it diagnosed, fixes it, and says whether the diagnosis and the
// fixes were right.
//
// A [Scenario] is data, read strictly from a YAML file (docs/scenarios.md). Each of its phases (the sick one, each
// fix, each placebo) runs in fresh hosts of package lab: connections in TIME_WAIT from an earlier phase would falsify
// the next one.
package scenario

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

// Bytes is a size, written with its unit: 64MiB.
type Bytes int64

// A Scenario is a fault, or a healthy system, with what must and must not be said about it.
type Scenario struct {
	Name     string     `yaml:"name"`  // the name of its directory
	Title    string     `yaml:"title"` // one line
	CI       bool       `yaml:"ci"`    // in the subset that CI has time for
	VM       Guest      `yaml:"vm"`
	Needs    Needs      `yaml:"needs"`
	Site     Site       `yaml:",inline"`
	Expect   Expect     `yaml:"expect"`
	Foretold []Foretold `yaml:"foretold"` // for the sick phase
	Cures    []Trial    `yaml:"cures"`
	Placebos []Trial    `yaml:"placebos"`
	Rungs    []Rung     `yaml:"rungs"` // for a story: in the order in which the doctor must name them
	Left     *Expect    `yaml:"left"`  // for a story: what is found when all faults are fixed; missing: nothing
	JDKs     []OnJDK    `yaml:"jdks"`  // the same on other JVMs; each is a separate scenario: NAME-jdk25

	// Dir is the directory it was read from: its name, without -jdk25.
	Dir string
	// Readme is the README.md beside the scenario: the story, the truth, the fix, what a doctor must and must not
	// say.
	Readme string

	site   *yaml.Node // what Site was read from
	states []*Site    // for a story: the states that were checked when it was read
}

// Guest says whether the scenario runs in a virtual machine.
type Guest struct {
	Mode   string `yaml:"mode"`   // never, allowed or required
	Reason string `yaml:"reason"` // why never or required
}

// The modes of [Guest].
const (
	VMNever    = "never"
	VMAllowed  = "allowed"
	VMRequired = "required"
)

// Needs lists what the machine must have besides root.
type Needs struct {
	Tools []string `yaml:"tools"` // commands in PATH
	CPUs  int      `yaml:"cpus"`  // online CPUs, at least
	// Sysctls are keys that only some kernels have.
	Sysctls []string `yaml:"sysctls"`
}

// Site is everything that is built and run, and everything that a fix may change.
type Site struct {
	// Sysctls are keys of the whole machine. They may be set only in a guest. Per-namespace keys belong to a Host.
	Sysctls   map[string]string `yaml:"sysctls"`
	Hosts     []Host            `yaml:"hosts"`
	Links     []Link            `yaml:"links"`
	Bridges   []Bridge          `yaml:"bridges"`
	Cgroups   []Cgroup          `yaml:"cgroups"`
	Processes []Process         `yaml:"processes"` // started in this order
	// the process that provides the scenario's throughput, latency and errors
	Measure  string   `yaml:"measure"`
	Diagnose Diagnose `yaml:"diagnose"`
}

// Host is a separate network namespace.
type Host struct {
	Name       string            `yaml:",key"`
	Sysctls    map[string]string `yaml:"sysctls"` // net.* keys that are per namespace
	Forward    bool              `yaml:"forward"`
	Routes     map[string]string `yaml:"routes"`     // gateway by destination, a CIDR or "default"
	Masquerade string            `yaml:"masquerade"` // the link by which rewritten packets leave
	Rules      int               `yaml:"rules"`      // linear firewall rules that never match
	DropSYN    *DropSYN          `yaml:"drop_syn"`
	Engine     string            `yaml:"engine"` // docker, or empty: none
}

// EngineDocker is the only [Host] engine.
const EngineDocker = "docker"

// DropSYN loses the first packet of connections to a port, before the host's TCP sees it.
type DropSYN struct {
	Port  uint16 `yaml:"port"`
	OneIn int    `yaml:"one_in"` // 1 or 0: all
}

// Link joins two hosts, with a veth pair.
type Link struct {
	Name string `yaml:",key"`
	Ends []End  `yaml:"ends"` // two
	// by host: the hexadecimal mask of the CPUs that process packets the host receives on this link
	RPS map[string]string `yaml:"rps"`
	// Delay is how long a packet is on the way, in either direction. A link with a delay is a pair of TUN devices.
	Delay time.Duration `yaml:"delay"`
}

// End is a host's end of a link or bridge, with its address as CIDR.
type End struct {
	Host    string `yaml:",key"`
	Address string `yaml:",value"`
}

// Bridge joins hosts to a bridge in Host, as a container engine does. Its name is the device's.
type Bridge struct {
	Name    string `yaml:",key"`
	Host    string `yaml:"host"`
	Address string `yaml:"address"`
	Ports   []End  `yaml:"ports"`
}

// Cgroup is a control group; a slash in the name nests it.
type Cgroup struct {
	Name   string        `yaml:",key"`
	Quota  time.Duration `yaml:"quota"`  // of CPU time in each period
	Period time.Duration `yaml:"period"` // 0: 100ms, the kernel's default
	Memory Bytes         `yaml:"memory"`
}

// Process runs in a host. Exactly one of the modes is set.
type Process struct {
	Name   string `yaml:",key"`
	Host   string `yaml:"host"`
	Cgroup string `yaml:"cgroup"`
	// Affinity are the CPUs that its threads may run on, as kubelet's static CPU manager gives them; none: all.
	Affinity []int `yaml:"affinity"`
	// Container runs the process in a container of its host's engine, named after the process.
	Container *Container    `yaml:"container"`
	For       time.Duration `yaml:"for"` // it ends after this; 0: with the phase
	Await     Await         `yaml:"await"`

	Serve   *Serve   `yaml:"serve"`
	Connect *Connect `yaml:"connect"`
	// Answer and Load speak HTTP and TLS, and measure a request's latency from when it was due.
	Answer    *load.ServerPlan `yaml:"answer"`
	Load      *load.Plan       `yaml:"load"`
	Spin      *Spin            `yaml:"spin"`
	Pool      *Pool            `yaml:"pool"`
	OpenFiles *OpenFiles       `yaml:"open_files"`
	Flood     *Flood           `yaml:"udp_flood"`
	Sleep     *struct{}        `yaml:"sleep"`
	Run       *Run             `yaml:"run"`
	Java      *Java            `yaml:"java"`
}

// Container is a container of the host's engine, with this program as its image.
type Container struct {
	CPUs    float64  `yaml:"cpus"`    // --cpus; 0: no quota
	Memory  Bytes    `yaml:"memory"`  // --memory; 0: no limit
	Network string   `yaml:"network"` // bridge, also when empty, or host
	Publish []uint16 `yaml:"publish"` // host ports that lead to the same ports of the container
}

// The networks of a [Container].
const (
	NetworkBridge = "bridge" // the engine's own: docker0
	NetworkHost   = "host"   // the network of the engine's host
)

// Await is what the process must reach before the next one is started.
type Await struct {
	Within      time.Duration `yaml:"within"` // 0: 30s
	Connections uint64        `yaml:"connections"`
	Units       uint64        `yaml:"units"`
	Errors      uint64        `yaml:"errors"`
	Listen      uint16        `yaml:"listen"` // somebody in the host listens on the TCP port
	End         bool          `yaml:"end"`
}

// Serve is a TCP server that echoes 64-byte requests.
type Serve struct {
	Listen      string        `yaml:"listen"`  // ip:port
	Backlog     int           `yaml:"backlog"` // 0: 4096
	AcceptRate  float64       `yaml:"accept_rate"`
	NeverAccept bool          `yaml:"never_accept"`
	CloseFirst  bool          `yaml:"close_first"` // after Requests answers
	Requests    int           `yaml:"requests"`
	Delay       time.Duration `yaml:"delay"` // before each answer
}

// Connect is a client of a Serve server. A unit is a connection with its requests or, with KeepAlive, a request.
type Connect struct {
	To          string        `yaml:"to"` // ip:port
	Count       int           `yaml:"count"`
	Concurrency int           `yaml:"concurrency"`
	Rate        float64       `yaml:"rate"` // units due a second; 0: as fast as possible
	Timeout     time.Duration `yaml:"timeout"`
	Requests    int           `yaml:"requests"` // on each connection
	KeepAlive   bool          `yaml:"keep_alive"`
	CloseFirst  bool          `yaml:"close_first"`
	HoldOpen    bool          `yaml:"hold_open"` // never close, even after the server has closed
	BindIP      string        `yaml:"bind_ip"`
	BindNoPort  bool          `yaml:"bind_no_port"` // IP_BIND_ADDRESS_NO_PORT
}

// Spin uses CPU time.
type Spin struct {
	Threads int           `yaml:"threads"`
	Burst   time.Duration `yaml:"burst"` // CPU time on each thread
	Every   time.Duration `yaml:"every"`
}

// Pool runs threads that wait for a Serve server or for a lock that they share.
type Pool struct {
	Threads int           `yaml:"threads"`
	To      string        `yaml:"to"`    // ip:port each thread asks over a connection of its own
	Hold    time.Duration `yaml:"hold"`  // how long a thread sleeps while it holds the lock
	Every   time.Duration `yaml:"every"` // from the start of a thread's turn to the start of its next
}

// OpenFiles opens files and keeps them.
type OpenFiles struct {
	Count     int     `yaml:"count"`
	PerSecond float64 `yaml:"per_second"`
	Limit     uint64  `yaml:"limit"` // RLIMIT_NOFILE
}

// Flood sends UDP datagrams.
type Flood struct {
	To      string `yaml:"to"`
	PPS     int    `yaml:"pps"`
	Sockets int    `yaml:"sockets"`
	Size    int    `yaml:"size"`
}

// Run is another program. In its arguments, files and environment, ${dir} stands for its private directory.
type Run struct {
	Command []string `yaml:"command"`
	Files   []File   `yaml:"files"`
	// User runs it, and owns the directory: some servers refuse root. Empty: the user of perfdoctor.
	User string            `yaml:"user"`
	Env  map[string]string `yaml:"env"` // added to the environment of perfdoctor
	// Throughput and P99 are regular expressions with one group. They find what the program itself measured in its
	// standard output after SIGINT: units a second, and a time with its unit.
	Throughput string `yaml:"throughput"`
	P99        string `yaml:"p99"`
}

// Java is one of the programs of workloads/java, on one of the JVMs that `make workloads` provides.
type Java struct {
	JDK   string   `yaml:"jdk"`   // one of jdks
	Flags []string `yaml:"flags"` // JVM flags; ${dir} stands for the process's directory
	// HostCPUs is the number of host CPUs that the JVM is made to see. It uses that number unless a limit of its
	// cgroups is lower. 0: the machine's.
	HostCPUs int `yaml:"host_cpus"`
	// Properties become -DKEY=value. Unlike in a list of flags, a change can set or remove a single one.
	Properties map[string]string `yaml:"properties"`
	// sets of libraries that precede the common libraries in the class path
	Path    []string `yaml:"path"`
	Program string   `yaml:"program"` // the class with main
	Args    []string `yaml:"args"`
}

// OnJDK is the same scenario with all its Java programs on another JVM than the one they name.
type OnJDK struct {
	JDK    string     `yaml:",key"`
	Change *yaml.Node `yaml:",value"` // laid over the scenario's fields where that JVM differs; may be empty
}

// File is a file to write before the program starts.
type File struct {
	Name string `yaml:",key"`
	Text string `yaml:",value"`
}

// Diagnose says what the doctor is asked to diagnose.
type Diagnose struct {
	Target   string        `yaml:"target"`   // a process, or "host" for the whole machine
	Warmup   time.Duration `yaml:"warmup"`   // from the start of the last process
	Duration time.Duration `yaml:"duration"` // 0: 6s
	Interval time.Duration `yaml:"interval"` // 0: 1s
	Deep     bool          `yaml:"deep"`     // with the more expensive probes, as with --deep
	// Ping is a destination, ip:port. Its round trip is measured meanwhile from the hosts of processes: here,
	// neighbour, outside.
	Ping     string            `yaml:"ping"`
	Vantages map[string]string `yaml:"vantages"` // process by vantage name
}

// TargetHost is the [Diagnose] target that is the whole machine.
const TargetHost = "host"

// The verdicts that are not the name of a check.
const (
	VerdictNone = "none" // nothing at warning or above
	// VerdictRegression is the verdict that a step of a story's table has when a comparison found a regression. No
	// file can ask for it.
	VerdictRegression = "regression"
	VerdictOpen       = "open" // not asserted: the check for it does not exist yet, see Expect.NotAssessed
)

// Expect says what the diagnosis of the sick phase must find.
type Expect struct {
	Verdict     string   `yaml:"verdict"`      // a check, none or open
	Or          []string `yaml:"or"`           // checks that may also be the verdict: the machine's speed decides
	Severity    string   `yaml:"severity"`     // of the verdict; empty: any
	Subject     string   `yaml:"subject"`      // a part of the verdict's subject; ${pid NAME} is a process
	Evidence    []string `yaml:"evidence"`     // each is a part of the verdict's text
	Required    []string `yaml:"required"`     // checks that must find something besides the verdict
	Forbidden   []string `yaml:"forbidden"`    // checks that must not, at warning or above, except as a consequence
	NotAssessed []Gap    `yaml:"not_assessed"` // what cannot be found yet
}

// Gap is a finding that is wanted but not possible yet.
type Gap struct {
	Name   string `yaml:",key"`
	Reason string `yaml:",value"`
}

// Trial is a fix or a placebo: the same scenario with a change.
type Trial struct {
	Name   string     `yaml:",key"`
	Title  string     `yaml:"title"`
	Change *yaml.Node `yaml:"change"` // laid over the fields of Site
	// checks that no longer find anything at warning or above; a fix's default is the verdict
	Gone     []string   `yaml:"gone"`
	Still    []string   `yaml:"still"`    // checks that still find something; a placebo's default is the verdict
	Verdict  string     `yaml:"verdict"`  // a check or none; empty: not asserted
	Moves    []Move     `yaml:"moves"`    //
	Foretold []Foretold `yaml:"foretold"` //

	Site   Site       // with the change; filled by Read
	merged *yaml.Node // what Site was read from
}

// Move bounds how far a metric moves from the sick phase. At least one bound is set.
type Move struct {
	Metric        string   `yaml:"metric"`
	FactorAtLeast *float64 `yaml:"factor_at_least"` // after / before
	FactorAtMost  *float64 `yaml:"factor_at_most"`
	AtLeast       *float64 `yaml:"at_least"` // after, in units/s, seconds or errors/s
	AtMost        *float64 `yaml:"at_most"`
	Because       string   `yaml:"because"` // the arithmetic or the reason; a placebo's may be missing
}

// Foretold is the arithmetic prediction of a metric. It is printed beside the measurement.
type Foretold struct {
	Metric  string  `yaml:"metric"`
	Value   float64 `yaml:"value"`
	Because string  `yaml:"because"` // "1000 ports / 60 s"
	// the share by which the measurement may differ, 0.2 for 20 %; asserted only when set
	Within *float64 `yaml:"within"`
}
