// Package dotnet asks a .NET program for the names of its compiled methods.
//
// Each process of .NET Core 3.0 and later listens on a socket of its own for diagnostic tools (dotnet/diagnostics,
// documentation/design-docs/ipc-protocol.md). A session that is ended at once makes the runtime write into the
// connection which methods are compiled and where: nothing is loaded into the process, and nothing is left there
// (docs/decisions/0107-names-of-dotnet.md).
package dotnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
)

const (
	// patience bounds the whole exchange: 10,000 methods take 0.1 s. A process that is stopped does not answer.
	patience = 3 * time.Second
	// answerTime bounds the wait for a session from a runtime that answered just before: it takes 1 ms.
	answerTime = time.Second
	// patienceForAll bounds what all processes of a diagnosis take together: some may choose not to answer.
	patienceForAll = 2 * patience
	// bufferMiB is the most unread data that the runtime keeps in its memory: a method takes 200 bytes.
	bufferMiB = 16
	// maxStream bounds what is read: 100,000 methods are 20 MB.
	maxStream = 64 << 20
	// maxEnvironment bounds what is read of the process's environment, for TMPDIR.
	maxEnvironment = 128 << 10
)

// ErrNone says that the process has no diagnostic port: it is not a .NET program, or DOTNET_EnableDiagnostics=0
// turned it off.
var ErrNone = errors.New("no diagnostic port of .NET")

// Map asks the process whose directory in procfs is dir for its compiled methods.
func Map(ctx context.Context, dir string) (*perfmap.Map, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	port, err := findPort(dir)
	if err != nil {
		return nil, err
	}
	defer port.Close()
	m, err := port.ask(ctx)
	if err != nil {
		return nil, fmt.Errorf("the diagnostic port of .NET: %w", err)
	}
	return m, nil
}

// keep is how long an answer is used: as long as the collectors of one diagnosis take to ask for it.
const keep = 10 * time.Second

// Names asks each process once, however many collectors want its methods. A nil *Names asks nobody.
type Names struct {
	mu    sync.Mutex
	known map[string]answer
	spent time.Duration // since it began
	began time.Time
}

type answer struct {
	m   *perfmap.Map
	err error
}

// Map is [Map] with an answer that may be a few seconds old.
func (n *Names) Map(ctx context.Context, dir string) (*perfmap.Map, error) {
	if n == nil {
		return nil, ErrNone
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.began) > keep {
		n.known, n.spent, n.began = map[string]answer{}, 0, now
	}
	a, known := n.known[dir]
	if known {
		return a.m, a.err
	}
	if n.spent > patienceForAll {
		return nil, fmt.Errorf("the diagnostic port of .NET: other processes took %v to answer", n.spent)
	}
	a.m, a.err = Map(ctx, dir)
	n.known[dir] = a
	n.spent += time.Since(now)
	return a.m, a.err
}

// A port is a handle (O_PATH) to the socket, so that each connection reaches the one that was looked at.
type port struct{ *os.File }

// findPort looks for the socket where the runtime puts it (ds_rt_transport_get_default_name in
// src/coreclr/vm/eventing/eventpipe/ds-rt-coreclr.h): its name has the pid and the start time as the process sees them.
func findPort(dir string) (port, error) {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return port{}, ErrNone // it has ended
	}
	st, err := host.ParseStat(stat)
	if err != nil {
		return port{}, fmt.Errorf("%s/stat: %w", dir, err)
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return port{}, ErrNone
	}
	about, err := host.ParseStatus(status)
	if err != nil {
		return port{}, fmt.Errorf("%s/status: %w", dir, err)
	}
	root, err := door.Enter(dir)
	if err != nil {
		return port{}, ErrNone
	}
	defer root.Close()
	name := fmt.Sprintf("%s/dotnet-diagnostic-%d-%d-socket", tempDir(dir), about.InnermostPID(st.PID), st.StartTime)
	fd, err := root.Socket(name, about.UID[1])
	if errors.Is(err, unix.ENOENT) {
		return port{}, ErrNone
	}
	if err != nil {
		return port{}, err
	}
	return port{os.NewFile(uintptr(fd), name)}, nil
}

// tempDir returns the process's directory for temporary files.
func tempDir(dir string) string {
	text, _, err := door.Read(dir+"/environ", maxEnvironment)
	if err != nil {
		return "/tmp"
	}
	for v := range strings.SplitSeq(string(text), "\x00") {
		if d, ok := strings.CutPrefix(v, "TMPDIR="); ok && strings.HasPrefix(d, "/") {
			return strings.TrimRight(d, "/")
		}
	}
	return "/tmp"
}

func (p port) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(int(p.Fd())))
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	return conn, conn.SetDeadline(deadline)
}

// The commands of the protocol: the set EventPipe with two of its commands, and the set Process with one.
const (
	eventPipe      = 2
	stopTracing    = 1
	collectTracing = 2
	processSet     = 4
	processInfo    = 0
)

// ask begins a session, ends it, and reads what the runtime writes then. If that fails later on, the end of the
// connection also ends the session: the runtime closes it with the first event that it cannot write.
func (p port) ask(ctx context.Context) (*perfmap.Map, error) {
	if err := p.answers(ctx); err != nil {
		return nil, err
	}
	stream, session, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	stopped := make(chan error, 1)
	go func() { stopped <- p.stop(ctx, session) }()
	methods, err := firewall.Parse("what .NET tells of its methods", func() ([]perfmap.Entry, error) {
		return methodsOf(io.LimitReader(stream, maxStream))
	})
	if err != nil {
		_ = stream.Close()
	}
	if err = errors.Join(err, <-stopped); err != nil {
		return nil, err
	}
	return perfmap.Of(methods), nil
}

// answers asks, on a connection of its own, for something that is read and dropped: a runtime that is stopped, or
// does not get to answer, is not asked for a session.
func (p port) answers(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := send(conn, processSet, processInfo, nil); err != nil {
		return err
	}
	_, err = readReply(conn) // before .NET 5 it answers that it does not know this command
	return err
}

// begin asks for a session. The connection stays open until the runtime has answered and the session is at work,
// however long that takes and whoever cancels ctx: .NET Core 3.1 crashes if it cannot answer
// (docs/decisions/0107-names-of-dotnet.md).
func (p port) begin(ctx context.Context) (net.Conn, uint64, error) {
	stream, err := p.dial(ctx)
	if err != nil {
		return nil, 0, err
	}
	type reply struct {
		session uint64
		err     error
	}
	answered, left := make(chan reply), make(chan struct{})
	err = stream.SetDeadline(time.Time{})
	if err == nil {
		err = send(stream, eventPipe, collectTracing, request())
	}
	if err != nil {
		return nil, 0, errors.Join(err, stream.Close())
	}
	go func() {
		session, err := sessionOf(stream)
		select {
		case answered <- reply{session, err}:
		case <-left: // the session has no events, and ends with perfdoctor
			_, _ = io.Copy(io.Discard, stream)
		}
	}()
	select {
	case a := <-answered:
		deadline, _ := ctx.Deadline()
		return stream, a.session, errors.Join(a.err, stream.SetDeadline(deadline))
	case <-time.After(answerTime):
		close(left)
		return nil, 0, fmt.Errorf("it did not answer within %v", answerTime)
	}
}

// stop ends a session, on a connection of its own.
func (p port) stop(ctx context.Context, session uint64) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := send(conn, eventPipe, stopTracing, binary.LittleEndian.AppendUint64(nil, session)); err != nil {
		return err
	}
	_, err = sessionOf(conn)
	return err
}

// request returns the request for a session that gets no events while it lasts: when it ends, it lists the compiled
// methods.
func request() []byte {
	const netTrace, providers, fatalOnly = 1, 1, 1
	b := binary.LittleEndian.AppendUint32(nil, bufferMiB)
	b = binary.LittleEndian.AppendUint32(b, netTrace)
	b = binary.LittleEndian.AppendUint32(b, providers)
	b = binary.LittleEndian.AppendUint64(b, 0) // keywords
	b = binary.LittleEndian.AppendUint32(b, fatalOnly)
	name := utf16.Encode([]rune("Microsoft-Windows-DotNETRuntime\x00"))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
	for _, u := range name {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return binary.LittleEndian.AppendUint32(b, 0) // no arguments
}

// messageMagic begins each message; then come its length, the set, the command and two bytes for later use.
const (
	messageMagic = "DOTNET_IPC_V1\x00"
	headerSize   = 20
)

func send(conn net.Conn, set, id byte, payload []byte) error {
	b := binary.LittleEndian.AppendUint16([]byte(messageMagic), uint16(headerSize+len(payload)))
	_, err := conn.Write(append(append(b, set, id, 0, 0), payload...))
	return err
}

// readReply reads the beginning of an answer; ok is false if it is an error.
func readReply(conn net.Conn) (ok bool, err error) {
	const server, good = 0xff, 0
	b := make([]byte, headerSize)
	if _, err := io.ReadFull(conn, b); err != nil {
		return false, fmt.Errorf("it did not answer: %w", err)
	}
	if string(b[:len(messageMagic)]) != messageMagic || b[headerSize-4] != server {
		return false, errors.New("its answer is not of the protocol")
	}
	return b[headerSize-3] == good, nil
}

// sessionOf reads the answer that has the number of a session.
func sessionOf(conn net.Conn) (uint64, error) {
	ok, err := readReply(conn)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, errors.New("it refused the session")
	}
	number := make([]byte, 8)
	if _, err := io.ReadFull(conn, number); err != nil {
		return 0, fmt.Errorf("it did not answer: %w", err)
	}
	return binary.LittleEndian.Uint64(number), nil
}
