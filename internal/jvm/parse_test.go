package jvm

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// A JVM in a container, Linux 6.18, cut to some lines.
const statusText = `Name:	java
Umask:	0022
State:	S (sleeping)
Tgid:	4021
Ngid:	0
Pid:	4021
PPid:	3990
TracerPid:	0
Uid:	1000	65534	1000	1000
Gid:	1000	4294967294	1000	1000
FDSize:	256
Groups:	4 1000 
NStgid:	4021	17	1
Threads:	24
SigCgt:	2000000181005ccf
`

func TestParseStatus(t *testing.T) {
	got, err := parseStatus([]byte(statusText))
	want := procStatus{
		state: 'S', tgid: 4021, uid: 65534, gid: 4294967294, groups: []int{4, 1000}, nspid: 1,
		caught: 0x2000000181005ccf,
	}
	if err != nil || got.caught&(1<<2) == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(procStatus{})); diff != "" {
		t.Error(diff)
	}
	for _, test := range []struct{ old, new string }{
		{"Uid:	1000	65534", "Uid:	1000	x"},
		{"Uid:	1000	65534	1000	1000", "Uid:	1000"},
		{"SigCgt:	2000000181005ccf\n", ""},
		{"SigCgt:	2000000181005ccf", "SigCgt:	zz"},
		{"Groups:	4 1000", "Groups:	4 -1"},
		{"State:	S (sleeping)", "State:"},
		{"TracerPid:	0", "TracerPid:"},
		{"NStgid:	4021	17	1", "NStgid:"},
	} {
		if got, err := parseStatus([]byte(strings.Replace(statusText, test.old, test.new, 1))); err == nil {
			t.Errorf("%q instead of %q: %+v", test.new, test.old, got)
		}
	}
	// Before Linux 4.1 there was no NStgid.
	got, err = parseStatus([]byte(strings.Replace(statusText, "NStgid:	4021	17	1\n", "", 1)))
	if err != nil || got.nspid != 0 {
		t.Errorf("without NStgid: %+v, %v", got, err)
	}
}

func TestParseStartTime(t *testing.T) {
	const stat = "4021 (a) b (c) S 1 4021 4021 0 -1 4194560 25 0 0 0 1 2 0 0 20 0 24 0 98765 3000 100 " +
		"18446744073709551615\n"
	if got, err := parseStartTime([]byte(stat)); err != nil || got != 98765 {
		t.Errorf("%d, %v", got, err)
	}
	for _, bad := range []string{"", "4021 (java) S 1", strings.Replace(stat, "98765", "-", 1)} {
		if got, err := parseStartTime([]byte(bad)); err == nil {
			t.Errorf("%q: %d", bad, got)
		}
	}
}

// The mappings of three virtual machines, each cut to what distinguishes them.
func TestRecognise(t *testing.T) {
	const line = "7f0000000000-7f0000001000 r-xp 00000000 fe:00 1234                       "
	for _, test := range []struct {
		name, maps string
		kind       Kind
		libc       Libc
		agents     []Agent
	}{
		{
			"Alpine", line + "/opt/java/lib/server/libjvm.so\n" + line + "/lib/ld-musl-x86_64.so.1\n" +
				line + "/tmp/.perfdoctor-0123456789abcdef0123456789abcdef-perfmap-fc2eb4f3.so (deleted)\n" +
				line + "/opt/pyroscope/libasyncProfiler-linux-musl-x64-1a2b.so\n7f00-7f01 rw-p 0 0:0 0 [heap]\n",
			HotSpot, Musl,
			[]Agent{
				{
					"perfmap-fc2eb4f3.so", "/tmp/.perfdoctor-0123456789abcdef0123456789abcdef-perfmap-fc2eb4f3.so",
					false,
					true,
				},
				{"async-profiler", "/opt/pyroscope/libasyncProfiler-linux-musl-x64-1a2b.so", true, false},
			},
		},
		{
			"OpenJ9", line + "/opt/java/lib/default/libj9vm29.so\n" + line + "/opt/java/lib/server/libjvm.so\n" +
				line + "/usr/lib/libc.so.6\n", OpenJ9, Glibc, nil,
		},
		{
			"replaced", line + "/opt/with space/libjvm.so (deleted)\n" + line + "/lib/libc-2.28.so\n" + line +
				"/x/libjdwp.so\n",
			HotSpot, Glibc,
			[]Agent{{"debugger (JDWP)", "/x/libjdwp.so", false, false}},
		},
	} {
		files, err := parseMaps(strings.NewReader(test.maps))
		if err != nil {
			t.Fatal(err)
		}
		vm := &VM{PID: os.Getpid()}
		if err := vm.recognise(files); err != nil || vm.Kind != test.kind || libcOf(files) != test.libc {
			t.Errorf("%s: %s, %s, %v", test.name, vm.Kind, libcOf(files), err)
		}
		if diff := cmp.Diff(test.agents, agentsOf(files)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if r := vm.Attachable(); (r == nil) != (test.kind == HotSpot) || (r != nil && r.Cause != UnsupportedVM) {
			t.Errorf("%s: attachable: %v", test.name, r)
		}
	}
}

// native-image itself is 300 MB. Any compiler can be made to leave in a program what it leaves there.
func TestNativeImage(t *testing.T) {
	testenv.Need(t, testenv.Tool("gcc"))
	dir := t.TempDir()
	for _, test := range []struct{ name, source, want string }{
		{
			"section", `char heap[64] __attribute__((section(".svm_heap"))) = {1}; int main(void) { return heap[0]; }`,
			"section .svm_heap",
		},
		{
			"symbol", `int graal_create_isolate(void) { return 1; } int main(void) { return 0; }`,
			"symbol graal_create_isolate",
		},
		{"none", `int main(void) { return 0; }`, ""},
	} {
		source, exe := filepath.Join(dir, test.name+".c"), filepath.Join(dir, test.name)
		if err := os.WriteFile(source, []byte(test.source), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("gcc", "-rdynamic", "-o", exe, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		sign, err := nativeImageSign(exe)
		if err != nil || !strings.HasSuffix(sign, test.want) || (sign == "") != (test.want == "") {
			t.Errorf("%s: %q, %v", test.name, sign, err)
		}
	}
	if sign, err := nativeImageSign(filepath.Join(dir, "none.c")); err != nil || sign != "" {
		t.Errorf("what is no program: %q, %v", sign, err)
	}
}

func TestInspectOthers(t *testing.T) {
	if _, err := Inspect(os.Getpid()); causeOf(err) != NotJVM {
		t.Errorf("this test: %v", err)
	}
	// 2^22 is the largest pid there can be (PID_MAX_LIMIT in include/linux/threads.h).
	for _, pid := range []int{0, -1, 1<<22 + 1} {
		if _, err := Inspect(pid); causeOf(err) != Gone {
			t.Errorf("%d: %v", pid, err)
		}
	}
}

func TestSplitOptions(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"  -Xmx1g\t-Xrs\n", []string{"-Xmx1g", "-Xrs"}},
		{`-Da="b c"d '-XX:OnError=x "y"' ""`, []string{"-Da=b cd", `-XX:OnError=x "y"`, ""}},
		{`-Da="open end`, []string{"-Da=open end"}},
		{`a\ b`, []string{`a\`, "b"}},
	} {
		if diff := cmp.Diff(test.want, splitOptions(test.text)); diff != "" {
			t.Errorf("%q: %s", test.text, diff)
		}
	}
}

// The examples of the java command's manual, "java Command-Line Argument Files", and of args.c's own test.
func TestSplitArgFile(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"# only a comment", nil},
		{"-Xmx1g # half\n-Xrs\r\n", []string{"-Xmx1g", "-Xrs"}},
		{`-cp "c:\\foo bar\\a" x`, []string{"-cp", `c:\foo bar\a`, "x"}},
		{"-cp \"/lib/cool app/:\\\n  /lib/b\"", []string{"-cp", "/lib/cool app/:/lib/b"}},
		{`a\b 'c"d' "\t\n\"" e#f`, []string{`a\b`, `c"d`, "\t\n\"", "e"}},
	} {
		if diff := cmp.Diff(test.want, splitArgFile(test.text)); diff != "" {
			t.Errorf("%q: %s", test.text, diff)
		}
	}
}

func TestExpandArguments(t *testing.T) {
	files := map[string]string{"a": "-Xrs @b -cp", "whole": "-Xint Main -Xrs"}
	read := func(name string) (string, error) {
		text, ok := files[name]
		if !ok {
			return "", errors.New("not there")
		}
		return text, nil
	}
	for _, test := range []struct {
		args string
		want []string
		end  bool
		err  string
	}{
		{"-Xint -cp x:y -XX:+A Main -Xrs", []string{"-Xint", "-cp", "-XX:+A"}, true, ""},
		{"-jar -Xrs a.jar -Xint", []string{"-jar", "-Xrs"}, true, ""},
		{"-Xint -m mod/Main -Xrs", []string{"-Xint"}, true, ""},
		{"-Xint --module mod/Main -Xrs", []string{"-Xint"}, true, ""},
		// The file ends with an option whose value follows on the command line. It does not name other files, so @b
		// would be the main class.
		{"@a @x", []string{"-Xrs"}, true, ""},
		{"@whole -Xrs", []string{"-Xint"}, true, ""},
		{"--disable-@files @a", []string{}, true, ""},
		{"@@a -Xrs", nil, true, ""},
		{"-Xint @none -Xrs", []string{"-Xint"}, false, "argument file none: not there"},
		{"-Xint", []string{"-Xint"}, false, ""},
	} {
		got, end, err := expandArguments(strings.Fields(test.args), read)
		if strings.Join(got, " ") != strings.Join(test.want, " ") || end != test.end ||
			(err != nil && err.Error() != test.err) ||
			(err == nil) != (test.err == "") {
			t.Errorf("%s: %q, %t, %v", test.args, got, end, err)
		}
	}
}

func TestParseFlag(t *testing.T) {
	for _, test := range []struct{ arg, name, value string }{
		{"-XX:+UseG1GC", "UseG1GC", "true"},
		{"-XX:-UseG1GC", "UseG1GC", "false"},
		{"-XX:A=b=c", "A", "b=c"},
		{"-XX:A=", "A", ""},
		{"-XX:+", "", ""},
		{"-XX:", "", ""},
		{"-XX:A", "", ""},
		{"-Xmx1g", "", ""},
	} {
		name, value, ok := parseFlag(test.arg)
		if ok != (test.name != "") || (ok && (name != test.name || value != test.value)) {
			t.Errorf("%s: %q, %q, %t", test.arg, name, value, ok)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, test := range []struct {
		version string
		major   int
	}{
		{"17.0.9", 17},
		{"1.8.0_392", 8},
		{"25", 25},
		{"21-ea+3", 21},
		{"", 0},
		{"x", 0},
		{"99999999999999999999", 9999},
	} {
		if got := majorOf(test.version); got != test.major {
			t.Errorf("%q: %d", test.version, got)
		}
	}
	if got := parseRelease("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"11.0.13\"\r\nOS=1\n"); got != "11.0.13" {
		t.Errorf("%q", got)
	}
	if got := parseRelease("JAVA_VERSIO"); got != "" {
		t.Errorf("%q", got)
	}
}

func TestEncodeRequest(t *testing.T) {
	got, err := encodeRequest("load", []string{"/a", "true", "x=y"})
	if err != nil || string(got) != "1\x00load\x00/a\x00true\x00x=y\x00" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := encodeRequest("jcmd", []string{"VM.flags"}); err != nil ||
		string(got) != "1\x00jcmd\x00VM.flags\x00\x00\x00" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"a\x00b", strings.Repeat("x", maxArgument)} {
		if _, err := encodeRequest("jcmd", []string{bad}); err == nil {
			t.Errorf("took an argument of %d bytes", len(bad))
		}
	}
}

// The answers of JDK 8, 11, 17, 21 and 25 to load.
func TestLoadResult(t *testing.T) {
	for _, test := range []struct {
		reply string
		cause Cause
		code  int
	}{
		{"0\n0\n", "", 0},
		{"0\nreturn code: 0\n", "", 0},
		{"0\nreturn code: 200\n", Failed, 200},
		{"0\n\nreturn code: -1\n", Failed, -1},
		{"-1\n/x.so was not loaded.\n/x.so: cannot open shared object file\n", Failed, -1},
		{"0\n/x.so was not loaded.\n/x.so: failed to map segment from shared object\n", NoPlace, -1},
		{
			"0\nDynamic agent loading is not enabled. Use -XX:+EnableDynamicAgentLoading to launch target VM.\n",
			LoadDisabled, -1,
		},
		{"0\n", Failed, -1},
		{"1\n0\n", Failed, -1},
	} {
		reply, err := parseReply([]byte(test.reply))
		if err != nil {
			t.Fatal(err)
		}
		err = (&VM{PID: 1}).loadResult("/x.so", reply)
		code := 0
		if r, ok := errors.AsType[*Refusal](err); ok {
			code = r.Code
		}
		if causeOf(err) != test.cause || code != test.code {
			t.Errorf("%q: %v, code %d", test.reply, err, code)
		}
	}
	for _, bad := range []string{"", "0", "x\n", "99999999999\n", "\n0"} {
		if reply, err := parseReply([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, reply)
		}
	}
}

func TestExchangeIsBounded(t *testing.T) {
	endless := struct {
		*bytes.Buffer
		zeros
	}{Buffer: &bytes.Buffer{}}
	_, err := exchange(readWriter{endless.zeros, endless.Buffer}, []byte("x"), maxLoadReply)
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless reply: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

type readWriter struct {
	zeros
	*bytes.Buffer
}

func (r readWriter) Read(b []byte) (int, error) { return r.zeros.Read(b) }

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(statusText))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseStatus(text); err == nil && (s.uid < 0 || s.gid < 0 || s.tgid < 0 || s.nspid < 0) {
			t.Errorf("%+v", s)
		}
	})
}

func FuzzParseStartTime(f *testing.F) {
	f.Add([]byte("1 (a) S 1 1 1 0 -1 4194560 25 0 0 0 1 2 0 0 20 0 24 0 98765 3000\n"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = parseStartTime(text) })
}

func FuzzOptions(f *testing.F) {
	f.Add("-cp 'a b' -XX:+A @x # c\n\"q\\n\" Main")
	f.Fuzz(func(t *testing.T, text string) {
		o := Options{Flags: map[string]Flag{}}
		o.apply(splitOptions(text), "x")
		args, _, err := expandArguments(splitOptions(text), func(string) (string, error) { return text, nil })
		if err != nil || len(args) > maxArguments+1 {
			t.Errorf("%d arguments, %v", len(args), err)
		}
		o.apply(args, "y")
		o.apply(splitArgFile(text), "z")
		parseRelease(text)
		majorOf(text)
	})
}

func FuzzParseReply(f *testing.F) {
	f.Add([]byte("0\nreturn code: 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		reply, err := parseReply(text)
		if err != nil {
			return
		}
		err = (&VM{PID: 1}).loadResult("/x.so", reply)
		if err != nil && causeOf(err) == "" {
			t.Errorf("an error without a cause: %v", err)
		}
	})
}

// A JVM's answer does not steer the terminal on which it is shown.
func TestBriefShowsNoControl(t *testing.T) {
	const text = "no\x1b[2J such\n\x07file\u202e \xff"
	if got, want := brief(text), "no?[2J such ?file? \ufffd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
