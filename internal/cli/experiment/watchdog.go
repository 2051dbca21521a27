package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchdogName is the first argument of a watchdog. The program recognizes itself as a watchdog by it.
	watchdogName = "perfdoctor: undoes an experiment"
	// watchdogSocket and watchdogKnob are its descriptors, behind the standard ones.
	watchdogSocket = 3
	watchdogKnob   = 4
	// startTime is how long a watchdog may take to start: 20 ms, or some hundred on a host with full CPUs.
	startTime = 10 * time.Second
	// slack is how much longer than its window the change may last: two readings of at most a second each, and the
	// time until this program gets a CPU again.
	slack = 4 * time.Second
)

// The words between the two. Each sees the end of the other as the end of its socket.
const (
	sayTurn    = "turn"    // to the watchdog: make the change
	sayReady   = "ready"   // from the watchdog: it is there
	sayChanged = "changed" // from the watchdog: the change is made; any other word says why it is not
	// maxWord bounds a word in bytes: an error that names a path.
	maxWord = 8192
)

// exitLate is the exit status of a watchdog that undid the change because its time was over.
const exitLate = 3

// A watchdog is a process that makes the change, and undoes it if this process is gone or late. No change is made
// without a watchdog.
type watchdog struct {
	socket *os.File
	cmd    *exec.Cmd
	said   chan string   // its words
	gone   chan struct{} // closed once it has ended
}

// startWatchdog starts a watchdog for a change of that length.
func startWatchdog(k *knob, lasts time.Duration) (*watchdog, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "watchdog")
	defer theirs.Close()
	w := &watchdog{
		socket: os.NewFile(uintptr(pair[0]), "watchdog"), said: make(chan string, 2), gone: make(chan struct{}),
		cmd: &exec.Cmd{
			Path: "/proc/self/exe", Env: []string{"GOMAXPROCS=1"}, Stderr: os.Stderr,
			// the arguments tell whoever finds it in ps what to put back
			Args: []string{
				watchdogName, k.name, strconv.Itoa(k.pid), k.before, k.during, (lasts + slack).String(),
			},
			ExtraFiles:  []*os.File{theirs, k.file},
			SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // apart from the terminal's signals
		},
	}
	if err := w.cmd.Start(); err != nil {
		_ = w.socket.Close() // nothing was said on it
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	go w.listen()
	return w, nil
}

// listen receives the watchdog's words, and its end.
func (w *watchdog) listen() {
	defer close(w.gone)
	for message := make([]byte, maxWord); ; {
		n, err := w.socket.Read(message)
		if err != nil || n == 0 {
			return
		}
		w.said <- string(message[:n])
	}
}

// errWatchdog says that the watchdog has ended: nobody would undo the change if this program were killed.
var errWatchdog = errors.New("the watchdog ended")

// turn has the watchdog make the change.
func (w *watchdog) turn(ctx context.Context) error {
	word, err := w.hear(ctx)
	if err == nil && word == sayReady {
		if err = unix.Sendto(int(w.socket.Fd()), []byte(sayTurn), unix.MSG_NOSIGNAL, nil); err == nil {
			word, err = w.hear(ctx)
		}
	}
	if err == nil && word != sayChanged {
		err = refusedf("%s", word)
	}
	return err
}

func (w *watchdog) hear(ctx context.Context) (string, error) {
	timer := time.NewTimer(startTime)
	defer timer.Stop()
	select {
	case word := <-w.said:
		return word, nil
	case <-timer.C:
		return "", fmt.Errorf("the watchdog did not answer within %v", startTime)
	case <-ctx.Done(): // also if the watchdog is gone, perhaps after a last word
	}
	select {
	case word := <-w.said:
		return word, nil
	default:
		return "", context.Cause(ctx)
	}
}

// end ends the watchdog, and says how it ended if it did so by itself.
func (w *watchdog) end() string {
	_ = w.cmd.Process.Kill() // it may have ended already
	_ = w.cmd.Wait()         // its state says how it ended
	<-w.gone
	_ = w.socket.Close() // nothing more is said on it
	if w.cmd.ProcessState.ExitCode() == exitLate {
		return "it undid the change, since this program was late"
	}
	return w.cmd.ProcessState.String()
}

// Watch reports whether this process is a watchdog. If so, its work is done, and main exits with the code.
func Watch() (code int, watched bool) {
	if os.Args[0] != watchdogName || len(os.Args) != 6 {
		return 0, false
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGPIPE)
	pid, err1 := strconv.Atoi(os.Args[2])
	lasts, err2 := time.ParseDuration(os.Args[5])
	if err := errors.Join(err1, err2); err != nil {
		fmt.Fprintf(os.Stderr, "perfdoctor: watchdog: %v\n", err)
		return 1, true
	}
	// If memory runs out, the watchdog should neither be the victim nor wait for a page of its program. Both need
	// rights that it may not have.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	_ = unix.Mlockall(unix.MCL_CURRENT)
	k := &knob{
		name: os.Args[1], pid: pid, before: os.Args[3], during: os.Args[4],
		file: os.NewFile(watchdogKnob, os.Args[1]),
	}
	return watchOver(watchdogSocket, k, lasts), true
}

// watchOver makes the change when it is told to, and undoes it once the other end of the socket is gone or late. It
// returns an exit code.
func watchOver(socket int, k *knob, lasts time.Duration) int {
	if !say(socket, sayReady) || hear(socket, startTime) != sayTurn {
		return 0
	}
	if err := k.turn(); err != nil {
		word := err.Error()
		say(socket, word[:min(len(word), maxWord)])
		return 0
	}
	say(socket, sayChanged) // if nobody hears this, the hear below does not wait either
	why, code := "perfdoctor was ended in the middle of an experiment", 0
	if hear(socket, lasts) == heardNothing {
		why, code = "perfdoctor was late in an experiment", exitLate
	}
	how, _, err := k.undo()
	if err != nil {
		fmt.Fprintf(os.Stderr, "perfdoctor: %s: %v\n", why, err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "perfdoctor: %s; its watchdog has undone it: %s\n", why, how)
	return code
}

func say(socket int, word string) bool {
	return unix.Sendto(socket, []byte(word), unix.MSG_NOSIGNAL, nil) == nil
}

// What hear returns besides words.
const (
	heardEnd     = ""
	heardNothing = "nothing"
)

// hear waits up to limit for a word, or for the end of the other side.
func hear(socket int, limit time.Duration) string {
	if ready, err := readable(socket, limit); err == nil && !ready {
		return heardNothing
	}
	buf := make([]byte, maxWord)
	n, _, err := unix.Recvfrom(socket, buf, unix.MSG_DONTWAIT)
	if err != nil || n == 0 {
		return heardEnd
	}
	return string(buf[:n])
}

// readable waits up to limit until there is something to read; for a process (pidfd), until it has exited.
func readable(fd int, limit time.Duration) (bool, error) {
	for end := time.Now().Add(limit); ; {
		left := max(0, time.Until(end))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, err
		}
		if n > 0 || left == 0 {
			return n > 0, nil
		}
	}
}
