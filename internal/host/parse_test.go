package host

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// Lines of Linux 2.6.32 (44 numbers), 4.19 and 6.18, and the hostile name that only the last ')' ends.
const (
	stat2632 = "2021 (httpd) S 1 2021 2021 0 -1 4202816 1650 9520 2 5 12 34 1 2 20 0 1 0 8123 197591040 1123 " +
		"18446744073709551615 1 1 0 0 0 0 0 16781312 84487 18446744073709551615 0 0 17 3 0 0 9 0 0\n"
	stat419 = "31 (kworker/u8:1-events_unbound) I 2 0 0 0 -1 69238880 0 0 0 0 0 77 0 0 20 0 1 0 80 0 0 " +
		"18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
	stat618 = "9883 (a) R (b\n c)) R -1 9878 8315 0 -1 4194304 100 0 7 0 11 22 0 0 20 0 40 0 40370 3133440 417 " +
		"18446744073709551615 94629493125120 94629493145001 140733877032816 0 0 0 0 0 0 0 0 0 17 1 0 0 5 6 0 " +
		"94629493161008 94629493162624 94630044864512 140733877033665 140733877033685 140733877033685 " +
		"140733877034987 0\n"
)

func TestParseStat(t *testing.T) {
	for text, want := range map[string]Stat{
		stat2632: {
			PID: 2021, Comm: "httpd", State: 'S', PPID: 1, Flags: 4202816, MinFlt: 1650, MajFlt: 2, UTime: 12,
			STime: 34, CUTime: 1, CSTime: 2, Threads: 1, StartTime: 8123, VSize: 197591040, RSS: 1123, Processor: 3,
			BlkIODelay: 9,
		},
		stat419: {
			PID: 31, Comm: "kworker/u8:1-events_unbound", State: 'I', PPID: 2, Flags: 69238880, STime: 77,
			Threads: 1, StartTime: 80, Processor: 1,
		},
		stat618: {
			PID: 9883, Comm: "a) R (b\n c)", State: 'R', PPID: -1, Flags: 4194304, MinFlt: 100, MajFlt: 7,
			UTime: 11, STime: 22, Threads: 40, StartTime: 40370, VSize: 3133440, RSS: 417, Processor: 1, BlkIODelay: 5,
			GuestTime: 6,
		},
	} {
		got, err := ParseStat([]byte(text))
		if err != nil || got != want {
			t.Errorf("%q: %v, -want +got:\n%s", text, err, cmp.Diff(want, got))
		}
	}
}

func TestParseStatRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":           "no command name",
		"1 (x":       "no command name",
		") 1 (":      "no command name",
		"0 (x) S 1":  "bad pid",
		"x (x) S 1":  "bad pid",
		"1 (x) SS 1": "bad state",
		"1 (x) ":     "bad state",
		stat618[:60]: "bad ",
		strings.Replace(stat2632, " 12 34 ", " 12 -34 ", 1):                      `bad stime "-34"`,
		strings.Replace(stat2632, " 8123 ", " 99999999999999999999 ", 1):         "bad starttime",
		strings.Replace(stat2632, " 17 3 0 0 9 0 0", " 17 3 0 0 9 0", 1):         "41 fields",
		strings.Replace(stat2632, "httpd", "httpd) S 1 2 3 4 5 6 7 8 9 10 x", 1): "",
	} {
		_, err := ParseStat([]byte(text))
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestParseStatAllocates(t *testing.T) {
	text := []byte(stat2632)
	if n := testing.AllocsPerRun(100, func() { _, _ = ParseStat(text) }); n > 1 {
		t.Errorf("%v allocations, want one for the name", n)
	}
}

const status618 = "Name:\tx\\ny\nUmask:\t0022\nState:\tS " +
	"(sleeping)\nTgid:\t70\nNgid:\t0\nPid:\t71\nPPid:\t1\nTracerPid:\t0\n" +
	"Uid:\t1000\t0\t4294967294\t1000\nGid:\t100\t101\t102\t103\nFDSize:\t64\nGroups:\t " +
	"\nNStgid:\t70\t9\t1\nNSpid:\t71\t10\t2\n" +
	"Threads:\t3\nCapEff:\t000001fffeffffff\nvoluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t2\n" +
	"Cpus_allowed:\t0f\nCpus_allowed_list:\t0-3\n"

func TestParseStatus(t *testing.T) {
	want := ProcStatus{
		Tgid: 70, PID: 71, PPID: 1, UID: [4]int{1000, 0, 4294967294, 1000}, GID: [4]int{100, 101, 102, 103},
		NStgid: []int{70, 9, 1}, NSpid: 2, Threads: 3, CapEff: 0x1fffeffffff, VoluntarySwitch: 10,
		InvoluntarySwitch: 2, CPUs: "0-3",
	}
	got, err := ParseStatus([]byte(status618))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for _, bad := range []string{
		"", status618[:100], strings.Replace(status618, "Uid:\t1000", "Uid:\tx", 1),
		strings.Replace(status618, "\t9\t1\n", "\tnine\n", 1),
		strings.Replace(status618, "\t10\t2\n", "\t10\tx\n", 1),
		strings.Replace(status618, "\t10\t2\n", "\t99999999999\t2\n", 1),
		strings.Replace(status618, "fffeff", "gggg", 1),
		strings.Replace(status618, "switches:\t10", "switches:\t-10", 1),
	} {
		if got, err := ParseStatus([]byte(bad)); err == nil {
			t.Errorf("accepted %q as %+v", bad, got)
		}
	}
}

func TestParseCgroup(t *testing.T) {
	text := "12:cpu,cpuacct:/a:b\n1:name=systemd:/\n0::/x (deleted)\n"
	want := []cgroupLine{
		{controllers: []string{"cpu", "cpuacct"}, version: 1, path: "/a:b"},
		{controllers: []string{"name=systemd"}, version: 1, path: "/"},
		{version: 2, path: "/x"},
	}
	got, err := parseCgroup(strings.NewReader(text))
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(cgroupLine{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for _, bad := range []string{"0:/x", "x:cpu:/", "1:cpu:relative", "-1::/", "\n"} {
		if got, err := parseCgroup(strings.NewReader(bad)); err == nil {
			t.Errorf("accepted %q as %+v", bad, got)
		}
	}
}

func TestParseMountInfo(t *testing.T) {
	text := `31 23 0:28 /docker/x /sys/fs/cgroup/a\040b ro,nosuid shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct` +
		"\n" +
		`32 23 0:29 / /t\134 rw - tmpfs  rw` + "\n"
	want := []mount{
		{
			device: "0:28", root: "/docker/x", point: "/sys/fs/cgroup/a b", options: []string{"ro", "nosuid"},
			fsType: "cgroup",
			super:  []string{"rw", "cpu", "cpuacct"},
		},
		{device: "0:29", root: "/", point: `/t\`, options: []string{"rw"}, fsType: "tmpfs", super: []string{"rw"}},
	}
	got, err := parseMountInfo(strings.NewReader(text))
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for _, bad := range []string{"x", "1 2 3 4 5 - a b c", "1 2 3 4 5 6 a b c", "1 2 3 4 5 6 - a"} {
		if got, err := parseMountInfo(strings.NewReader(bad)); err == nil {
			t.Errorf("accepted %q as %+v", bad, got)
		}
	}
}

func TestBelow(t *testing.T) {
	for in, want := range map[[2]string]string{
		{"/", "/a"}: "/a", {"/a", "/a"}: "/", {"/a", "/a/b"}: "/b", {"/a", "/ab"}: "", {"/..", "/../b"}: "/b",
	} {
		if got, _ := below(in[0], in[1]); got != want {
			t.Errorf("below(%q, %q) = %q, want %q", in[0], in[1], got, want)
		}
	}
}

const (
	cpuinfoX86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold " +
		"6148\nflags\t\t: fpu " +
		"vme hypervisor\n" +
		"\nprocessor\t: 1\nmodel name\t: other\nflags\t\t: fpu\n"
	cpuinfoARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU " +
		"architecture: 8\n" +
		"CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n"
)

func TestParseCPUInfo(t *testing.T) {
	for text, want := range map[string]cpuInfo{
		cpuinfoX86: {model: "Intel(R) Xeon(R) Gold 6148", hypervisor: true, x86: true},
		cpuinfoARM: {model: "ARM Neoverse-N1"},
		strings.Replace(cpuinfoARM, "0xd0c", "0xfff", 1): {model: "implementer 0x41 part 0xfff"},
	} {
		if got, err := parseCPUInfo(strings.NewReader(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := parseCPUInfo(strings.NewReader("processor : 0\n")); err == nil {
		t.Errorf("a model out of nothing: %+v", got)
	}
}

func TestParseCPUList(t *testing.T) {
	got, err := ParseCPUList("0-2,8,10-11")
	if diff := cmp.Diff([]int{0, 1, 2, 8, 10, 11}, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for _, bad := range []string{"", "a", "3-1", "0-99999", "1,", "-1", "0-", "0-8191,0"} {
		if got, err := ParseCPUList(bad); err == nil {
			t.Errorf("accepted %q as %v", bad, got)
		}
	}
}

func TestParseRelease(t *testing.T) {
	for text, want := range map[string]release{
		"6.1.0-18-amd64": {major: 6, minor: 1}, "5.10-rc3": {major: 5, minor: 10}, "4.18.0-553.el8.x86_64": {
			major: 4,
			minor: 18,
		},
	} {
		want.text = text
		if got, err := parseRelease(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := parseRelease("unknown"); err == nil {
		t.Errorf("accepted %+v", got)
	}
	for _, c := range []struct {
		release, than string
		want          bool
	}{
		{"5.10.0-46-cloud-amd64", "5.9", false},
		{"5.10.0", "5.10", false},
		{"5.10.0", "6.1", true},
		{"4.18.0-553.el8", "5.5", true},
	} {
		if got, err := ReleaseBefore(c.release, c.than); err != nil || got != c.want {
			t.Errorf("%s before %s: %v, %v", c.release, c.than, got, err)
		}
	}
	for _, c := range [][2]string{{"unknown", "5.9"}, {"5.9", "unknown"}} {
		if _, err := ReleaseBefore(c[0], c[1]); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
}

func TestParseAuxv(t *testing.T) {
	words := func(v ...uint64) (b []byte) {
		for _, w := range v {
			b = binary.NativeEndian.AppendUint64(b, w)
		}
		return b
	}
	if hz, err := parseAuxv(words(6, 4096, 17, 100, 0, 0)); err != nil || hz != 100 {
		t.Errorf("%d, %v", hz, err)
	}
	for _, bad := range [][]byte{nil, words(6, 4096), words(17, 0), words(17, 5000), words(17)} {
		if hz, err := parseAuxv(bad); err == nil {
			t.Errorf("accepted %v as %d", bad, hz)
		}
	}
}

func TestParseNetlinkHead(t *testing.T) {
	e := binary.NativeEndian
	message := func(kind uint16, code int32) []byte {
		b := make([]byte, 20)
		e.PutUint32(b, 20)
		e.PutUint16(b[4:], kind)
		e.PutUint32(b[16:], uint32(code))
		return b
	}
	for _, tt := range []struct {
		b    []byte
		want error
	}{
		{message(unix.NLMSG_ERROR, -2), unix.ENOENT},
		{message(unix.NLMSG_DONE, -1), unix.EPERM},
		{message(unix.NLMSG_DONE, 0), nil},
		{message(sockDiagByFamily, 1), nil},
	} {
		if _, err := parseNetlinkHead(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%v: %v, want %v", tt.b, err, tt.want)
		}
	}
	if _, err := parseNetlinkHead(message(unix.NLMSG_ERROR, 0)[:17]); err == nil {
		t.Error("accepted a short message")
	}
}

func TestVirtualizationByFirmware(t *testing.T) {
	for _, tt := range []struct{ vendor, product, want string }{
		{"Amazon EC2", "c5.large", "amazon"},
		{"Amazon EC2", "c5.metal", "none"},
		{"Microsoft Corporation", "Virtual Machine", "hyperv"},
		{"Microsoft Corporation", "Surface Pro", ""},
		{"QEMU", "Standard PC (Q35 + ICH9, 2009)", "qemu"},
		{"VMware, Inc.", "VMware7,1", "vmware"},
		{"Dell Inc.", "PowerEdge R640", ""},
	} {
		if got := dmiHypervisor(tt.vendor, tt.product); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.vendor, tt.product, got, tt.want)
		}
	}
}

func TestRuntimeRules(t *testing.T) {
	maps := "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libpython3.11.so.1.0\n7f01-7f02 r-xp 0 08:01 1 /opt/j " +
		"dk/libjvm.so (deleted)\n" +
		"7f03-7f04 rw-p 00000000 00:00 0 [heap]\n7f05-7f06 r-xp 0 08:01 1 /opt/j dk/libjvm.so (deleted)\n"
	got, err := parseMapNames(strings.NewReader(maps))
	if diff := cmp.Diff([]string{"libpython3.11.so.1.0", "libjvm.so"}, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for name, want := range map[string]Runtime{
		"python3.11": RuntimePython, "node": RuntimeNode, "ruby3.1": RuntimeRuby, "php-fpm8.2": RuntimePHP,
		"beam.smp": RuntimeErlang,
		"pythonic": "", "java": "",
	} {
		var matched Runtime
		for _, rule := range programRules() {
			if rule.pattern.MatchString(name) {
				matched = rule.runtime
			}
		}
		if matched != want {
			t.Errorf("%s: %q, want %q", name, matched, want)
		}
	}
}

func TestRuntimeOfLibraries(t *testing.T) {
	for _, tt := range []struct {
		libs []string
		want Runtime
	}{
		{[]string{"libc.so.6", "libpython3.11.so.1.0"}, ""}, // unbound, which is linked with it
		{[]string{"libpython3.11.so.1.0", "_json.cpython-311-x86_64-linux-gnu.so"}, RuntimePython},
		{[]string{"libpython3.13t.so.1.0", "_rust.abi3.so"}, RuntimePython},
		{[]string{"libpython3.11.so.1.0", "_json.cpython-311-x86_64-linux-gnu.so", "libjvm.so"}, RuntimeJVM},
		{[]string{"libruby-3.1.so.3.1"}, RuntimeRuby},
	} {
		var got Runtime
		for _, rule := range libraryRules() {
			if got == "" && rule.of(tt.libs) != "" {
				got = rule.runtime
			}
		}
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.libs, got, tt.want)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	for _, s := range []string{stat2632, stat419, stat618, "1 () S"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := ParseStat(b)
		if err == nil && (st.PID < 1 || !strings.Contains(string(b), "("+st.Comm+")")) {
			t.Errorf("%q: %+v", b, st)
		}
	})
}

func FuzzParseCPUList(f *testing.F) {
	f.Add("0-2,5")
	f.Add("0-4294967295")
	f.Fuzz(func(t *testing.T, text string) {
		if cpus, err := ParseCPUList(text); err == nil && len(cpus) == 0 || len(cpus) > 2*maxCPU {
			t.Errorf("%d CPUs, %v", len(cpus), err)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(status618))
	f.Fuzz(func(t *testing.T, b []byte) {
		if st, err := ParseStatus(b); err == nil && st.PID == 0 {
			t.Errorf("%q: %+v", b, st)
		}
	})
}

func TestParseDockerName(t *testing.T) {
	if got := parseDockerName([]byte(`{"ID":"x","Name":"/web","Config":{"Env":["A=b"]}}`)); got != "web" {
		t.Errorf("got %q, want web", got)
	}
	for _, bad := range []string{"", "{", "[]", `{"Name":1}`, `{"Name":"/"}`, `{"ID":"x"}`} {
		if got := parseDockerName([]byte(bad)); got != "" {
			t.Errorf("accepted %q as %q", bad, got)
		}
	}
}

func FuzzParseDockerName(f *testing.F) {
	f.Add([]byte(`{"ID":"x","Name":"/web"}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		if name := parseDockerName(config); len(name) > len(config)*3 {
			t.Errorf("%q: name %q", config, name)
		}
	})
}

func FuzzParseCgroup(f *testing.F) {
	f.Add("4:memory:/docker/" + strings.Repeat("a", 64) + "\n0::/../x (deleted)\n")
	f.Add("0::/system.slice:docker:" + strings.Repeat("0", 64) + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := parseCgroup(strings.NewReader(text))
		if err != nil {
			return
		}
		tree := hierarchy{version: 2, root: "/", dir: "/tree"}
		for _, c := range containersOf(lines) {
			if len(c.id) != containerIDLen || !strings.Contains(text, c.path) {
				t.Errorf("%q: %+v", text, c)
			}
		}
		for _, line := range lines {
			for _, l := range tree.levels(line.path) {
				if !strings.HasPrefix(l.Dir, "/tree") || strings.Contains(l.Dir+"/", "/../") {
					t.Errorf("%q leads out of the tree to %s", text, l.Dir)
				}
			}
		}
	})
}

func FuzzParseMountInfo(f *testing.F) {
	f.Add(`31 23 0:28 /docker/x /sys/fs/cgroup/a\040b ro shared:9 - cgroup cgroup rw,cpu` + "\n" +
		`1 1 0:1 / \777\ rw - a  b`)
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := parseMountInfo(strings.NewReader(text))
		for _, m := range mounts {
			if err == nil && m.fsType == "" {
				t.Errorf("%q: %+v", text, m)
			}
		}
	})
}

// TestGroupOf: on a host with trees of both versions, it is the tree in which the process has a group of its own.
func TestGroupOf(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"0::/\n":                     "/",
		"0::/app.slice\n":            "/app.slice",
		"4:cpu:/app\n0::/\n":         "/app",
		"4:cpu:/\n1:pids:/x\n0::/\n": "/x",
		"4:cpu:/app\n0::/b\n":        "/b",
	} {
		lines, err := parseCgroup(strings.NewReader(text))
		if got := groupOf(lines); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}
