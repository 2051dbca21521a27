package hotcode

import (
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// The ends of stacks, as thread dumps of JDK 11 to 25 have them, the innermost call first: the call that parks a
// thread, and who runs the thread.
const (
	park      = "jdk.internal.misc.Unsafe.park java.util.concurrent.locks.LockSupport.park "
	parkNanos = "jdk.internal.misc.Unsafe.park java.util.concurrent.locks.LockSupport.parkNanos "
	aqs       = "java.util.concurrent.locks.AbstractQueuedSynchronizer."
	condition = "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject."
	managed   = "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionNode.block " +
		"java.util.concurrent.ForkJoinPool.unmanagedBlock java.util.concurrent.ForkJoinPool.managedBlock "
	worker = "java.util.concurrent.ThreadPoolExecutor.runWorker java.util.concurrent.ThreadPoolExecutor$Worker.run " +
		"java.lang.Thread.run"
	task = "java.util.concurrent.Executors$RunnableAdapter.call java.util.concurrent.FutureTask.run " + worker
	http = "com.example.Shop.handle com.sun.net.httpserver.Filter$Chain.doFilter " +
		"sun.net.httpserver.AuthFilter.doFilter com.sun.net.httpserver.Filter$Chain.doFilter " +
		"sun.net.httpserver.ServerImpl$Exchange$LinkHandler.handle com.sun.net.httpserver.Filter$Chain.doFilter " +
		"sun.net.httpserver.ServerImpl$Exchange.run " + worker
	tomcat = "com.example.Shop.doGet jakarta.servlet.http.HttpServlet.service " +
		"org.apache.catalina.core.StandardWrapperValve.invoke org.apache.coyote.http11.Http11Processor.service " +
		"org.apache.tomcat.util.net.SocketProcessorBase.run " +
		"org.apache.tomcat.util.threads.ThreadPoolExecutor.runWorker " +
		"org.apache.tomcat.util.threads.ThreadPoolExecutor$Worker.run java.lang.Thread.run"
	common = "java.util.concurrent.ForkJoinTask.doExec java.util.concurrent.ForkJoinPool$WorkQueue.topLevelExec " +
		"java.util.concurrent.ForkJoinPool.scan java.util.concurrent.ForkJoinPool.runWorker " +
		"java.util.concurrent.ForkJoinWorkerThread.run"
	netty = "io.netty.util.concurrent.SingleThreadEventExecutor$4.run io.netty.util.internal.ThreadExecutorMap$2.run " +
		"io.netty.util.concurrent.FastThreadLocalRunnable.run java.lang.Thread.run"
)

// TestInnermost: the innermost calls decide, and the one that says so is named.
func TestInnermost(t *testing.T) {
	for _, tc := range []struct {
		name  string
		stack string
		want  Wait
		says  string // the call; not looked at if empty
	}{
		// What an executor's worker stands in, not its own frames.
		{
			"a task that sleeps, JDK 17", "java.lang.Thread.sleep com.example.Shop.retry " + task,
			ForSleep, "Thread.sleep",
		},
		{
			"a task that sleeps, JDK 21", "java.lang.Thread.sleep0 java.lang.Thread.sleep " +
				"java.util.concurrent.TimeUnit.sleep com.example.Shop.retry " + task,
			ForSleep, "Thread.sleep0",
		},
		{
			"a worker of Kotlin's coroutines without work", "java.util.concurrent.locks.LockSupport.parkNanos " +
				"kotlinx.coroutines.scheduling.CoroutineScheduler$Worker.park " +
				"kotlinx.coroutines.scheduling.CoroutineScheduler$Worker.tryPark " +
				"kotlinx.coroutines.scheduling.CoroutineScheduler$Worker.runWorker " +
				"kotlinx.coroutines.scheduling.CoroutineScheduler$Worker.run", Idle, "",
		},
		{
			"a task that reads, JDK 11", "java.net.SocketInputStream.socketRead0 " +
				"java.net.SocketInputStream.socketRead java.net.SocketInputStream.read " +
				"org.postgresql.core.VisibleBufferedInputStream.readMore com.example.Dao.find " + task,
			ForNetwork, "SocketInputStream.socketRead0",
		},
		{
			"a task that reads, JDK 17", "sun.nio.ch.Net.poll sun.nio.ch.NioSocketImpl.park " +
				"sun.nio.ch.NioSocketImpl.implRead sun.nio.ch.NioSocketImpl.read " +
				"java.net.Socket$SocketInputStream.read com.example.Dao.find " + task,
			ForNetwork, "Net.poll",
		},
		{
			"a task at a ReentrantLock, JDK 11", park + aqs + "parkAndCheckInterrupt " + aqs + "acquireQueued " + aqs +
				"acquire java.util.concurrent.locks.ReentrantLock.lock com.example.Shop.price " + task,
			ForLock, "ReentrantLock.lock",
		},
		{
			"a task at a ReentrantLock, JDK 21", park + aqs + "acquire " + aqs + "acquire " +
				"java.util.concurrent.locks.ReentrantLock$Sync.lock java.util.concurrent.locks.ReentrantLock.lock " +
				"com.example.Shop.price " + task,
			ForLock, "ReentrantLock$Sync.lock",
		},
		{
			"a task at a write lock, JDK 25", park + aqs + "acquire " + aqs + "acquire " +
				"java.util.concurrent.locks.ReentrantReadWriteLock$WriteLock.lock com.example.Shop.price " + task,
			ForLock, "ReentrantReadWriteLock$WriteLock.lock",
		},
		{
			"a lock of the program's own", park + aqs + "acquire " + aqs + "acquire com.example.Mutex.lock " + task,
			ForLock, "",
		},
		{
			"a task that waits for another's result, JDK 11", park + "java.util.concurrent.FutureTask.awaitDone " +
				"java.util.concurrent.FutureTask.get com.example.Shop.merge " + task,
			ForFuture, "FutureTask.awaitDone",
		},
		{
			"a task that joins, JDK 21", park + "java.util.concurrent.CompletableFuture$Signaller.block " +
				"java.util.concurrent.ForkJoinPool.unmanagedBlock java.util.concurrent.ForkJoinPool.managedBlock " +
				"java.util.concurrent.CompletableFuture.waitingGet java.util.concurrent.CompletableFuture.join " +
				"com.example.Shop.merge " + common,
			ForFuture, "CompletableFuture.waitingGet",
		},
		{
			"a task of the common pool that joins, JDK 17", park + "java.util.concurrent.ForkJoinTask.awaitDone " +
				"java.util.concurrent.ForkJoinTask.join com.example.Sum.compute " + common,
			ForFuture, "ForkJoinTask.awaitDone",
		},
		{
			"a task of the common pool that sleeps", "java.lang.Thread.sleep com.example.Sum.compute " + common,
			ForSleep, "",
		},

		// What requests wait for, and what was once mistaken for idle.
		{
			"a latch, JDK 17", park + aqs + "acquire " + aqs + "acquireSharedInterruptibly " +
				"java.util.concurrent.CountDownLatch.await com.example.Shop.all " + http,
			ForThreads, "CountDownLatch.await",
		},
		{
			"a latch, JDK 11", park + aqs + "parkAndCheckInterrupt " + aqs + "doAcquireSharedInterruptibly " + aqs +
				"acquireSharedInterruptibly java.util.concurrent.CountDownLatch.await com.example.Shop.all " + tomcat,
			ForThreads, "CountDownLatch.await",
		},
		{
			"a queue, JDK 21", park + managed + condition + "await java.util.concurrent.LinkedBlockingQueue.take " +
				"com.example.Shop.reply " + http,
			ForItem, "LinkedBlockingQueue.take",
		},
		{
			"a queue with a limit, JDK 11", parkNanos + condition + "awaitNanos " +
				"java.util.concurrent.ArrayBlockingQueue.poll com.example.Shop.reply " + tomcat,
			ForItem, "ArrayBlockingQueue.poll",
		},
		{
			"a join, JDK 11", "java.lang.Object.wait java.lang.Thread.join java.lang.Thread.join " +
				"com.example.Shop.all " + http,
			ForThreads, "Thread.join",
		},
		{
			"a semaphore, JDK 17", park + aqs + "acquire " + aqs + "acquireSharedInterruptibly " +
				"java.util.concurrent.Semaphore.acquire com.example.Shop.limited " + http,
			ForPool, "Semaphore.acquire",
		},
		{
			"a limiter of Guava's", "java.lang.Thread.sleep java.util.concurrent.TimeUnit.sleep " +
				"com.google.common.util.concurrent.Uninterruptibles.sleepUninterruptibly " +
				"com.google.common.util.concurrent.RateLimiter$SleepingStopwatch$1.sleepMicrosUninterruptibly " +
				"com.google.common.util.concurrent.RateLimiter.acquire com.example.Shop.limited " + http,
			ForPermit, "RateLimiter.acquire",
		},
		{
			"a limiter of resilience4j's", parkNanos +
				"io.github.resilience4j.ratelimiter.internal.AtomicRateLimiter.waitForPermission com.example.Shop.limited " + http,
			ForPermit, "AtomicRateLimiter.waitForPermission",
		},
		{
			"a limiter of the program's own", parkNanos + "com.example.Limiter.await com.example.Shop.x " + http,
			ForWakeUp, "",
		},
		{
			"Object.wait, JDK 25", "java.lang.Object.wait0 java.lang.Object.wait com.example.Cell.get " + http,
			ForWakeUp, "",
		},
		{
			"a child, JDK 17", park + condition + "await java.lang.ProcessImpl.waitFor com.example.Shop.convert " +
				http,
			ForChild, "ProcessImpl.waitFor",
		},
		{
			"an answer, by the JDK's client", park + "java.util.concurrent.CompletableFuture$Signaller.block " +
				"java.util.concurrent.CompletableFuture.waitingGet java.util.concurrent.CompletableFuture.get " +
				"jdk.internal.net.http.HttpClientImpl.send com.example.Shop.ask " + http,
			ForNetwork, "HttpClientImpl.send",
		},
		{
			"a connection", parkNanos + "java.util.concurrent.SynchronousQueue$Transferer.xferLifo " + //nolint:misspell // a name in the JDK
				"java.util.concurrent.SynchronousQueue.poll com.zaxxer.hikari.util.ConcurrentBag.borrow " +
				"com.zaxxer.hikari.pool.HikariPool.getConnection com.example.Dao.find " + tomcat,
			ForPool, "ConcurrentBag.borrow",
		},
		{
			"a connection that is looked at", "sun.nio.ch.Net.poll sun.nio.ch.NioSocketImpl.park " +
				"org.postgresql.jdbc.PgConnection.isValid com.zaxxer.hikari.pool.PoolBase.isConnectionDead " +
				"com.zaxxer.hikari.pool.HikariPool.getConnection com.example.Dao.find " + tomcat,
			ForNetwork, "Net.poll",
		},
		{
			"a lock in a queue", park + aqs + "acquire java.util.concurrent.locks.ReentrantLock.lockInterruptibly " +
				"java.util.concurrent.ArrayBlockingQueue.put com.example.Journal.add " + http,
			ForLock, "ReentrantLock.lockInterruptibly",
		},
		{
			"room, in a fair queue", park + "java.util.concurrent.SynchronousQueue$TransferQueue.transfer " +
				"java.util.concurrent.SynchronousQueue.put com.example.Journal.add " + http,
			ForQueue, "SynchronousQueue.put",
		},

		// Idle by design: the worker loop's own call is the nearest.
		{
			"a worker, JDK 11", park + condition + "await java.util.concurrent.LinkedBlockingQueue.take " +
				"java.util.concurrent.ThreadPoolExecutor.getTask " + worker,
			Idle, "ThreadPoolExecutor.getTask",
		},
		{
			"a worker of a scheduler, JDK 21", parkNanos + condition + "awaitNanos " +
				"java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue.take " +
				"java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue.take " +
				"java.util.concurrent.ThreadPoolExecutor.getTask " + worker,
			Idle, "",
		},
		{
			"a cached pool's worker, fair, JDK 17", parkNanos +
				"java.util.concurrent.SynchronousQueue$TransferStack.transfer java.util.concurrent.SynchronousQueue.poll " +
				"java.util.concurrent.ThreadPoolExecutor.getTask " + worker,
			Idle, "",
		},
		{
			"Tomcat's worker", park + condition + "await java.util.concurrent.LinkedBlockingQueue.take " +
				"org.apache.tomcat.util.threads.TaskQueue.take " +
				"org.apache.tomcat.util.threads.ThreadPoolExecutor.getTask " +
				"org.apache.tomcat.util.threads.ThreadPoolExecutor.runWorker java.lang.Thread.run",
			Idle, "",
		},
		{
			"Jetty's worker", parkNanos + condition + "awaitNanos org.eclipse.jetty.util.BlockingArrayQueue.poll " +
				"org.eclipse.jetty.util.thread.QueuedThreadPool$Runner.idleJobPoll " +
				"org.eclipse.jetty.util.thread.QueuedThreadPool$Runner.run java.lang.Thread.run",
			Idle, "",
		},
		{
			"a worker of the common pool", park + "java.util.concurrent.ForkJoinPool.awaitWork " +
				"java.util.concurrent.ForkJoinPool.runWorker java.util.concurrent.ForkJoinWorkerThread.run",
			Idle, "",
		},
		{
			"Netty's selector", "sun.nio.ch.EPoll.wait sun.nio.ch.EPollSelectorImpl.doSelect " +
				"sun.nio.ch.SelectorImpl.lockAndDoSelect sun.nio.ch.SelectorImpl.select " +
				"io.netty.channel.nio.NioEventLoop.select io.netty.channel.nio.NioEventLoop.run " + netty,
			Idle, "EPoll.wait",
		},
		{
			"Kafka's selector", "sun.nio.ch.EPoll.wait sun.nio.ch.EPollSelectorImpl.doSelect " +
				"sun.nio.ch.SelectorImpl.select org.apache.kafka.common.network.Selector.select " +
				"org.apache.kafka.common.network.Selector.poll org.apache.kafka.clients.NetworkClient.poll " +
				"com.example.Consumer.run " + task,
			Idle, "",
		},
		{
			"accept, JDK 17", "sun.nio.ch.Net.poll sun.nio.ch.NioSocketImpl.park " +
				"sun.nio.ch.NioSocketImpl.timedAccept sun.nio.ch.NioSocketImpl.accept " +
				"java.net.ServerSocket.implAccept java.net.ServerSocket.accept com.example.Server.run " +
				"java.lang.Thread.run",
			Idle, "NioSocketImpl.accept",
		},
		{
			"a cleaner, JDK 21", parkNanos + condition + "await java.lang.ref.ReferenceQueue.await " +
				"java.lang.ref.ReferenceQueue.remove0 java.lang.ref.ReferenceQueue.remove " +
				"jdk.internal.ref.CleanerImpl.run java.lang.Thread.runWith java.lang.Thread.run " +
				"jdk.internal.misc.InnocuousThread.run",
			Idle, "",
		},
		{
			"a timer, JDK 11", "java.lang.Object.wait java.util.TimerThread.mainLoop java.util.TimerThread.run",
			Idle, "",
		},
		{
			"a timer's task", park + aqs + "acquire java.util.concurrent.locks.ReentrantLock.lock " +
				"com.example.Tick.run java.util.TimerThread.mainLoop java.util.TimerThread.run",
			ForLock, "",
		},
		{
			"a consumer at its queue", park + condition + "await java.util.concurrent.LinkedBlockingQueue.take " +
				"com.example.Consumer.run " + task,
			Idle, "",
		},
		{
			"a library's housekeeper", "java.lang.Object.wait org.quartz.core.QuartzSchedulerThread.run", Idle, "",
		},
		{
			"Tomcat's background thread", "java.lang.Thread.sleep " +
				"org.apache.catalina.core.ContainerBase$ContainerBackgroundProcessor.run java.lang.Thread.run",
			Idle, "",
		},
		{
			"a main method that waits for the end", park + aqs + "acquire " +
				"java.util.concurrent.CountDownLatch.await com.example.Main.main",
			Idle, "",
		},
		{
			"a main method that waits for a pool", parkNanos + condition + "awaitNanos " +
				"java.util.concurrent.ThreadPoolExecutor.awaitTermination com.example.Main.main",
			Idle, "",
		},
		{
			"a thread that is no main, for a pool", parkNanos + condition + "awaitNanos " +
				"java.util.concurrent.ThreadPoolExecutor.awaitTermination com.example.Batch.run java.lang.Thread.run",
			ForThreads, "",
		},

		// An event loop that is blocked is not idle, whatever it is in.
		{
			"a loop at a queue", park + condition + "await java.util.concurrent.LinkedBlockingQueue.take " +
				"com.example.Route.filter io.netty.channel.AbstractChannelHandlerContext.invokeChannelRead " +
				"io.netty.channel.nio.NioEventLoop.processSelectedKeys io.netty.channel.nio.NioEventLoop.run " + netty,
			ForItem, "",
		},
		{
			"a loop that sleeps in a library", "java.lang.Thread.sleep org.apache.foo.Retry.pause " +
				"io.netty.channel.nio.NioEventLoop.run " + netty,
			ForSleep, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := stackOf(strings.Fields(tc.stack)...)
			s := p.Samples[0]
			s.State = stacks.Sleeping
			got, at := WaitsOf(p, Owners{}).Of(s)
			if got != tc.want {
				t.Fatalf("waits for %q, want %q", got, tc.want)
			}
			if name := p.Frames[s.Stack[at]].Name; !strings.HasSuffix(name, tc.says) {
				t.Errorf("by %s, want %s", name, tc.says)
			}
			s.State = stacks.Running
			if got, _ := WaitsOf(p, Owners{}).Of(s); got != NotWaiting {
				t.Errorf("while it runs it waits for %q", got)
			}
		})
	}
}

// TestWaitsOfRuby: the system call tells less than the method that a thread is in. A thread that sleeps or wants a
// mutex waits at the same futex, or polls for signals.
func TestWaitsOfRuby(t *testing.T) {
	const (
		gem  = "/var/lib/gems/3.1.0/gems/"
		puma = gem + "puma-5.6.5/lib/puma/"
		// a request in hand
		served = "|RUBY:cart /srv/shop.rb|RUBY:handle_request " + puma + "request.rb|RUBY:process_client " + puma +
			"server.rb|RUBY:spawn_thread " + puma + "thread_pool.rb"
	)
	for stack, want := range map[string]Wait{
		"futex|RUBY:Kernel#sleep ruby:core" + served:                                                  ForSleep,
		"ppoll|RUBY:Kernel#sleep ruby:core" + served:                                                  ForSleep,
		"futex|RUBY:synchronize ruby:core" + served:                                                   ForLock,
		"futex|RUBY:pop ruby:core" + served:                                                           ForItem,
		"ppoll|RUBY:read_nonblock ruby:core" + served:                                                 ForNetwork,
		"wait4|RUBY:Kernel#system ruby:core" + served:                                                 ForChild,
		"futex|RUBY:sleep ruby:core|RUBY:wait ruby:core" + served:                                     ForWakeUp,
		"ppoll|RUBY:Thread#join ruby:core" + served:                                                   ForThreads,
		"ppoll|RUBY:Thread#join ruby:core|RUBY:run " + puma + "single.rb":                             Idle,
		"futex|RUBY:sleep ruby:core|RUBY:wait ruby:core|RUBY:spawn_thread " + puma + "thread_pool.rb": Idle,
		"futex|RUBY:wait ruby:core|RUBY:pop " + gem + "connection_pool-2.3/lib/connection_pool/timed_stack.rb" +
			served: ForPool,
		"futex|RUBY:pop ruby:core|RUBY:consume /srv/shop.rb": Idle,
	} {
		p, _ := stackOf(strings.Split(stack, "|")...)
		p.Event, p.Frames[0].Kind = stacks.ScriptWall, stacks.Kernel
		s := p.Samples[0]
		s.State = stacks.Sleeping
		if got, _ := WaitsOf(p, Owners{}).Of(s); got != want {
			t.Errorf("%s: %q, want %q", stack, got, want)
		}
	}
}

// TestOpens: who prepares a connection, in each language, and who uses one.
func TestOpens(t *testing.T) {
	const read = "java.net.SocketInputStream.socketRead0 java.net.SocketInputStream.read "
	for _, tc := range []struct {
		event stacks.Event
		stack string
		want  bool
	}{
		{stacks.Wall, read + "org.h2.value.Transfer.readInt org.h2.Driver.connect " +
			"org.apache.commons.dbcp2.DriverConnectionFactory.createConnection com.example.Dao.find " + task, true},
		{stacks.Wall, read + "org.h2.command.CommandRemote.executeQuery com.example.Dao.find " + task, false},
		{stacks.Goroutine, "runtime.netpollblock crypto/tls.(*clientHandshakeState).handshake " +
			"crypto/tls.(*Conn).clientHandshake net/http.(*persistConn).addTLS.func2", true},
		{stacks.Goroutine, "runtime.netpollblock crypto/tls.(*Conn).serverHandshake net/http.(*conn).serve", false},
		{stacks.ScriptWall, "read py::SSLSocket.do_handshake:/usr/lib/python3.11/ssl.py " +
			"py::HTTPSConnection.connect:/usr/lib/python3.11/http/client.py py::H.do_GET:/srv/app.py", true},
		{stacks.ScriptWall, "read py::SSLSocket.read:/usr/lib/python3.11/ssl.py py::H.do_GET:/srv/app.py", false},
	} {
		p, _ := stackOf(strings.Fields(tc.stack)...)
		p.Event = tc.event
		for i := range p.Frames {
			if p.Frames[i].Name == "read" { // the system call
				p.Frames[i].Kind = stacks.Kernel
			}
		}
		s := p.Samples[0]
		s.State = stacks.Sleeping
		w := WaitsOf(p, Owners{})
		if wait, _ := w.Blocked(s); w.Opens(s) != tc.want || tc.event != stacks.Goroutine && wait != ForNetwork {
			t.Errorf("%s: opens %v, waits for %s", tc.stack, w.Opens(s), wait)
		}
	}
}

// TestServes: who has a request in hand, who is a worker of an executor, and who is neither.
func TestServes(t *testing.T) {
	for stack, want := range map[string][2]bool{
		"java.lang.Thread.sleep " + http: {true, true}, "java.lang.Thread.sleep " + tomcat: {true, true},
		"java.lang.Thread.sleep com.example.Shop.retry " + task:             {false, true},
		"java.lang.Thread.sleep com.example.Meter.run java.lang.Thread.run": {false, false},
		"java.lang.Thread.sleep com.example.Route.filter io.netty.channel.nio.NioEventLoop.run " +
			"io.netty.util.concurrent.FastThreadLocalRunnable.run java.lang.Thread.run": {true, false},
	} {
		p, _ := stackOf(strings.Fields(stack)...)
		request, task := WaitsOf(p, Owners{}).Serves(p.Samples[0])
		if got := [2]bool{request, task}; got != want {
			t.Errorf("%s: %v, want %v", stack, got, want)
		}
	}
}

// TestDotNetWaits: what the runtime's own functions and the methods say of a futex, whatever both are called.
func TestDotNetWaits(t *testing.T) {
	const (
		thread = " Shop.Cart.Total System.Threading.ThreadHelper.ThreadStart"
		block  = "pthread_cond_wait CorUnix::CPalSynchronizationManager::BlockThread "
	)
	for stack, want := range map[string]Wait{
		block + "AwareLock::Enter JIT_MonEnter_Helper":                    ForLock,
		block + "SleepEx Thread::UserSleep System.Threading.Thread.Sleep": ForSleep,
		block + "ObjectNative::WaitTimeout System.Threading.Monitor.Wait": ForWakeUp,
		block + "System.Threading.Monitor.Wait System.Threading.SemaphoreSlim.WaitUntilCountOrTimeout " +
			"System.Threading.SemaphoreSlim.Wait": ForPool,
		block + "System.Threading.Monitor.Wait System.Threading.ManualResetEventSlim.Wait " +
			"System.Threading.Tasks.Task.InternalWait": ForFuture,
		block + "System.Threading.Monitor.Wait System.Threading.SemaphoreSlim.Wait " +
			"System.Collections.Concurrent.BlockingCollection`1[System.__Canon].TryTakeWithNoTimeValidation": ForItem,
		"recvmsg SystemNative_ReceiveMessage System.Net.Sockets.Socket.Receive": ForNetwork,
		"accept4 SystemNative_Accept System.Net.Sockets.Socket.Accept":          Idle,
	} {
		if got, _ := dotNetWaitOf(stack + thread); got != want {
			t.Errorf("%s waits for %s, want %s", stack, got, want)
		}
	}
}

// dotNetWaitOf is what a thread with this stack waits for, whether it has work or not, the innermost frame first.
func dotNetWaitOf(stack string) (Wait, int) {
	b := stacks.NewBuilder(stacks.ScriptWall)
	var frames []int
	for i, name := range strings.Fields(stack) {
		f := stacks.Frame{Name: name, Kind: stacks.Native}
		switch {
		case i == 0 && !strings.HasPrefix(name, "pthread"):
			f.Kind = stacks.Kernel
		case strings.Contains(name, "."):
			f.Kind = stacks.Compiled
		}
		frames = append(frames, b.Frame(f))
	}
	b.Add(stacks.Sample{Stack: frames, Thread: -1, State: stacks.Sleeping, Count: 1, Value: 1})
	p := b.Profile()
	return WaitsOf(p, Owners{}).Blocked(p.Samples[0])
}
