package sockdiag

import (
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "record testdata anew from the running kernel (root)")

const (
	recordedDump = "testdata/dump-linux-6.18.bin" // datagrams, one after the other
	recordedProc = "testdata/tcp-linux-6.18.txt"
	recordedSix  = "testdata/tcp6-linux-6.18.txt"
)

// recordedCounts is the population of the recordings.
var recordedCounts = stateCounts{
	"LISTEN": 1, "LISTEN ipv6": 1, "ESTABLISHED": 3, "ESTABLISHED ipv6": 3, "TIME_WAIT": 2, "TIME_WAIT ipv6": 1,
}

// record makes the seeds of the other tests anew.
func record(t *testing.T) {
	enterNamespace(t)
	l4, p4 := listen(t, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, 8)
	l6, p6 := listen(t, &unix.SockaddrInet6{}, 8)
	to4 := &unix.SockaddrInet4{Port: p4, Addr: [4]byte{127, 0, 0, 1}}
	to6 := &unix.SockaddrInet6{Port: p6, Addr: [16]byte{15: 1}}
	clients, _ := connections(t, 1, l4, to4)
	_, err := unix.Write(clients[0], make([]byte, 1009))
	check(t, err)
	connections(t, 1, l6, to6)
	connections(t, 1, l6, &unix.SockaddrInet4{Port: p6, Addr: [4]byte{127, 0, 0, 1}})
	timeWaits(t, 2, l4, to4)
	timeWaits(t, 1, l6, to6)
	for name, file := range map[string]string{"tcp": recordedProc, "tcp6": recordedSix} {
		b, err := os.ReadFile(openProc(t, name).Name())
		check(t, err)
		check(t, os.WriteFile(file, b, 0o644))
	}
	check(t, os.WriteFile(recordedDump, rawDump(t), 0o644))
}

// rawDump is the kernel's answer to a dump of everything with tcp_info.
func rawDump(t *testing.T) []byte {
	c := open(t)
	req, err := request(unix.AF_UNSPEC, AllStates, true)
	check(t, err)
	_, err = unix.Write(c.fd, req)
	check(t, err)
	var all []byte
	p := parser{}
	for done := false; !done; {
		n, err := c.read()
		check(t, err)
		all = append(all, c.buf[:n]...)
		done, err = p.datagram(c.buf[:n])
		check(t, err)
	}
	return all
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	check(t, err)
	return b
}

func TestParseRecordedDump(t *testing.T) {
	if *update {
		record(t)
	}
	got := stateCounts{}
	infos := 0
	p := parser{fn: func(s *Socket) error {
		if s.HasInfo {
			infos++
		}
		if s.HasInfo != (s.State == Established) {
			t.Errorf("%v has tcp_info: %v", s.State, s.HasInfo)
		}
		if s.State == TimeWait && (s.Inode != 0 || s.Timer != TimerTimeWait || s.Expires == 0 || s.Expires > 60_000) {
			t.Errorf("TIME_WAIT with inode %d, timer %d, %d ms", s.Inode, s.Timer, s.Expires)
		}
		return got.add(s)
	}}
	done, err := p.datagram(readFile(t, recordedDump))
	if !done || err != nil {
		t.Fatalf("done %v, error %v", done, err)
	}
	if diff := cmp.Diff(recordedCounts, got); diff != "" || infos != 6 {
		t.Errorf("%d tcp_info, want 6; (-want +got):\n%s", infos, diff)
	}
}

func TestParseCutAnywhere(t *testing.T) {
	b := readFile(t, recordedDump)
	boundary := map[int]bool{}
	for off := 0; off < len(b); off += align4(int(binary.NativeEndian.Uint32(b[off:]))) {
		boundary[off] = true
	}
	for cut := range len(b) {
		p := parser{fn: func(*Socket) error { return nil }}
		done, err := p.datagram(b[:cut])
		if done || boundary[cut] != (err == nil) || err != nil && !errors.Is(err, errTruncated) {
			t.Fatalf("cut at %d: done %v, error %v", cut, done, err)
		}
	}
}

func message(typ, flags uint16, seq uint32, body ...byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(hdrLen+len(body)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return append(append(b, 0, 0, 0, 0), body...)
}

func TestParseMessages(t *testing.T) {
	minusENOENT := binary.NativeEndian.AppendUint32(nil, ^uint32(unix.ENOENT)+1) // two's complement
	shortAttr := append(make([]byte, msgLen), 3, 0, 2, 0)
	shortAttr[msgFamily] = unix.AF_INET
	shortInfo := append(make([]byte, msgLen), 8, 0, attrInfo, 0, 1, 2, 3, 4)
	shortInfo[msgFamily] = unix.AF_INET
	const diag = unix.SOCK_DIAG_BY_FAMILY
	for _, tc := range []struct {
		name string
		in   []byte
		done bool
		err  error // nil: none; errAny: any
	}{
		{"done", message(unix.NLMSG_DONE, 0, 7), true, nil},
		{"done with 0", message(unix.NLMSG_DONE, 0, 7, 0, 0, 0, 0), true, nil},
		{"done with error", message(unix.NLMSG_DONE, 0, 7, minusENOENT...), true, kernelErrno(unix.ENOENT)},
		{"error", message(unix.NLMSG_ERROR, 0, 7, minusENOENT...), true, kernelErrno(unix.ENOENT)},
		{"short error", message(unix.NLMSG_ERROR, 0, 7, 1), false, errTruncated},
		{"overrun", message(unix.NLMSG_OVERRUN, 0, 7), false, kernelErrno(unix.ENOBUFS)},
		{"noop", message(unix.NLMSG_NOOP, 0, 7), false, nil},
		{"another request", message(unix.NLMSG_DONE, 0, 6), false, nil},
		{"unknown type", message(99, 0, 7), false, errAny},
		{"short socket", message(diag, 0, 7, make([]byte, msgLen-1)...), false, errTruncated},
		{"family 0", message(diag, 0, 7, make([]byte, msgLen)...), false, errAny},
		{"attribute shorter than its header", message(diag, 0, 7, shortAttr...), false, errTruncated},
		{"tcp_info too short", message(diag, 0, 7, shortInfo...), false, errTruncated},
		{"error, then end", append(message(diag, 0, 7, 1), make([]byte, 3)...), false, errTruncated},
		{"bad socket, then done", append(message(diag, 0, 7, 1, 2, 3, 4), message(3, 0, 7)...), true, errTruncated},
	} {
		p := parser{seq: 7, fn: func(*Socket) error { t.Errorf("%s: a socket", tc.name); return nil }}
		done, err := p.datagram(tc.in)
		if done != tc.done || (err == nil) != (tc.err == nil) || !errors.Is(tc.err, errAny) && !errors.Is(err, tc.err) {
			t.Errorf("%s: done %v, error %v; want %v, %v", tc.name, done, err, tc.done, tc.err)
		}
	}
}

var errAny = errors.New("any")

func TestParseInterrupted(t *testing.T) {
	p := parser{}
	if done, err := p.datagram(message(unix.NLMSG_DONE, unix.NLM_F_DUMP_INTR, 0)); !done || err != nil {
		t.Fatalf("done %v, error %v", done, err)
	}
	if !p.interrupted {
		t.Error("NLM_F_DUMP_INTR not seen")
	}
}

// Older kernels return less of tcp_info. Missing values must be told apart from 0.
func TestParseOldInfo(t *testing.T) {
	var full unix.TCPInfo
	b := make([]byte, unsafe.Sizeof(full))
	for i := range b {
		b[i] = 1
	}
	type has struct{ Bytes, Segs, MinRTT, DataSegs, Rate, Busy bool }
	for _, tc := range []struct {
		kernel string
		length int
		want   has
	}{
		{"2.6", 104, has{}},
		{"3.15", 120, has{}},
		{"4.1", 136, has{Bytes: true}},
		{"4.2", 144, has{Bytes: true, Segs: true}},
		{"4.6", 160, has{Bytes: true, Segs: true, MinRTT: true, DataSegs: true}},
		{"4.9", 168, has{Bytes: true, Segs: true, MinRTT: true, DataSegs: true, Rate: true}},
		{"4.10", 192, has{true, true, true, true, true, true}},
	} {
		var s Socket
		check(t, s.setInfo(b[:tc.length]))
		i := &s.Info
		got := has{i.HasBytes(), i.HasSegs(), i.HasMinRTT(), i.HasDataSegs(), i.HasDeliveryRate(), i.HasBusyTime()}
		values := has{
			i.BytesAcked != 0 && i.BytesReceived != 0, i.SegsIn != 0 && i.SegsOut != 0, i.MinRTT != 0,
			i.DataSegsIn != 0 && i.DataSegsOut != 0, i.DeliveryRate != 0, i.BusyTime != 0 && i.RwndLimited != 0,
		}
		if got != tc.want || values != tc.want || i.Len != tc.length || i.TotalRetrans == 0 {
			t.Errorf("Linux %s: flags %+v, values %+v, want %+v", tc.kernel, got, values, tc.want)
		}
	}
	for n := range b[:152] {
		b[n] = 0xff // MinRTT before the first sample
	}
	var s Socket
	check(t, s.setInfo(b))
	if s.Info.HasMinRTT() {
		t.Error("HasMinRTT before the first sample")
	}
}

// The offsets are those of x/sys's struct, which is generated from the kernel's headers.
func TestInfoOffsets(t *testing.T) {
	var i unix.TCPInfo
	for name, pair := range map[string][2]uintptr{
		"unacked":        {infoUnacked, unsafe.Offsetof(i.Unacked)},
		"lost":           {infoLost, unsafe.Offsetof(i.Lost)},
		"retrans":        {infoRetrans, unsafe.Offsetof(i.Retrans)},
		"last_data_sent": {infoLastDataSent, unsafe.Offsetof(i.Last_data_sent)},
		"last_data_recv": {infoLastDataRecv, unsafe.Offsetof(i.Last_data_recv)},
		"rtt":            {infoRTT, unsafe.Offsetof(i.Rtt)},
		"rttvar":         {infoRTTVar, unsafe.Offsetof(i.Rttvar)},
		"snd_cwnd":       {infoSndCwnd, unsafe.Offsetof(i.Snd_cwnd)},
		"total_retrans":  {infoTotalRetrans, unsafe.Offsetof(i.Total_retrans)},
		"bytes_acked":    {infoBytesAcked, unsafe.Offsetof(i.Bytes_acked)},
		"bytes_received": {infoBytesReceived, unsafe.Offsetof(i.Bytes_received)},
		"segs_out":       {infoSegsOut, unsafe.Offsetof(i.Segs_out)},
		"segs_in":        {infoSegsIn, unsafe.Offsetof(i.Segs_in)},
		"min_rtt":        {infoMinRTT, unsafe.Offsetof(i.Min_rtt)},
		"data_segs_in":   {infoDataSegsIn, unsafe.Offsetof(i.Data_segs_in)},
		"data_segs_out":  {infoDataSegsOut, unsafe.Offsetof(i.Data_segs_out)},
		"delivery_rate":  {infoDeliveryRate, unsafe.Offsetof(i.Delivery_rate)},
		"busy_time":      {infoBusyTime, unsafe.Offsetof(i.Busy_time)},
		"rwnd_limited":   {infoRwndLimited, unsafe.Offsetof(i.Rwnd_limited)},
		"sndbuf_limited": {infoSndbufLimited, unsafe.Offsetof(i.Sndbuf_limited)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s at %d, want %d", name, pair[0], pair[1])
		}
	}
}

func FuzzDatagram(f *testing.F) {
	f.Add(readFile(f, recordedDump))
	f.Add(message(unix.NLMSG_ERROR, 0, 0, 0xfe, 0xff, 0xff, 0xff))
	f.Add(message(unix.NLMSG_DONE, unix.NLM_F_DUMP_INTR, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		p := parser{fn: func(s *Socket) error {
			n++
			if !s.Local.IsValid() || !s.Remote.IsValid() || s.HasInfo && s.Info.Len == 0 {
				t.Errorf("half a socket: %+v", *s)
			}
			return nil
		}}
		if _, err := p.datagram(b); err == nil && n > len(b)/(hdrLen+msgLen) {
			t.Errorf("%d sockets in %d bytes", n, len(b))
		}
	})
}

func TestStrings(t *testing.T) {
	for s, want := range map[State]string{
		Established: "ESTABLISHED", TimeWait: "TIME_WAIT", Closing: "CLOSING", 0: "STATE_0", 12: "STATE_12",
	} {
		if s.String() != want {
			t.Errorf("state %d is %q, want %q", s, s.String(), want)
		}
	}
	if AllStates != 0x1ffe || !AllStates.Has(Listen) || StatesOf(Listen).Has(Close) {
		t.Errorf("AllStates is %#x", uint32(AllStates))
	}
}

// A timeout too short for a kernel's timeval must not turn into none.
func TestOpenTinyTimeout(t *testing.T) {
	c, err := Open(time.Nanosecond)
	check(t, err)
	defer c.Close()
	if err := c.Dump(unix.AF_INET, AllStates, false, func(*Socket) error { return nil }); !errors.Is(
		err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v, want a deadline", err)
	}
}
