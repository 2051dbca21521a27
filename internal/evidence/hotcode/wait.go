package hotcode

import (
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Wait is what a thread waits for.
type Wait string

// The waits. Idle is a thread without work: a worker at its queue, an event loop at its selector, a server at accept.
const (
	NotWaiting Wait = "running"
	Idle       Wait = "idle"
	ForPool    Wait = "a pooled object" // a connection, a client, a permit
	ForQueue   Wait = "room in a queue"
	ForNetwork Wait = "the network"
	ForLock    Wait = "a lock"
	ForFuture  Wait = "another thread's result"
	ForFile    Wait = "a file"
	ForSleep   Wait = "a sleep"
	ForWakeUp  Wait = "a wake-up"   // parked or in Object.wait, for what no row of waitFrames knows
	ForNative  Wait = "native code" // asleep in a call of machine code that no row knows
)

// waitFrames tells waits by frames anywhere in the stack. The first row that matches counts: a lease of a pool is a
// parked thread, and so is an idle one.
var waitFrames = []struct {
	wait   Wait
	frames []Pattern
}{
	{ForPool, ParsePatterns(
		"com.zaxxer.hikari.util.ConcurrentBag.borrow", "com.zaxxer.hikari.pool.HikariPool.getConnection",
		"org.apache.commons.pool2.impl.*.borrowObject", "org.apache.commons.pool.impl.*.borrowObject",
		"org.apache.tomcat.jdbc.pool.ConnectionPool.borrowConnection",
		"com.mchange.v2.resourcepool.BasicResourcePool.*checkout*",
		"io.agroal.pool.ConnectionPool.*", "org.apache.http.pool.AbstractConnPool.getPoolEntryBlocking",
		"org.apache.http.impl.conn.PoolingHttpClientConnectionManager.leaseConnection",
		"org.apache.hc.core5.pool.*Pool*.lease",
		"org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManager*.get",
		"redis.clients.jedis.util.Pool.getResource", "oracle.ucp.*.borrowConnection",
		"com.mongodb.internal.connection.*Pool*.get",
		"reactor.pool.*.acquire", "java.util.concurrent.Semaphore.acquire*",
		"java.util.concurrent.Semaphore.tryAcquire",
	)},
	{ForQueue, ParsePatterns(
		"java.util.concurrent.*Queue.put", "java.util.concurrent.*Queue.transfer", "java.util.concurrent.*Deque.put*",
		"java.util.concurrent.ArrayBlockingQueue.offer", "java.util.concurrent.LinkedBlockingQueue.offer",
		"com.lmax.disruptor.*Sequencer.next", "com.lmax.disruptor.RingBuffer.next", "org.jctools.queues.*.put",
	)},
	{Idle, ParsePatterns(
		"java.util.concurrent.ThreadPoolExecutor.getTask", "java.util.concurrent.ForkJoinPool.awaitWork",
		"java.util.concurrent.ForkJoinPool.awaitQuiescence", "java.util.TimerThread.mainLoop", "java.lang.ref.*",
		"java.util.concurrent.*Queue.take", "java.util.concurrent.*Queue.poll", "java.util.concurrent.*Deque.take*",
		"java.util.concurrent.*Deque.poll*", "sun.nio.ch.*Selector*.*elect", "sun.nio.ch.EPoll.wait",
		"sun.nio.ch.EPollArrayWrapper.epollWait",
		"sun.nio.ch.KQueue.poll", "io.netty.channel.epoll.*epollWait*", "io.netty.channel.epoll.*Wait",
		"io.netty.channel.kqueue.*Wait",
		"io.netty.channel.uring.*Wait*", "io.netty.util.concurrent.*.takeTask",
		"io.netty.util.HashedWheelTimer$Worker.waitForNextTick",
		"java.net.ServerSocket.accept", "java.net.ServerSocket.implAccept", "sun.nio.ch.*.accept*",
		"org.apache.tomcat.util.net.*.serverSocketAccept",
		"org.eclipse.jetty.util.thread.QueuedThreadPool.*dle*", "org.eclipse.jetty.util.thread.ReservedThreadExecutor*",
		"java.lang.Thread.join*", "java.util.concurrent.CountDownLatch.await", "jdk.internal.misc.Signal*",
		"sun.misc.Signal*",
		"org.apache.catalina.core.StandardServer.await", "java.lang.ProcessHandleImpl*", "java.lang.Process*.waitFor*",
		"org.apache.catalina.core.ContainerBase$ContainerBackgroundProcessor.run", "com.lmax.disruptor.*.waitFor",
		"org.apache.logging.log4j.core.util.WatchManager*", "org.springframework.boot.web.embedded.*.TomcatWebServer*",
	)},
	{ForNetwork, ParsePatterns(
		"java.net.SocketInputStream.socketRead*", "java.net.SocketInputStream.read",
		"java.net.Socket$SocketInputStream.read",
		"sun.nio.ch.NioSocketImpl.*", "sun.nio.ch.SocketDispatcher.read*", "sun.nio.ch.SocketChannelImpl.*ead",
		"sun.nio.ch.Net.poll*",
		"sun.nio.ch.Net.connect*", "java.net.PlainSocketImpl.socketConnect", "java.net.Inet*AddressImpl.lookup*",
		"jdk.internal.net.http.HttpClientImpl.send",
		"java.net.SocketOutputStream.socketWrite*", "sun.nio.ch.SocketDispatcher.write*",
	)},
	{ForLock, ParsePatterns(
		"ObjectMonitor::enter*", "ObjectSynchronizer::enter*", "*monitor_enter*", "InterpreterRuntime::monitorenter",
		"*complete_monitor_locking*", "java.util.concurrent.locks.ReentrantLock*",
		"java.util.concurrent.locks.ReentrantReadWriteLock*",
		"java.util.concurrent.locks.StampedLock*", "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire*",
		"java.util.concurrent.locks.AbstractQueuedSynchronizer.acquireShared*",
	)},
	{ForFuture, ParsePatterns(
		"java.util.concurrent.CompletableFuture.get", "java.util.concurrent.CompletableFuture.join",
		"java.util.concurrent.CompletableFuture.*Get",
		"java.util.concurrent.FutureTask.*", "java.util.concurrent.ForkJoinTask.*",
		"reactor.core.publisher.BlockingSingleSubscriber.blockingGet",
		"reactor.core.publisher.BlockingMonoSubscriber.blockingGet", "io.netty.util.concurrent.DefaultPromise.await*",
	)},
	{ForSleep, ParsePatterns("java.lang.Thread.sleep*", "java.util.concurrent.TimeUnit.sleep")},
	{ForFile, ParsePatterns(
		"java.io.FileInputStream.read*", "java.io.FileOutputStream.write*", "java.io.RandomAccessFile.*",
		"sun.nio.ch.FileChannelImpl.*",
		"sun.nio.ch.FileDispatcherImpl.*", "sun.nio.ch.UnixFileDispatcherImpl.*", "java.io.FileDescriptor.sync*",
		"sun.nio.fs.*",
	)},
}

// parkFrames are how a thread waits at all, for stacks whose state the profiler did not tell.
var parkFrames = ParsePatterns("*.Unsafe.park", "java.lang.Object.wait*",
	"java.util.concurrent.locks.LockSupport.park*")

// Waits tells of samples of one wall-clock or off-CPU profile what their threads wait for.
type Waits struct {
	p     *stacks.Profile
	rows  []stacks.Set
	parks stacks.Set
}

// WaitsOf prepares for a profile.
func WaitsOf(p *stacks.Profile) *Waits {
	w := &Waits{p: p}
	for _, row := range waitFrames {
		set, _ := Frames(p, row.frames)
		w.rows = append(w.rows, set)
	}
	w.parks, _ = Frames(p, parkFrames)
	return w
}

// Of tells what the thread of a sample waits for. A thread that runs is not waiting, whatever its frames are called:
// one that parses what it reads has read() in its stack all the time.
func (w *Waits) Of(s stacks.Sample) Wait {
	if s.State == stacks.Running {
		return NotWaiting
	}
	for i, set := range w.rows {
		if s.Innermost(set) >= 0 && w.waiting(s, waitFrames[i].wait) {
			return waitFrames[i].wait
		}
	}
	switch {
	case !w.managed(s):
		return Idle // threads of the runtime itself
	case s.Innermost(w.parks) >= 0:
		return ForWakeUp
	case s.State == stacks.Sleeping:
		return ForNative
	}
	return NotWaiting
}

// waiting keeps an unknown state from being taken for a wait: a queue's or pool's frames are there while it works, too.
func (w *Waits) waiting(s stacks.Sample, wait Wait) bool {
	if s.State == stacks.Sleeping || wait == Idle || wait == ForSleep {
		return true
	}
	leaf := w.p.Frames[s.Stack[0]]
	return s.Innermost(w.parks) >= 0 || !leaf.Managed()
}

func (w *Waits) managed(s stacks.Sample) bool {
	for _, f := range s.Stack {
		if w.p.Frames[f].Managed() {
			return true
		}
	}
	return false
}

// At gives the place in the stack of the innermost frame that shows a wait, 0 when none does.
func (w *Waits) At(s stacks.Sample, wait Wait) int {
	for i, row := range waitFrames {
		if row.wait == wait {
			return max(0, s.Innermost(w.rows[i]))
		}
	}
	return 0
}

// WaitTime is how long threads wait for one thing at one place of the code.
type WaitTime struct {
	For     Wait
	Method  string  // the application's method nearest to the wait, else a library's
	Line    int     //
	Threads float64 // that wait so at any moment, on average
}

// WaitTimes gives what threads with work wait for and where, at most n, the most first. Idle threads and those that run
// are left out.
func WaitTimes(p *stacks.Profile, owners Owners, n int) []WaitTime {
	type site struct {
		wait   Wait
		method string
		line   int
	}
	waits := WaitsOf(p)
	sums := stacks.Group(p, func(s stacks.Sample) site {
		wait := waits.Of(s)
		if wait == Idle || wait == NotWaiting {
			return site{wait: wait}
		}
		f := p.Frames[s.Stack[owners.Nearest(p, s.Stack, waits.At(s, wait), nil).At]]
		return site{wait, f.Name, f.Line}
	})
	var out []WaitTime
	for _, g := range sums {
		if g.Key.method != "" && p.Duration > 0 && len(out) < n {
			out = append(out, WaitTime{g.Key.wait, g.Key.method, g.Key.line, float64(g.Value) / float64(p.Duration)})
		}
	}
	return out
}
