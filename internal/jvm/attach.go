package jvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
)

const (
	// A JVM that runs opens its socket within 20 ms of the signal; one that is throttled by its quota, in a long
	// safepoint, or swapped out needs longer. The JDK's own jcmd waits 10 s (sun.tools.attach.attachTimeout).
	attachTimeout = 10 * time.Second
	// The interval at which the socket is looked for meanwhile.
	attachPoll = 5 * time.Millisecond
	// An argument of a request is at most this long, with its terminating zero (AttachOperation::arg_length_max in
	// src/hotspot/share/services/attachListener.hpp).
	maxArgument = 1024
	// A reply is text for people: Thread.print of 10,000 threads is about 20 MB. Reading it takes up to four times
	// its size, and perfdoctor has 256 MiB in its packaged unit.
	maxReply = 32 << 20
	// A reply to load is a number, or the loader's message, which names the file twice.
	maxLoadReply = 64 << 10
)

// Jcmd runs a diagnostic command as the JDK's jcmd does, such as "VM.flags" or "Thread.print -l", and returns what it
// prints. The first command to a JVM makes it start its attach listener, one more thread, which stays; the JVM prints
// nothing.
//
// It returns when ctx ends; a command that was sent runs on in the JVM. Its errors are a *Refusal.
func (vm *VM) Jcmd(ctx context.Context, command string) (string, error) {
	if r := vm.Attachable(); r != nil {
		return "", r
	}
	reply, err := vm.ask(ctx, "jcmd", command)
	if err != nil {
		return "", err
	}
	if reply.code != 0 {
		r := vm.refuse(Failed, fmt.Sprintf("the JVM answers to jcmd %s: %s", command, brief(reply.text)), "")
		r.Code = reply.code
		return "", r
	}
	return reply.text, nil
}

// Load makes the JVM load a native agent and call its Agent_OnAttach with options. path is absolute, as the target
// sees it. The library stays loaded until the JVM ends.
//
// An agent that is loaded in the first moments of a JVM may find no JVMTI environment yet (JVMTI_PHASE_LIVE) and fail.
//
// Its errors are a *Refusal; with cause Failed, Code is what Agent_OnAttach returned, or -1 when the library could not
// be loaded. From JDK 21 on the JVM writes a warning of three lines to its standard error for every library it loads
// this way for the first time, unless it was started with -XX:+EnableDynamicAgentLoading (JEP 451).
func (vm *VM) Load(ctx context.Context, path, options string) error {
	if r := vm.Loadable(); r != nil {
		return r
	}
	// The third word says that path is absolute, not a name to look for (JvmtiExport::load_agent_library).
	reply, err := vm.ask(ctx, "load", path, "true", options)
	if err != nil {
		return err
	}
	return vm.loadResult(path, reply)
}

// loadResult reads the answer to load. JDK 8 answers with a number, later ones with "return code: N". If the library
// could not be loaded, the answer is the loader's message, with code -1 up to JDK 17 and with code 0 from 21 on.
func (vm *VM) loadResult(path string, reply attachReply) error {
	text := strings.TrimSpace(reply.text)
	number := strings.TrimPrefix(text, "return code: ")
	if code, err := strconv.Atoi(number); err == nil && reply.code == 0 {
		if code == 0 {
			return nil
		}
		r := vm.refuse(Failed, fmt.Sprintf("the agent %s in the target gave up with code %d", path, code), "")
		r.Code = code
		return r
	}
	cause, remedy := Failed, ""
	switch {
	case strings.Contains(text, "Dynamic agent loading is not enabled"):
		cause, remedy = LoadDisabled, "restart it without -XX:-EnableDynamicAgentLoading"
	case strings.Contains(text, "failed to map segment"):
		cause, remedy = NoPlace, "the directory is mounted noexec: give the target one that is not"
	}
	if text == "" {
		text = "no reason given"
	}
	r := vm.refuse(cause, fmt.Sprintf("the JVM could not load %s: %s", path, brief(text)), remedy)
	r.Code = -1
	return r
}

// brief turns a message into one line that is short enough to show and has nothing that would steer a terminal.
func brief(text string) string {
	const most = 400 // a loader's message names the file twice
	line := strings.Map(printable, strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "..."
	}
	return line
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}

// attachReply is the JVM's answer: the code of the operation, 0 if it was carried out, and its output.
type attachReply struct {
	code int
	text string
}

// ask sends one request; first it makes the JVM listen if it does not yet.
func (vm *VM) ask(ctx context.Context, operation string, args ...string) (attachReply, error) {
	request, err := encodeRequest(operation, args)
	if err != nil {
		return attachReply{}, fmt.Errorf("pid %d: %w", vm.PID, err)
	}
	if r := vm.haltedNow(); r != nil { // asking it would take all the time there is
		return attachReply{}, r
	}
	conn, err := vm.connect(ctx)
	if err != nil {
		return attachReply{}, err
	}
	defer conn.Close()
	// The wait for a reply ends with the context. A deadline in the past is not a failure in itself.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	most := maxReply
	if operation == "load" {
		most = maxLoadReply
	}
	reply, err := exchange(conn, request, most)
	if err != nil {
		return attachReply{}, vm.noReply(ctx, operation+" "+strings.Join(args, " "), err)
	}
	return reply, nil
}

// encodeRequest writes a request of version 1 of the protocol, which HotSpot 6 to 25 understand: the version, the
// operation and exactly three arguments, each terminated by a zero.
func encodeRequest(operation string, args []string) ([]byte, error) {
	request := []byte("1\x00" + operation + "\x00")
	for i := range 3 {
		arg := ""
		if i < len(args) {
			arg = args[i]
		}
		if len(arg) >= maxArgument {
			return nil, fmt.Errorf("attach: an argument of %d bytes is longer than the %d that HotSpot takes", len(arg),
				maxArgument-1)
		}
		if strings.Contains(arg, "\x00") {
			return nil, errors.New("attach: an argument holds a zero byte")
		}
		request = append(append(request, arg...), 0)
	}
	return request, nil
}

// exchange sends a request and reads its reply, of at most most bytes.
func exchange(conn io.ReadWriter, request []byte, most int) (attachReply, error) {
	if _, err := conn.Write(request); err != nil {
		return attachReply{}, err
	}
	text, err := io.ReadAll(io.LimitReader(conn, int64(most)+1))
	if err != nil {
		return attachReply{}, err
	}
	if len(text) > most {
		return attachReply{}, fmt.Errorf("the reply is longer than %d bytes", most)
	}
	return parseReply(text)
}

// parseReply splits "0\n..." into its code and the text.
func parseReply(text []byte) (attachReply, error) {
	first, rest, ok := bytes.Cut(text, []byte{'\n'})
	code, err := strconv.ParseInt(string(first), 10, 32)
	if !ok || err != nil {
		return attachReply{}, errors.New("the reply does not begin with a code and a line break")
	}
	return attachReply{int(code), string(rest)}, nil
}

// noReply explains a request without an answer. It looks at the process again, since that may have changed after the
// inspection.
func (vm *VM) noReply(ctx context.Context, what string, err error) error {
	if _, statusErr := os.Stat(vm.proc("status")); statusErr != nil {
		return vm.unreadable(statusErr)
	}
	if r := vm.haltedNow(); r != nil {
		r.Err = err
		return r
	}
	reason, remedy := fmt.Sprintf("no answer to %s: %v", strings.TrimSpace(what), err), ""
	if ctx.Err() != nil {
		// The connection itself only says "i/o timeout".
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.Cause(ctx)
		}
		reason = fmt.Sprintf("the JVM did not answer in time to %s: %v", strings.TrimSpace(what), err)
		remedy = "try again when the machine is less busy, or give it more time"
	}
	r := vm.refuse(NoAnswer, reason, remedy)
	r.Err = err
	return r
}

// haltedNow returns [VM.halted] as of this moment; it is also nil where that cannot be read.
func (vm *VM) haltedNow() *Refusal {
	now := *vm
	if now.readStatus() != nil {
		return nil //nolint:nilerr // gone, or about to be: what asks next says so
	}
	now.Frozen = now.isFrozen()
	return now.halted()
}

// errNoListener says that nobody listens at the JVM's socket.
var errNoListener = errors.New("no attach listener")

// connect connects to the JVM's attach listener, and has it started if there is none.
func (vm *VM) connect(ctx context.Context) (*os.File, error) {
	t, err := vm.enter()
	if err != nil {
		return nil, err
	}
	defer t.close()
	limited, cancel := context.WithTimeoutCause(ctx, attachTimeout,
		fmt.Errorf("its attach listener did not open within %v", attachTimeout))
	defer cancel()
	conn, err := t.dial(limited, vm.NSPid)
	if errors.Is(err, errNoListener) {
		conn, err = vm.startListener(limited, t)
	}
	switch {
	case err == nil:
		return conn, nil
	case limited.Err() != nil:
		return nil, vm.noReply(limited, "the request to attach", err)
	}
	return nil, vm.explain(err, "attach")
}

// explain turns a system error into a refusal if the user can do something about it.
func (vm *VM) explain(err error, what string) error {
	var already *Refusal
	if errors.As(err, &already) {
		return err
	}
	cause, remedy := Failed, ""
	switch {
	case errors.Is(err, errSwitch):
		cause, remedy = Denied, fmt.Sprintf("run perfdoctor as uid %d, or as root with CAP_SETUID and CAP_SETGID",
			vm.UID)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		cause, remedy = Denied, "run perfdoctor as root or as the target's user"
	}
	r := vm.refuse(cause, what+": "+err.Error(), remedy)
	r.Err = err
	return r
}

// dial connects to the socket as the target's user. Its error is errNoListener if there is no socket or nobody
// listens at it.
func (t *tree) dial(ctx context.Context, nspid int) (conn *os.File, err error) {
	err = t.as.do(func() error {
		conn, err = t.dialAsTarget(ctx, nspid)
		return err
	})
	return conn, err
}

func (t *tree) dialAsTarget(ctx context.Context, nspid int) (*os.File, error) {
	// HotSpot always uses /tmp, never TMPDIR (os::get_temp_directory in src/hotspot/os/linux/os_linux.cpp).
	socket, err := t.root.Socket("/tmp/.java_pid"+strconv.Itoa(nspid), t.as.uid)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNoListener
	}
	if err != nil {
		return nil, err
	}
	defer closeQuietly(socket)
	return connectTo(ctx, socket)
}

// connectTo connects to the socket behind an O_PATH handle, so that it is the socket that was looked at.
func connectTo(ctx context.Context, socket int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	address := &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(socket)}
	for {
		err := unix.Connect(fd, address)
		if err == nil {
			return os.NewFile(uintptr(fd), "attach listener"), nil
		}
		// EAGAIN: the listener's queue, which takes five, is full (unix(7), LinuxAttachListener::init).
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			err = pause(ctx)
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			err = errNoListener // left by a process that had this pid before
		}
		if err != nil {
			closeQuietly(fd)
			return nil, err
		}
	}
}

// pause waits until it is time to look again. If ctx ends first, the error is its cause.
func pause(ctx context.Context) error {
	if clock.Sleep(ctx, attachPoll) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// startListener makes the JVM open its socket: it creates a file .attach_pid<pid> that belongs to the JVM's user, and
// sends SIGQUIT. On the signal the JVM looks for that file, the trigger (AttachListener::is_init_trigger). Without
// it, or with the socket open already, the JVM would print a thread dump, so only the owner of the trigger may send
// the signal.
func (vm *VM) startListener(ctx context.Context, t *tree) (*os.File, error) {
	process, err := vm.readyForQuit(ctx)
	if err != nil {
		return nil, err
	}
	defer process.close()
	trigger, conn, err := vm.ownTrigger(ctx, t)
	if err != nil || conn != nil {
		return conn, err
	}
	defer func() { _ = t.as.do(trigger.remove) }()
	// Another process may have made it listen, and removed its trigger, just before.
	if conn, err = t.dial(ctx, vm.NSPid); !errors.Is(err, errNoListener) {
		return conn, err
	}
	if err := process.quit(); err != nil {
		return nil, err
	}
	conn, err = vm.awaitListener(ctx, t)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w; it has been sent SIGQUIT, for which it may print a thread dump when it goes on", err)
	}
	return conn, err
}

func (vm *VM) awaitListener(ctx context.Context, t *tree) (*os.File, error) {
	for {
		conn, err := t.dial(ctx, vm.NSPid)
		if !errors.Is(err, errNoListener) {
			return conn, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
		if err := vm.check(); err != nil {
			return nil, err
		}
	}
}

// triggerPatience is how long to wait for another tool to remove its trigger. A tool that works has its answer within
// some 10 ms; a trigger that is still there after triggerPatience counts as a leftover and is used.
const triggerPatience = 2 * time.Second

// ownTrigger returns the trigger, or the connection if another process makes the JVM listen meanwhile.
func (vm *VM) ownTrigger(ctx context.Context, t *tree) (*trigger, *os.File, error) {
	end := time.Now().Add(triggerPatience)
	for {
		trigger, err := t.placeTrigger(vm.NSPid, time.Now().After(end))
		if err == nil {
			return trigger, nil, nil
		}
		if !errors.Is(err, errOthersTrigger) {
			return nil, nil, vm.noTrigger(err)
		}
		conn, err := t.dial(ctx, vm.NSPid)
		if !errors.Is(err, errNoListener) {
			return nil, conn, err
		}
		if err := pause(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// process is a process that can be sent a signal without hitting another one that has reused its pid.
type process struct {
	pid, fd int // fd is -1 before Linux 5.3, which brought pidfd_open
}

func (p process) quit() error {
	if p.fd < 0 {
		return unix.Kill(p.pid, unix.SIGQUIT)
	}
	return unix.PidfdSendSignal(p.fd, unix.SIGQUIT, nil, 0)
}

func (p process) close() {
	if p.fd >= 0 {
		closeQuietly(p.fd)
	}
}

// startupPatience is how long to wait for a JVM that has no handler for SIGQUIT yet. HotSpot installs it some 50 ms
// after its library is mapped, later under a CPU quota.
const startupPatience = 3 * time.Second

// readyForQuit makes sure that SIGQUIT has a handler, since without one it would end the process. While the JVM is
// still starting, it waits for the handler.
func (vm *VM) readyForQuit(ctx context.Context) (process, error) {
	p := process{vm.PID, -1}
	if fd, err := unix.PidfdOpen(vm.PID, 0); err == nil {
		p.fd = fd
	}
	end := time.Now().Add(startupPatience)
	for {
		now := *vm
		err := now.readStatus()
		now.Frozen = now.isFrozen()
		if err == nil {
			// After the read, so that the status is that of the process that was inspected.
			err = vm.check()
		}
		if err == nil {
			err = now.mayQuit(time.Now().Before(end))
		}
		if err == nil {
			return p, nil
		}
		if errors.Is(err, errWait) {
			err = pause(ctx)
		}
		if err != nil {
			p.close()
			return process{}, vm.unreadable(err)
		}
	}
}

var errWait = errors.New("wait")

// mayQuit returns nil if SIGQUIT may be sent now, errWait if it is worth waiting, or why it may not be sent.
func (vm *VM) mayQuit(patient bool) error {
	if r := vm.halted(); r != nil {
		return r
	}
	switch {
	case vm.CatchesQuit:
		return nil
	// -Xrs leaves SIGQUIT alone, and the JVM listens from the start instead (AttachListener::init_at_startup).
	case vm.Options.isTrue("ReduceSignalUsage") && vm.age() > startupPatience:
		return vm.refuse(NoSignal, "the JVM was started with -Xrs and its attach socket /tmp/.java_pid"+strconv.Itoa(
			vm.NSPid)+
			" is gone, perhaps by a clean-up of /tmp: there is no way left to make it open another", "restart it")
	case patient:
		return errWait
	case vm.age() < youngest:
		return vm.refuse(Starting, "the JVM only starts: it does not yet handle SIGQUIT, which is how it is asked "+
			"to listen",
			"try again when it has started")
	}
	return vm.refuse(NoSignal, "the JVM has no handler for SIGQUIT, so the signal by which it is asked to listen "+
		"would end it",
		"restart it without what takes that signal from it, such as -Xrs")
}

func (vm *VM) noTrigger(err error) error {
	if errors.Is(err, errSwitch) {
		return vm.explain(err, "attach")
	}
	r := vm.refuse(NoPlace, "the file that makes the JVM listen could be put neither into its working directory "+
		"nor into "+
		"its /tmp: "+strings.ReplaceAll(err.Error(), "\n", ", "), "give the target a /tmp it can write to")
	r.Err = err
	return r
}
