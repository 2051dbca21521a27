package hotcode

// .NET threads wait in functions of the runtime, up to .NET 5, and in methods. Their profile leaves out the futex,
// which says nothing about them.
var (
	dotNetCalls = []waitRow{
		{ForLock, ParsePatterns(
			"AwareLock::Enter*", "System.Threading.Monitor.Enter*", "System.Threading.Monitor.TryEnter*",
			"System.Threading.Lock.*", "System.Threading.ReaderWriterLock*", "System.Threading.Mutex.*",
		)},
		{ForPool, ParsePatterns("System.Threading.SemaphoreSlim.Wait*")},
		{ForSleep, ParsePatterns("Thread::UserSleep", "System.Threading.Thread.Sleep*")},
		{ForThreads, ParsePatterns(
			"Thread::JoinEx", "System.Threading.Thread.Join*", "System.Threading.CountdownEvent.Wait*",
			"System.Threading.Barrier.*",
		)},
		{ForNetwork, ParsePatterns("System.Net.*")},
	}
	dotNetCallers = []waitRow{
		{Idle, ParsePatterns(
			"System.Net.Sockets.TcpListener.Accept*", "System.Net.Sockets.Socket.Accept*",
			"System.Net.Sockets.SocketAsyncEngine*", "System.Net.HttpListener.GetContext*",
			"System.Threading.PortableThreadPool+*", "System.Threading.LowLevelLifoSemaphore.*",
			"System.Threading.TimerQueue.*", "Microsoft.Extensions.Hosting.*",
		)},
		{ForPool, ParsePatterns("System.Data.*Pool.*", "Microsoft.Data.*Pool.*", "Npgsql.*Pool*", "MySql*Pool.*")},
		{ForItem, ParsePatterns(
			"System.Collections.Concurrent.BlockingCollection*Take*", "System.Threading.Channels.*Read*",
		)},
		{ForQueue, ParsePatterns(
			"System.Collections.Concurrent.BlockingCollection*Add*", "System.Threading.Channels.*Write*",
		)},
		{ForFuture, ParsePatterns(
			"System.Threading.Tasks.Task.*Wait*", "System.Threading.Tasks.Task`1*Result*",
			"System.Runtime.CompilerServices.TaskAwaiter*GetResult*",
		)},
		{ForChild, ParsePatterns("System.Diagnostics.Process.WaitForExit*")},
	}
	// dotNetParks are calls in which they wait for something in no row.
	dotNetParks = ParsePatterns(
		"CorUnix::CPalSynchronizationManager::BlockThread", "SyncBlock::Wait", "System.Threading.Monitor.Wait*",
		"System.Threading.WaitHandle.*", "System.Threading.ManualResetEventSlim.Wait*",
	)
)

// dotNetTasks have a work item of the thread pool in hand (System.Private.CoreLib, ThreadPool.cs).
var dotNetTasks = ParsePatterns("System.Threading.ThreadPoolWorkQueue.Dispatch")

// dotNetRequests are methods of .NET servers that have a request in hand.
var dotNetRequests = ParsePatterns(
	"Microsoft.AspNetCore.*Middleware.Invoke*", "Microsoft.AspNetCore.Mvc.*", "Microsoft.AspNetCore.Routing.*",
	"Microsoft.AspNetCore.*.ProcessRequest*", "System.ServiceModel.Dispatcher.*",
)
