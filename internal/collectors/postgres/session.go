package postgres

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// programs returns the names of the server's program: in Debian and upstream, until 9, and in EDB.
func programs() []string { return []string{"postgres", "postmaster", "edb-postgres"} }

func isProgram(name string) bool { return slices.Contains(programs(), name) }

// errNone says that a process belongs to no server.
var errNone = errors.New("it is no server of PostgreSQL")

// errOld says why a server is not read.
var errOld = errors.New("its PostgreSQL is older than 14, or exports no symbols")

// openServer finds the addresses in the files of a process, whose directory in /proc is dir.
func openServer(dir string, pid int) (*server, error) {
	files, err := memory.Files(dir, isProgram)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errNone
	}
	const proc, status, portal, current = "MyProc", "MyBEEntry", "ActivePortal", "CurrentMemoryContext"
	const event, errorStack = "my_wait_event_info", "error_context_stack"
	wanted := []string{proc, status, portal, current, event, errorStack, since14, since18}
	symbols, err := files[0].Symbols(func(name string) bool { return slices.Contains(wanted, name) }, proc, status)
	if err != nil {
		return nil, err
	}
	if symbols[proc] == 0 || symbols[status] == 0 || symbols[since14] == 0 {
		return nil, errOld
	}
	out := &server{
		pid: pid, version: "14 to 17", states: statesOf14(), myProc: symbols[proc], myStatus: symbols[status],
		portal: symbols[portal], memory: symbols[current], event: symbols[event],
		errorStack: symbols[errorStack],
	}
	if out.is18 = symbols[since18] != 0; out.is18 {
		out.version, out.states = "18 or newer", statesOf18()
	}
	return out, nil
}

// A session is a process of a server.
type session struct {
	pid    int
	server *server
	read   memory.Reader
	last   time.Time // when it was last looked at
	// About its last statement, which is read again when the count has changed.
	count       uint32
	fingerprint string
}

// A glance is what one pass saw of a session.
type glance struct {
	*session
	proc   uint64 // address of its PGPROC
	client bool   // it serves one, or works for a query
	state  string
	xact   time.Time // when its transaction began; zero outside of one
	began  time.Time // when its last statement began; zero without one
	waits  string    // what its statement waits for, as waitType names it; "" for nothing, or if not known
}

// errChanged says that a session changed what was read of it.
var errChanged = errors.New("it changed while it was read")

// tries is how often a status is read if it changes meanwhile.
const tries = 3

// glance reads the status of a session; the glance of a process without a PGPROC, the postmaster, is zero.
func (s *session) glance() (g glance, err error) {
	g.session = s
	if g.proc, err = s.read.Word(s.server.myProc); err != nil || g.proc == 0 {
		return g, err
	}
	at, err := s.read.Word(s.server.myStatus)
	if err != nil || at == 0 { // it starts
		return g, err
	}
	for range tries {
		if err = s.readStatus(at, &g); !errors.Is(err, errChanged) {
			break
		}
	}
	if err == nil && g.state == active {
		g.waits = s.waitsFor()
	}
	return g, err
}

// waitsFor reads what the session waits for; "" if that cannot be read, since nothing else depends on it.
func (s *session) waitsFor() string {
	at, err := s.read.Word(s.server.event)
	var event [4]byte
	if err != nil || s.server.event == 0 || s.read(at, event[:]) != nil {
		return ""
	}
	return waitType(half(event[:], 0))
}

func (s *session) readStatus(at uint64, g *glance) error {
	var b, again [statusSize]byte
	if err := s.read(at, b[:]); err != nil {
		return err
	}
	count := half(b[:], statusCount)
	if count%2 != 0 {
		return errChanged
	}
	fingerprint := s.fingerprint
	if count != s.count || s.count == 0 {
		text, err := s.text(word(b[:], statusText))
		if err != nil {
			return err
		}
		fingerprint = text
	}
	if err := s.read(at, again[:]); err != nil {
		return err
	}
	if half(again[:], statusCount) != count {
		return errChanged
	}
	s.count, s.fingerprint = count, fingerprint
	g.client = half(b[:], statusDatabase) != 0 && half(b[:], statusUser) != 0
	if n, states := half(b[:], statusState), s.server.states; int(n) < len(states) {
		g.state = states[n]
	}
	g.xact, g.began = timeAt(b[:], statusXact), timeAt(b[:], statusBegan)
	return nil
}

// timeAt reads a time of the server; it is zero if there is none.
func timeAt(b []byte, at int) time.Time {
	micros := int64(word(b, at))
	if micros <= 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(min(micros, maxMicros)) * time.Microsecond)
}

// epoch is where the server's times begin (src/include/datatype/timestamp.h), in microseconds; maxMicros is how many
// of these a time.Duration holds.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const maxMicros = int64((1<<63 - 1) / time.Microsecond)

// text reads a statement and returns its fingerprint. It reads pieces that do not go beyond a page, because nothing
// says how long the memory behind it is.
func (s *session) text(at uint64) (string, error) {
	if !isAddressOfText(at) {
		return "", memory.ErrNowhere
	}
	var all [maxText]byte
	for n := 0; n < len(all); {
		const page = 4096
		piece := all[n:min(len(all), n+int(page-(at+uint64(n))%page))]
		if err := s.read(at+uint64(n), piece); err != nil {
			if n == 0 {
				return "", err
			}
			break
		}
		if end := bytes.IndexByte(piece, 0); end >= 0 {
			return fingerprint(string(all[:n+end])), nil
		}
		n += len(piece)
	}
	return fingerprint(string(all[:])), nil
}

// isAddressOfText reports whether a number may be the address of a byte in user space.
func isAddressOfText(a uint64) bool { return isAddress(a &^ 7) }
