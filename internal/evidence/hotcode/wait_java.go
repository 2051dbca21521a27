package hotcode

// javaWaits are the functions in which Java threads wait, of the JDK and of widely used libraries.
var javaWaits = waitTable{
	calls: []waitRow{
		// A virtual thread that waits inside a synchronized block (until JDK 24) or native code keeps its carrier
		// (src/java.base/share/classes/java/lang/VirtualThread.java).
		{ForCarried, ParsePatterns("java.lang.VirtualThread.parkOnCarrierThread")},
		{ForPool, ParsePatterns(
			"java.util.concurrent.Semaphore.acquire*", "java.util.concurrent.Semaphore.tryAcquire",
		)},
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
			"ObjectMonitor::reenter*", "ObjectSynchronizer::enter*", "*monitor_enter*",
			"InterpreterRuntime::monitorenter",
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
	},
	callers: []waitRow{
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
			"java.util.concurrent.ThreadPoolExecutor.getTask",
			"org.apache.tomcat.util.threads.ThreadPoolExecutor.getTask",
			"java.util.concurrent.ForkJoinPool.awaitWork", "io.netty.util.concurrent.*.takeTask",
			"org.eclipse.jetty.util.thread.QueuedThreadPool*dle*",
			"org.eclipse.jetty.util.thread.ReservedThreadExecutor*",
			"com.lmax.disruptor.*.waitFor", "kotlinx.coroutines.scheduling.CoroutineScheduler$Worker.*ark",
			"kotlinx.coroutines.DefaultExecutor.run", "cats.effect.unsafe.WorkerThread.*ark*",
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
			"java.util.concurrent.ExecutorCompletionService.take",
			"java.util.concurrent.ExecutorCompletionService.poll",
			"reactor.core.publisher.BlockingSingleSubscriber.blockingGet",
			"reactor.core.publisher.BlockingMonoSubscriber.blockingGet",
			"io.netty.util.concurrent.DefaultPromise.await*",
			"com.google.common.util.concurrent.AbstractFuture*.*et",
			"kotlinx.coroutines.BlockingCoroutine.joinBlocking",
			"scala.concurrent.impl.Promise$*.tryAwait*",
		)},
	},
	acquires: ParsePatterns(
		"java.util.concurrent.locks.AbstractQueued*Synchronizer.acquire*",
		"java.util.concurrent.locks.AbstractQueued*Synchronizer.doAcquire*",
		"java.util.concurrent.locks.AbstractQueued*Synchronizer.tryAcquire*Nanos",
	),
	loops: ParsePatterns(
		"io.netty.channel.nio.NioEventLoop.run", "io.netty.channel.epoll.EpollEventLoop.run",
		"io.netty.channel.kqueue.KQueueEventLoop.run",
		"io.netty.channel.SingleThreadIoEventLoop.run", "org.xnio.nio.WorkerThread.run",
		"org.glassfish.grizzly.nio.SelectorRunner.run",
		"sun.nio.ch.SelectorImpl.*elect", // of no library: any thread that selects is a loop
	),
	// Any free thread of Jetty selects next, and a working one blocks nobody (AdaptiveExecutionStrategy).
	turns: ParsePatterns("org.eclipse.jetty.util.thread.QueuedThreadPool*"),
	requests: ParsePatterns(
		"javax.servlet.*", "jakarta.servlet.*", "org.apache.coyote.*", "org.apache.catalina.core.*Valve.invoke",
		"org.apache.tomcat.util.net.SocketProcessorBase.run", "org.eclipse.jetty.server.*handle*",
		"org.eclipse.jetty.server.*Http*.on*", "io.undertow.server.Connectors.*", "io.undertow.server.*.handleRequest",
		"sun.net.httpserver.ServerImpl$Exchange.*", "com.sun.net.httpserver.*", "org.springframework.web.*",
		"org.glassfish.jersey.server.*", "org.glassfish.grizzly.http*", "io.netty.channel.*HandlerContext.*",
		"io.grpc.internal.ServerImpl*", "io.grpc.stub.ServerCalls*", "io.helidon.webserver.*", "io.javalin.*",
		"org.jboss.resteasy.core.*", "io.micronaut.http.server.*", "akka.http.*", "play.core.server.*",
	),
	tasks: ParsePatterns(
		"java.util.concurrent.ThreadPoolExecutor.runWorker", "java.util.concurrent.ThreadPoolExecutor$Worker.run",
		"org.apache.tomcat.util.threads.ThreadPoolExecutor.runWorker",
		"org.apache.tomcat.util.threads.ThreadPoolExecutor$Worker.run", "java.util.concurrent.ForkJoinWorkerThread.run",
		"java.util.concurrent.ForkJoinTask.doExec", "java.util.concurrent.ThreadPerTaskExecutor*",
		"org.eclipse.jetty.util.thread.QueuedThreadPool*unJob", "org.jboss.threads.*.run",
		"kotlinx.coroutines.scheduling.CoroutineScheduler$Worker.executeTask", "cats.effect.IOFiber.run*",
		"io.netty.util.concurrent.SingleThreadEventExecutor.*", "org.quartz.core.JobRunShell.run",
	),
	parks: ParsePatterns("*.Unsafe.park", "java.lang.Object.wait*", "java.util.concurrent.locks.LockSupport.park*"),
	mains: ParsePatterns("*.main"),
	opens: ParsePatterns(
		"java.net.Socket.connect", "*SocketChannelImpl.connect", "*HttpsClient.afterConnect", "*.Driver.connect",
		"*.DriverManager.getConnection", "*ConnectionFactory.createConnection", "*ConnectionFactory.makeObject",
		"com.zaxxer.hikari.pool.PoolBase.newConnection", "*ConnectionOperator.connect",
		"*ConnectionFactory.destroyObject", "com.zaxxer.hikari.pool.PoolBase.quietlyCloseConnection",
		"okhttp3.internal.connection.*.connect*", "redis.clients.jedis.Connection.connect",
	),
}
