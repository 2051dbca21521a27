package waits

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
)

// measured is the paragraph of all these manuals on how the waits are measured.
const measured = `

Measured: the threads' states and system calls, read from /proc some ten to five hundred times in the window, so that a
wait which began before it and does not end counts in full. The kernel counts CPU time and waits for a CPU; the rest of
a thread's time is divided by what the looks saw. Threads of one name in processes of one program are one pool. The
share is of the time in which the pool has work: a thread that waits for a request, a message or a timer has none.`

// isWrite reports whether a wait is for a pipe to take more, not for it to give something.
func isWrite(p ledger.Place) bool { return strings.Contains(p.Call, "write") || p.Call == "splice" }

//nolint:funlen // a table
func rows() []row {
	return []row{
		{
			name: "target-stopped", stage: check.Limits, blocks: true, event: true,
			doc: "The target is stopped\n\n" +
				"A process that a signal stopped (SIGSTOP, Ctrl-Z, a job in the background that\n" +
				"reads the terminal) or that a debugger holds runs nothing until it is let go." + measured +
				"\nFix: let it go on. Disproof: State in /proc/PID/status is R or S.",
			url: "https://man7.org/linux/man-pages/man7/signal.7.html",
			is:  isOneOf(ledger.Stopped, ledger.Traced),
			what: func(p ledger.Place) string {
				if p.Part == ledger.Traced {
					return "being held by a debugger"
				}
				return "being stopped by a signal"
			},
			remedies: func(p ledger.Place) []check.Remedy {
				if p.Part == ledger.Traced {
					return []check.Remedy{{
						Action: "Detach the debugger (TracerPid in /proc/PID/status), or let the program go on in it.",
						Risk:   "none", Effect: "time stopped falls to 0",
					}}
				}
				return []check.Remedy{{
					Action: "Find out who stopped it, and send it SIGCONT.", Risk: "whoever stopped it had a reason",
					Effect: "time stopped falls to 0",
				}}
			},
			placebos: []string{"More CPUs, threads or memory: nothing of it runs."},
			disproof: func(pool *ledger.Pool, _ ledger.Place) string {
				return "State in /proc/" + cmp.Or(pids(pool), "PID") + "/status is not T (stopped) or t (tracing stop)."
			},
		},
		{
			name: "dns-slow", stage: check.Path, blocks: true, inGo: hotcode.ForName, asks: true,
			doc: "Threads wait for a name server\n\n" +
				"A name is looked up before each new connection where nothing keeps the answer. A server\n" +
				"in resolv.conf that does not answer costs 5 s for each name before the next is asked." + measured +
				"\nFix: repair or remove the server; keep answers (a local cache, connections that stay open). " +
				"Won't help: more\n" +
				"threads. Disproof: dig @SERVER NAME answers at once.",
			url:  "https://man7.org/linux/man-pages/man5/resolv.conf.5.html",
			is:   ledger.Place.DNS,
			what: func(p ledger.Place) string { return "waiting for " + nameServer(p) },
			remedies: func(p ledger.Place) []check.Remedy {
				return []check.Remedy{{
					Action: "See whether " + nameServer(p) + " answers; take it out of /etc/resolv.conf, or " +
						"wherever the program has it from, or put one first that does.",
					Risk:   "another server may not know internal names",
					Effect: "time waited for names falls to that of the answer",
				}, {
					Action: "Look names up less: keep connections open, or cache answers on this host.",
					Risk:   "a changed address is seen later", Effect: "one look-up a TTL instead of one a request",
				}}
			},
			placebos: []string{"More threads: they wait for the same server."},
			disproof: func(_ *ledger.Pool, p ledger.Place) string {
				return dig(p.On) + " for a name that the program uses answers within milliseconds."
			},
		},
		{
			name: "slow-reader", stage: check.Connections, ends: true,
			doc: "Threads wait because nobody reads what they write\n\n" +
				"A pipe holds 64 KiB and a socket what its buffers and the peer's window allow. When the reader is\n" +
				"slow or does not read, or the network to it is full, the writer waits in write or send: a log\n" +
				"nobody drains, a client that stops reading, a link with a traffic shaper. The socket says which\n" +
				"side it is: rwnd_limited in ss -tin is time in which the reader had no room." + measured +
				"\nFix: make the reader read, widen the path, or write without waiting and drop what is not " +
				"taken. Won't help:\na larger buffer, which only fills later. " +
				"Disproof: the reader takes data all the time.",
			url: "https://man7.org/linux/man-pages/man7/pipe.7.html",
			is: func(p ledger.Place) bool {
				return p.Part == ledger.Room || p.Part == ledger.Pipe && isWrite(p)
			},
			what: func(p ledger.Place) string {
				if p.Part == ledger.Pipe {
					return "waiting in " + p.Call + " on a pipe that " + cmp.Or(p.On, "its reader") + " does not empty"
				}
				if port, ok := strings.CutPrefix(p.On, ":"); ok {
					return "waiting in " + p.Call + " for room: clients of port " + port +
						", or the network to them, take no more"
				}
				if local(p) {
					return "waiting in " + p.Call + " for room: " + cmp.Or(p.On, "the peer") + " does not read"
				}
				return "waiting in " + p.Call + " for room: " + p.On + ", or the network to it, takes no more"
			},
			remedies: func(p ledger.Place) []check.Remedy {
				return []check.Remedy{takeMore(p), {
					Action: "Write through a buffer that drops or refuses when it is full, so that work does not " +
						"wait for the reader.",
					Risk: "what is dropped is lost", Effect: "time waited for room falls to 0",
				}}
			},
			placebos: []string{"A larger pipe or socket buffer: it fills too, later."},
			disproof: func(_ *ledger.Pool, p ledger.Place) string {
				text := "the reader, " + cmp.Or(p.On, "at the other end") + ", is in read all the time"
				if local(p) {
					return text + "."
				}
				return text + ", and the network to it is not full."
			},
		},
		{
			name: "blocked-on-child", stage: check.Runtime, ofJobs: true,
			doc: "Threads wait for a child process\n\n" +
				"wait4 and waitid return when a child ends. A program that starts another for each piece of " +
				"work, and\n" +
				"waits, takes as long as that one." + measured +
				"\nA process that waits for a child over the whole window is a supervisor: it is idle.\n" +
				"\nFix: see what the child does; keep it alive and talk to it, or do the work in the process. " +
				"Disproof: the\n" +
				"child is the service, and the waiting process only watches over it.",
			url:  "https://man7.org/linux/man-pages/man2/wait.2.html",
			is:   isOneOf(ledger.Child),
			more: ofChildren, facts: []check.Fact{evidence.ChildrenWait},
			what: func(p ledger.Place) string {
				return "waiting for the end or the output of " + cmp.Or(p.On, "a child process")
			},
			remedies: func(p ledger.Place) []check.Remedy {
				return []check.Remedy{{
					Action: "Find out what it does with the time: " +
						cmp.Or(p.On, "a child that ends too soon to be named") + ".",
					Risk: "none", Effect: "shows what the time is used for",
				}}
			},
			placebos: []string{"More threads in the waiting process: each waits for a child of its own."},
			disproof: func(*ledger.Pool, ledger.Place) string {
				return "the process is a supervisor, whose work is to wait."
			},
		},
		{
			name: "lock-held", stage: check.Runtime, ends: true, contended: true,
			doc: "Threads wait for a lock that another thread holds\n\n" +
				"A mutex of the C library says which thread holds it. When the threads of a pool wait for one " +
				"lock, they\n" +
				"together do no more than one of them would." + measured +
				"Threads that each wait for a lock of their own are kept in reserve, which is no fault. It is a\n" +
				"warning where a thread waits at any moment, on average, except in a pool whose threads take turns\n" +
				"at waiting for clients.\n" +
				"\nFix: hold it for less, or split what it guards. Won't help: more threads. Disproof: the holder is " +
				"not the same\n" +
				"code each time, and waits are short.",
			url:  "https://man7.org/linux/man-pages/man2/futex.2.html",
			is:   isOneOf(ledger.Lock),
			what: func(p ledger.Place) string { return "waiting for the lock " + p.On },
			more: ofHolders,
			remedies: func(ledger.Place) []check.Remedy {
				return []check.Remedy{{
					Action: "See what the holder does while it has the lock (-v, or gdb -p), and do it outside.",
					Risk:   "what the lock guards must stay guarded",
					Effect: "time waited for the lock falls with the time it is held",
				}}
			},
			placebos: []string{"More threads: they wait for the same lock."},
			disproof: func(*ledger.Pool, ledger.Place) string { return "another second finds the threads elsewhere." },
		},
		{
			name: "file-lock-wait", stage: check.Runtime, contended: true,
			doc: "Threads wait for a lock on a file\n\n" +
				"flock and fcntl wait until another process gives the lock back. /proc/locks, read a few times a\n" +
				"second, names who holds it most; where it names nobody, the descriptors of all processes do." +
				measured +
				"It is a warning where threads take turns. Those that stand there all the time, beside others of\n" +
				"the pool that do not, wait to take over, and are a fact.\n" +
				"\nFix: find the holder in /proc/locks, and hold it for less. Disproof: /proc/locks shows no waiter.",
			url:  "https://man7.org/linux/man-pages/man2/flock.2.html",
			is:   isOneOf(ledger.FileLock),
			what: func(p ledger.Place) string { return "waiting for a lock on " + cmp.Or(p.On, "a file") },
			remedies: func(p ledger.Place) []check.Remedy {
				if file, holder, known := strings.Cut(p.On, " held by "); known {
					return []check.Remedy{{
						Action: "Find out what " + holder + " does while it holds the lock on " + file +
							", and have it hold it for less (/proc/locks lists it).",
						Risk: "none", Effect: "time waited for the file falls with the time it is locked",
					}}
				}
				return []check.Remedy{{
					Action: "Find the holder (/proc/locks; the waiters are the lines with ->) and hold the lock for " +
						"less.",
					Risk: "none", Effect: "time waited for the file falls with the time it is locked",
				}}
			},
			placebos: []string{"A faster disk: nothing is read or written meanwhile."},
			disproof: func(*ledger.Pool, ledger.Place) string { return "/proc/locks shows nobody that waits." },
		},
		{
			name: "io-bound-threads", stage: check.Kernel,
			doc: "Threads wait for files\n\n" +
				"Reads that are not in memory, and writes that are to be on the disk, take the device's time." +
				measured +
				"Where none of it ends in the window, the file system or the device does not answer.\n" +
				"\nFix: fewer and larger reads and writes, what is read often in memory, one sync for many records. " +
				"Disproof:\n" +
				"the device's latency is that of its data sheet and the reads are few.",
			url: "https://man7.org/linux/man-pages/man2/read.2.html",
			is:  isOneOf(ledger.Disk, ledger.File, ledger.Memory),
			what: func(p ledger.Place) string {
				what := "waiting for " + cmp.Or(p.On, "the disk") + " in " + cmp.Or(p.Call, "a page fault")
				if p.Still > 0 {
					what += ", which does not end"
				}
				return what
			},
			remedies: func(p ledger.Place) []check.Remedy {
				if p.Still > 0 {
					return []check.Remedy{{
						Action: "Find out why it does not answer: dmesg for the device, fsfreeze, the server of a " +
							"network file system; /proc/PID/stack of such a thread says where in the kernel it stands.",
						Risk: "none", Effect: "the threads go on",
					}}
				}
				return []check.Remedy{{
					Action: "Read and write more at once, keep what is read often in memory, sync once for many " +
						"records.",
					Risk:   "what was not synced is lost in a crash",
					Effect: "waits a second fall, and with them the time",
				}}
			},
			placebos: []string{"More CPUs: the threads do not wait for one."},
			disproof: func(*ledger.Pool, ledger.Place) string {
				return "iostat -x shows an idle device, and strace -c -p PID other calls."
			},
		},
	}
}

// dig returns the command that asks a name server, given as ip:port, or empty if it is not known.
func dig(server string) string {
	if at, err := netip.ParseAddrPort(server); err == nil && at.Port() != 53 {
		return fmt.Sprintf("dig -p %d @%s", at.Port(), at.Addr())
	}
	return "dig @" + cmp.Or(strings.TrimSuffix(server, ":53"), "SERVER")
}

// nameServer names the name server that is asked, if it is known.
func nameServer(p ledger.Place) string {
	if p.On == "" {
		return "a name server of /etc/resolv.conf"
	}
	return "the name server " + p.On
}

// takeMore is what to do about a reader that takes no more: of a pipe nobody else can be in the way.
func takeMore(p ledger.Place) check.Remedy {
	r := check.Remedy{
		Action: "Find out why " + cmp.Or(p.On, "the reader") + " does not read.",
		Risk:   "none", Effect: "time waited for room falls to 0",
	}
	if local(p) {
		return r
	}
	filter := "dst " + p.On
	if port, ok := strings.CutPrefix(p.On, ":"); ok {
		filter = "sport = :" + port
	}
	r.Action = "Look at these sockets. With rwnd_limited near 100 % the reader does not read: find out why. Else the " +
		"network takes no more: look for a shaper (tc -s qdisc), loss, or a full link."
	r.Command = check.Commandf("ss -tin %s", filter)
	return r
}

// local reports whether no network is between the writer and the reader: a pipe, a socket of AF_UNIX, loopback, or a
// reader that is not known.
func local(p ledger.Place) bool {
	return p.Part == ledger.Pipe || p.On == "" || strings.HasPrefix(p.On, "unix:") ||
		evidence.IsLoopback(evidence.HostOf(p.On))
}
