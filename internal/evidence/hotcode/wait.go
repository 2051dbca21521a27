package hotcode

import (
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Wait is what a thread waits for.
type Wait string

// The waits. Idle is a thread without work: a worker at its queue, an event loop at its selector, a server at accept.
const (
	NotWaiting Wait = "running"
	Idle       Wait = "idle"
	ForPool    Wait = "a pooled object" // a connection, a client, a permit of a Semaphore
	ForPermit  Wait = "a rate limiter"
	ForQueue   Wait = "room in a queue"
	ForItem    Wait = "an item of a queue" // of a thread that serves a request; others at a queue are idle
	ForNetwork Wait = "the network"
	ForLock    Wait = "a lock"
	ForFuture  Wait = "another thread's result"
	ForThreads Wait = "other threads to get there" // at a latch, a barrier, a join
	ForChild   Wait = "a child process"
	ForFile    Wait = "a file"
	ForSleep   Wait = "a sleep"
	ForWakeUp  Wait = "a wake-up"   // parked or in Object.wait, for what no row knows
	ForNative  Wait = "native code" // asleep in a call of machine code that no row knows
)

// A waitRow are calls in which threads wait for one thing.
type waitRow struct {
	wait  Wait
	calls []Pattern
}

// waitCalls are the calls of the JDK that say what is waited for. What they park with (Unsafe.park, LockSupport, the
// queued synchronizer and its conditions, Object.wait) says nothing, and is in no row.
var waitCalls = []waitRow{
	{ForPool, ParsePatterns("java.util.concurrent.Semaphore.acquire*", "java.util.concurrent.Semaphore.tryAcquire")},
	{ForQueue, ParsePatterns(
		"java.util.concurrent.*Queue.put", "java.util.concurrent.*Queue.offer", "java.util.concurrent.*Deque.put*",
		"java.util.concurrent.*Deque.offer*", "java.util.concurrent.LinkedTransferQueue.transfer",
		"java.util.concurrent.LinkedTransferQueue.tryTransfer", "java.util.concurrent.SubmissionPublisher.*ubmit",
	)},
	{ForItem, ParsePatterns(
		"java.util.concurrent.*Queue.take", "java.util.concurrent.*Queue.poll", "java.util.concurrent.*Deque.take*",
		"java.util.concurrent.*Deque.poll*",
	)},
	{ForNetwork, ParsePatterns(
		"java.net.SocketInputStream.socketRead*", "java.net.SocketInputStream.read",
		"java.net.Socket$SocketInputStream.read",
		"sun.nio.ch.NioSocketImpl.*", "sun.nio.ch.SocketDispatcher.read*", "sun.nio.ch.SocketChannelImpl.*ead",
		"sun.nio.ch.Net.poll*",
		"sun.nio.ch.Net.connect*", "java.net.PlainSocketImpl.socketConnect", "java.net.Inet*AddressImpl.lookup*",
		"java.net.SocketOutputStream.socketWrite*", "sun.nio.ch.SocketDispatcher.write*",
	)},
	{ForLock, ParsePatterns(
		"ObjectMonitor::enter*", "ObjectMonitor::Enter*", "ObjectMonitor::spin_enter*", "ObjectMonitor::ReenterI",
		"ObjectMonitor::reenter*", "ObjectSynchronizer::enter*", "*monitor_enter*", "InterpreterRuntime::monitorenter",
		"*complete_monitor_locking*", "java.util.concurrent.locks.ReentrantLock*",
		"java.util.concurrent.locks.ReentrantReadWriteLock*", "java.util.concurrent.locks.StampedLock*",
	)},
	{ForFuture, ParsePatterns(
		"java.util.concurrent.CompletableFuture.get", "java.util.concurrent.CompletableFuture.join",
		"java.util.concurrent.CompletableFuture.*Get",
		"java.util.concurrent.FutureTask.get", "java.util.concurrent.FutureTask.awaitDone",
		"java.util.concurrent.ForkJoinTask.get*", "java.util.concurrent.ForkJoinTask.join",
		"java.util.concurrent.ForkJoinTask.*Join", "java.util.concurrent.ForkJoinTask.*waitDone",
		"java.util.concurrent.ForkJoinTask.*Wait", "java.util.concurrent.ForkJoinPool.awaitJoin",
		"java.util.concurrent.ForkJoinPool.helpJoin",
	)},
	{ForThreads, ParsePatterns(
		"java.util.concurrent.CountDownLatch.await", "java.util.concurrent.CyclicBarrier.*wait",
		"java.util.concurrent.Phaser.*wait*", "java.util.concurrent.Exchanger.exchange",
		"java.util.concurrent.*.awaitTermination", "java.util.concurrent.ForkJoinPool.awaitQuiescence",
		"java.lang.Thread.join*", "java.util.concurrent.StructuredTaskScope*.join*",
		"jdk.internal.misc.ThreadFlock.await*",
	)},
	{ForChild, ParsePatterns(
		"java.lang.Process.waitFor*", "java.lang.ProcessImpl.waitFor*", "java.lang.UNIXProcess.waitFor*",
	)},
	{ForSleep, ParsePatterns(
		"java.lang.Thread.sleep*", "java.lang.VirtualThread.sleep*", "java.util.concurrent.TimeUnit.sleep",
	)},
	{ForFile, ParsePatterns(
		"java.io.FileInputStream.read*", "java.io.FileOutputStream.write*", "java.io.RandomAccessFile.*",
		"sun.nio.ch.FileChannelImpl.*",
		"sun.nio.ch.FileDispatcherImpl.*", "sun.nio.ch.UnixFileDispatcherImpl.*", "java.io.FileDescriptor.sync*",
		"sun.nio.fs.*",
	)},
}

// waitCallers are calls whose name says more than that of the JDK's call in them: a lease of a pool takes from a queue,
// a rate limiter sleeps, and so does a worker that has no work. They count where no code of the application is between
// them and the call.
var waitCallers = []waitRow{
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
		"reactor.pool.*.acquire",
	)},
	{ForPermit, ParsePatterns(
		"com.google.common.util.concurrent.RateLimiter.acquire*", "io.github.resilience4j.ratelimiter.*",
		"io.github.bucket4j.*", "dev.failsafe.*RateLimiter*",
	)},
	{ForQueue, ParsePatterns(
		"com.lmax.disruptor.*Sequencer.next", "com.lmax.disruptor.RingBuffer.next", "org.jctools.queues.*.put",
		"org.apache.kafka.clients.producer.internals.BufferPool.allocate",
	)},
	{Idle, ParsePatterns(
		// Worker loops at their queues.
		"java.util.concurrent.ThreadPoolExecutor.getTask", "org.apache.tomcat.util.threads.ThreadPoolExecutor.getTask",
		"java.util.concurrent.ForkJoinPool.awaitWork", "io.netty.util.concurrent.*.takeTask",
		"org.eclipse.jetty.util.thread.QueuedThreadPool*dle*", "org.eclipse.jetty.util.thread.ReservedThreadExecutor*",
		"com.lmax.disruptor.*.waitFor",
		// Event loops at their selectors, servers at accept.
		"sun.nio.ch.*Selector*.*elect", "sun.nio.ch.EPoll.wait", "sun.nio.ch.EPollArrayWrapper.epollWait",
		"sun.nio.ch.KQueue.poll", "io.netty.channel.epoll.*epollWait*", "io.netty.channel.epoll.*Wait",
		"io.netty.channel.kqueue.*Wait", "io.netty.channel.uring.*Wait*",
		"java.net.ServerSocket.accept", "java.net.ServerSocket.implAccept", "sun.nio.ch.*.accept*",
		"org.apache.tomcat.util.net.*.serverSocketAccept",
		// The runtime's own.
		"java.lang.ref.ReferenceQueue.*", "java.lang.ref.NativeReferenceQueue.*",
		"java.lang.ref.Reference.waitForReferencePendingList*", "java.lang.ProcessHandleImpl*",
	)},
	{ForNetwork, ParsePatterns(
		"jdk.internal.net.http.HttpClientImpl.send", "io.grpc.stub.ClientCalls*",
		"io.lettuce.core.protocol.AsyncCommand.await", "io.lettuce.core.internal.Futures.await*",
		"org.redisson.command.CommandAsyncService.get*",
		"org.apache.kafka.clients.producer.internals.FutureRecordMetadata.get",
		"com.rabbitmq.utility.BlockingCell.*et*",
	)},
	{ForFuture, ParsePatterns(
		"java.util.concurrent.ExecutorCompletionService.take", "java.util.concurrent.ExecutorCompletionService.poll",
		"reactor.core.publisher.BlockingSingleSubscriber.blockingGet",
		"reactor.core.publisher.BlockingMonoSubscriber.blockingGet", "io.netty.util.concurrent.DefaultPromise.await*",
		"com.google.common.util.concurrent.AbstractFuture*.*et", "kotlinx.coroutines.BlockingCoroutine.joinBlocking",
		"scala.concurrent.impl.Promise$*.tryAwait*",
	)},
}

// acquireFrames are how a thread waits for a lock that is nobody's but the program's own.
var acquireFrames = ParsePatterns(
	"java.util.concurrent.locks.AbstractQueued*Synchronizer.acquire*",
	"java.util.concurrent.locks.AbstractQueued*Synchronizer.doAcquire*",
	"java.util.concurrent.locks.AbstractQueued*Synchronizer.tryAcquire*Nanos",
)

// parkFrames are how a thread waits at all, for stacks whose state the profiler did not tell.
var parkFrames = ParsePatterns("*.Unsafe.park", "java.lang.Object.wait*",
	"java.util.concurrent.locks.LockSupport.park*")

// eventLoopFrames are the run loops of event loops.
var eventLoopFrames = ParsePatterns(
	"io.netty.channel.nio.NioEventLoop.run", "io.netty.channel.epoll.EpollEventLoop.run",
	"io.netty.channel.kqueue.KQueueEventLoop.run",
	"io.netty.channel.SingleThreadIoEventLoop.run", "org.xnio.nio.WorkerThread.run",
	"org.glassfish.grizzly.nio.SelectorRunner.run",
)

// requestFrames are of servers that have a request in hand. None of them is in the stack of a thread without one.
var requestFrames = ParsePatterns(
	"javax.servlet.*", "jakarta.servlet.*", "org.apache.coyote.*", "org.apache.catalina.core.*Valve.invoke",
	"org.apache.tomcat.util.net.SocketProcessorBase.run", "org.eclipse.jetty.server.*handle*",
	"org.eclipse.jetty.server.*Http*.on*", "io.undertow.server.Connectors.*", "io.undertow.server.*.handleRequest",
	"sun.net.httpserver.ServerImpl$Exchange.*", "com.sun.net.httpserver.*", "org.springframework.web.*",
	"org.glassfish.jersey.server.*", "org.glassfish.grizzly.http*", "io.netty.channel.*HandlerContext.*",
	"io.grpc.internal.ServerImpl*", "io.grpc.stub.ServerCalls*", "io.helidon.webserver.*", "io.javalin.*",
	"org.jboss.resteasy.core.*", "io.micronaut.http.server.*", "akka.http.*", "play.core.server.*",
)

// taskFrames are of executors that have a task in hand; a worker that waits for one has them, too.
var taskFrames = ParsePatterns(
	"java.util.concurrent.ThreadPoolExecutor.runWorker", "java.util.concurrent.ThreadPoolExecutor$Worker.run",
	"org.apache.tomcat.util.threads.ThreadPoolExecutor.runWorker",
	"org.apache.tomcat.util.threads.ThreadPoolExecutor$Worker.run", "java.util.concurrent.ForkJoinWorkerThread.run",
	"java.util.concurrent.ForkJoinTask.doExec", "java.util.concurrent.ThreadPerTaskExecutor*",
	"org.eclipse.jetty.util.thread.QueuedThreadPool*unJob", "org.jboss.threads.*.run",
	"io.netty.util.concurrent.SingleThreadEventExecutor.*", "org.quartz.core.JobRunShell.run",
)

// Waits tells of samples of one wall-clock profile what their threads wait for.
type Waits struct {
	p              *stacks.Profile
	calls, callers []Wait     // by frame; empty for one that is in no row
	own            stacks.Set // code of the application: what calls it says nothing of the wait
	mains          stacks.Set

	acquires, parks, loops, requests, tasks stacks.Set
}

// WaitsOf prepares for a profile of a process whose code is told apart by owners.
func WaitsOf(p *stacks.Profile, owners Owners) *Waits {
	w := &Waits{p: p, calls: waitOfFrames(p, waitCalls), callers: waitOfFrames(p, waitCallers)}
	for i, f := range p.Frames {
		w.own = append(w.own, f.Managed() && w.callers[i] == "" && owners.Of(f) == Application)
		w.mains = append(w.mains, f.Managed() && strings.HasSuffix(f.Name, ".main"))
	}
	w.acquires, _ = Frames(p, acquireFrames)
	w.parks, _ = Frames(p, parkFrames)
	w.loops, _ = Frames(p, eventLoopFrames)
	w.requests, _ = Frames(p, requestFrames)
	w.tasks, _ = Frames(p, taskFrames)
	return w
}

// waitOfFrames gives the wait of each frame of a profile: that of the first row that has it.
func waitOfFrames(p *stacks.Profile, rows []waitRow) []Wait {
	out := make([]Wait, len(p.Frames))
	for _, row := range rows {
		set, _ := Frames(p, row.calls)
		for i, in := range set {
			if in && out[i] == "" {
				out[i] = row.wait
			}
		}
	}
	return out
}

// Of tells what the thread of a sample waits for, and the place in its stack of the call that says so, 0 when none
// does. The innermost calls decide, up to the first that is the application's: what called that one, such as the
// executor at the bottom of each worker's stack, waits for nothing. A thread that runs is not waiting, whatever its
// frames are called: one that parses what it reads has read() in its stack all the time.
func (w *Waits) Of(s stacks.Sample) (wait Wait, at int) {
	if s.State == stacks.Running {
		return NotWaiting, 0
	}
	end := s.Innermost(w.own)
	if end < 0 {
		end = len(s.Stack)
	}
	wait, at = w.called(s, end)
	if wait == "" {
		wait, at = w.parked(s, end)
	}
	if w.hasNoWork(s, wait, end) {
		wait = Idle
	}
	if !w.stands(s, wait) {
		return NotWaiting, 0
	}
	return wait, at
}

// called gives what the innermost calls up to end wait for by their names, nothing where no row knows one.
func (w *Waits) called(s stacks.Sample, end int) (wait Wait, at int) {
	for i, f := range s.Stack[:end] {
		if wait == "" && w.calls[f] != "" {
			wait, at = w.calls[f], i
		}
		if caller := w.callers[f]; caller != "" {
			if wait == "" || yields(wait, caller) {
				return caller, i
			}
			return wait, at
		}
	}
	return wait, at
}

// yields tells the calls whose callers may say more. Who waits for a lock, a file or an answer does so, whoever calls.
func yields(call, caller Wait) bool {
	switch call {
	case ForItem, ForSleep, ForFuture, ForThreads, ForPool:
		return true
	case ForNetwork: // accept polls a socket, too
		return caller == Idle
	}
	return false
}

// parked gives what a thread waits for whose calls no row knows.
func (w *Waits) parked(s stacks.Sample, end int) (wait Wait, at int) {
	inner := stacks.Sample{Stack: s.Stack[:end]}
	if i := inner.Outermost(w.acquires); i >= 0 {
		return ForLock, i
	}
	if i := inner.Outermost(w.parks); i >= 0 {
		return ForWakeUp, i
	}
	switch {
	case !w.managed(s):
		return Idle, 0 // threads of the runtime itself
	case s.State == stacks.Sleeping:
		return ForNative, 0
	}
	return NotWaiting, 0
}

// hasNoWork tells threads that wait for work to come, or for the end of the others: a consumer at its queue, a
// library's housekeeper without any code of the application, a main method that has started the rest. One with a
// request in hand has work.
func (w *Waits) hasNoWork(s stacks.Sample, wait Wait, end int) bool {
	if request, _ := w.Serves(s); request {
		return false
	}
	switch wait {
	case ForItem:
		return true
	case ForThreads, ForWakeUp:
		return end == len(s.Stack) || w.isMain(s)
	case ForSleep:
		return end == len(s.Stack)
	}
	return false
}

// isMain tells the threads that a main method began.
func (w *Waits) isMain(s stacks.Sample) bool {
	for i := len(s.Stack) - 1; i >= 0; i-- {
		if f := s.Stack[i]; w.p.Frames[f].Managed() {
			return w.mains[f]
		}
	}
	return false
}

// Serves tells whether a thread has a request of a server in hand, or else is a worker of an executor. An event loop
// serves requests.
func (w *Waits) Serves(s stacks.Sample) (request, task bool) {
	return s.Innermost(w.requests) >= 0 || w.Loops(s), s.Innermost(w.tasks) >= 0
}

// Loops tells whether a thread is in the run loop of an event loop.
func (w *Waits) Loops(s stacks.Sample) bool { return s.Innermost(w.loops) >= 0 }

// stands keeps an unknown state from being taken for a wait: a queue's or pool's frames are there while it works, too.
func (w *Waits) stands(s stacks.Sample, wait Wait) bool {
	if s.State == stacks.Sleeping || wait == Idle || wait == ForSleep {
		return true
	}
	return s.Innermost(w.parks) >= 0 || len(s.Stack) > 0 && !w.p.Frames[s.Stack[0]].Managed()
}

func (w *Waits) managed(s stacks.Sample) bool {
	for _, f := range s.Stack {
		if w.p.Frames[f].Managed() {
			return true
		}
	}
	return false
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
	waits := WaitsOf(p, owners)
	sums := stacks.Group(p, func(s stacks.Sample) site {
		wait, at := waits.Of(s)
		if wait == Idle || wait == NotWaiting {
			return site{wait: wait}
		}
		f := p.Frames[s.Stack[owners.Nearest(p, s.Stack, at, nil).At]]
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
