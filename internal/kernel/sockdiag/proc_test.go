package sockdiag

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const procHeader = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func TestDumpProcRecorded(t *testing.T) {
	got := stateCounts{}
	check(t, DumpProc(bytes.NewReader(readFile(t, recordedProc)), bytes.NewReader(readFile(t, recordedSix)), got.add))
	if diff := cmp.Diff(recordedCounts, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDumpProcFields(t *testing.T) {
	line := "   3: 0100007F:1F90 0200007F:C350 01 0000000A:0000000B 01:00000014 00000003  1000        0 4294967297 " +
		"2 0 20\n"
	var got Socket
	check(t, DumpProc(strings.NewReader(procHeader+line), nil, func(s *Socket) error { got = *s; return nil }))
	want := Socket{
		Family: 2, State: Established, Timer: TimerRetransmit, Retransmits: 3, Expires: 200,
		Local: netip.MustParseAddrPort("127.0.0.1:8080"), Remote: netip.MustParseAddrPort("127.0.0.2:50000"),
		WQueue: 10, RQueue: 11, UID: 1000, Inode: 4294967297,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDumpProcErrors(t *testing.T) {
	good := "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 " +
		"0 10 0\n"
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", "net/tcp line 1: unexpected EOF"},
		{"another file", "Inter-|   Receive\n", "net/tcp line 1: header"},
		{"cut in a line", procHeader + good + good[:60], "net/tcp line 3: unexpected EOF"},
		{"ends early", procHeader + good[:60] + "\n", "net/tcp line 2: line ends early"},
		{"empty line", procHeader + "\n", "net/tcp line 2: line ends early"},
		{
			"bad address", procHeader + strings.Replace(good, "0100007F", "0100007", 1),
			`net/tcp line 2: bad address: "0100007"`,
		},
		{
			"IPv6 address", procHeader + strings.Replace(good, "0100007F", strings.Repeat("0", 32), 1),
			"net/tcp line 2: bad address",
		},
		{
			"no hex", procHeader + strings.Replace(good, "0100007F", "0100007G", 1),
			`net/tcp line 2: bad hexadecimal number: "0100007G"`,
		},
		{"long port", procHeader + strings.Replace(good, "1F90", "11F90", 1), "net/tcp line 2: bad hexadecimal number"},
		{
			"bad inode", procHeader + good + strings.Replace(good, "77", "7x", 1),
			`net/tcp line 3: bad decimal number: "7x"`,
		},
		{
			"inode too big", procHeader + strings.Replace(good, "77", "18446744073709551616", 1),
			"net/tcp line 2: bad decimal",
		},
		{
			"negative uid", procHeader + strings.Replace(good, "     0   ", "    -1   ", 1),
			"net/tcp line 2: bad decimal",
		},
		{"endless line", procHeader + strings.Repeat(" ", procBufferSize+1), "net/tcp line 2: bufio: buffer full"},
	} {
		err := DumpProc(strings.NewReader(tc.in), nil, func(*Socket) error { return nil })
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
	stop := errors.New("stop")
	if err := DumpProc(strings.NewReader(procHeader+good), nil, func(*Socket) error { return stop }); !errors.Is(
		err, stop) {
		t.Errorf("error %v, want fn's own", err)
	}
	if err := DumpProc(strings.NewReader(procHeader+good), strings.NewReader("x"),
		func(*Socket) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "net/tcp6 line 1") {
		t.Errorf("error %v, want tcp6 named", err)
	}
}

func TestDumpProcAllocations(t *testing.T) {
	text := procHeader + strings.Repeat(strings.SplitAfter(string(readFile(t, recordedProc)), "\n")[1], 5003)
	n := 0
	allocs := testing.AllocsPerRun(5, func() {
		check(t, DumpProc(strings.NewReader(text), nil, func(*Socket) error { n++; return nil }))
	})
	if n != 6*5003 || allocs > 10 {
		t.Errorf("%d sockets, %.0f allocations; want %d and a handful", n, allocs, 6*5003)
	}
}

func FuzzDumpProc(f *testing.F) {
	f.Add(readFile(f, recordedProc), readFile(f, recordedSix))
	f.Add([]byte(procHeader), []byte(nil))
	f.Fuzz(func(t *testing.T, tcp, tcp6 []byte) {
		n := 0
		err := DumpProc(bytes.NewReader(tcp), bytes.NewReader(tcp6), func(s *Socket) error {
			n++
			if !s.Local.IsValid() || !s.Remote.IsValid() || s.HasInfo {
				t.Errorf("half a socket: %+v", *s)
			}
			return nil
		})
		lines := bytes.Count(tcp, []byte("\n")) + bytes.Count(tcp6, []byte("\n"))
		if err == nil && n != lines-2 {
			t.Errorf("%d sockets of %d lines without an error", n, lines)
		}
		if errors.Is(err, io.EOF) {
			t.Error("end of file as an error")
		}
	})
}
