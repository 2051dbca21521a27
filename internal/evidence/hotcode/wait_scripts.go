package hotcode

import "slices"

// scriptWaits are the system calls in which threads of Python, Ruby and .NET and PHP scripts wait, and the functions
// of their own and of widely used libraries that say what for. A wait in futex(2) that none of them leads to is for a
// lock of the program's own. Before Python 3.11 a method's class is not known.
var scriptWaits = waitTable{
	calls: slices.Concat(dotNetCalls, []waitRow{
		{ForLock, ParsePatterns("futex")},
		{ForSleep, ParsePatterns("clock_nanosleep", "nanosleep", "select", "pselect6")},
		{ForNetwork, ParsePatterns(
			"recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "poll", "ppoll", "epoll_wait", "epoll_pwait",
		)},
		{ForChild, ParsePatterns("wait4", "waitid")},
		{ForFile, ParsePatterns("fsync", "fdatasync", "flock", "fcntl", "pread64", "pwrite64")},
	}),
	parks: dotNetParks,
	callers: slices.Concat(dotNetCallers, []waitRow{
		{Idle, ParsePatterns(
			// Event loops and servers at the next request or connection.
			"py::*select:*selectors.py", "py::*_run_once:*asyncio/base_events.py",
			"py::*run:*gevent/hub.py", "py::*:*gevent/threadpool.py", "py::*run:*eventlet/hubs/hub.py",
			"py::*:*twisted/internet/*reactor.py", "py::*mainLoop:*twisted/internet/base.py",
			"py::*:*kombu/asynchronous/*",
			"py::*serve_forever:*socketserver.py",
			"py::*accept:*socket.py", "py::*handle_one_request:*http/server.py", "py::*:*gunicorn/workers/*",
			"py::*:*gunicorn/arbiter.py", "py::*:*uvicorn/*", "py::*:*waitress/*", "py::*:*cheroot/*",
			"PHP:stream_select php:core",
			"RUBY:accept ruby:core",
			"RUBY:handle_servers */puma/server.rb", "RUBY:* */puma/reactor.rb", "RUBY:* */puma/launcher.rb",
			"RUBY:* */puma/cluster.rb", "RUBY:* */puma/single.rb", "RUBY:* */puma/cluster/worker.rb",
			"RUBY:start */webrick/server.rb", "RUBY:read_request_line */webrick/httprequest.rb",
			"RUBY:worker_loop */unicorn/http_server.rb", "RUBY:join */unicorn/http_server.rb",
			"RUBY:* */sidekiq/launcher.rb", "RUBY:* */sidekiq/cli.rb", "RUBY:* */sidekiq/scheduled.rb",
			// Workers at their queues.
			"py::_worker:*concurrent/futures/thread.py", "py::worker:*multiprocessing/pool.py",
			"py::Pool._*:*multiprocessing/pool.py", "py::*_feed:*multiprocessing/queues.py",
			"py::WorkerThread.run:*anyio/_backends/*",
			"RUBY:spawn_thread */puma/thread_pool.rb", "RUBY:wait_until_not_full */puma/thread_pool.rb",
			"RUBY:start! */puma/thread_pool.rb", "RUBY:* */sidekiq/fetch.rb",
			// Coroutines that run for as long as the server does.
			"py::*serve_forever:*asyncio/base_events.py", "py::*:*aiohttp/web.py", "py::*:*hypercorn/*",
		)},
		{ForPool, ParsePatterns(
			"py::*Semaphore.acquire:*threading.py", "py::*_get_conn:*urllib3/connectionpool.py",
			"py::*:*sqlalchemy/pool/*", "py::*getconn:*psycopg_pool/*", "py::*get_connection:*redis/connection.py",
			"py::*getconn:*psycopg2/pool.py", "py::*get:*eventlet/pools.py", "py::*get:*eventlet/db_pool.py",
			"py::*Semaphore.acquire:*asyncio/locks.py", "py::*_acquire*:*asyncpg/pool.py",
			"py::*:*httpcore/_async/*pool.py", "py::BaseConnector.*:*aiohttp/connector.py",
			"py::connect:*aiohttp/connector.py",
			"py::*get_connection:*redis/asyncio/connection.py", "py::CapacityLimiter.acquire*:*anyio/*",
			"py::Semaphore.acquire:*anyio/*", "py::*acquire:*aiomysql/pool.py",
			"RUBY:pop */connection_pool/timed_stack.rb", "RUBY:*poll */connection_pool/queue.rb",
			"RUBY:*acquire* */sequel/connection_pool/*",
		)},
		// Async functions of Node.js, by their names: it has no lock or pool of its own.
		{ForLock, ParsePatterns(
			"JS:acquire *", "JS:acquireLock *", "JS:lock *", "JS:withLock *", "JS:waitForLock *", "JS:runExclusive *",
			"JS:* */node_modules/async-mutex/*", "JS:* */node_modules/async-lock/*",
		)},
		{ForPool, ParsePatterns(
			"JS:getConnection *", "JS:acquireConnection *", "JS:* */node_modules/generic-pool/*",
			"JS:* */node_modules/tarn/*", "JS:* */node_modules/pg-pool/*",
		)},
		{ForSleep, ParsePatterns("JS:sleep *", "JS:delay *")},
		{ForSleep, ParsePatterns("py::sleep:*gevent/hub.py", "py::sleep:*eventlet/greenthread.py")},
		{ForSleep, ParsePatterns("RUBY:Kernel#sleep ruby:core", "py::sleep:*asyncio/tasks.py", "py::sleep:*anyio/*")},
		{ForLock, ParsePatterns("PHP:session_start php:core", "PHP:flock php:core")}, // of a session's file
		{ForLock, ParsePatterns(
			"py::*acquire:*asyncio/locks.py", "py::*acquire:*anyio/*", "py::*acquire:*eventlet/semaphore.py",
			"py::*acquire:*/threading.py", "py::*__enter__:*/threading.py",
			"RUBY:synchronize ruby:core", "RUBY:lock ruby:core", "RUBY:mon_enter ruby:core", "RUBY:enter ruby:core",
		)},
		{ForItem, ParsePatterns(
			"RUBY:pop ruby:core", "RUBY:shift ruby:core", "RUBY:deq ruby:core",
			"py::*get:*/queue.py", "py::*get:*multiprocessing/queues.py", "py::*get:*asyncio/queues.py",
		)},
		{ForQueue, ParsePatterns(
			"RUBY:push ruby:core", "RUBY:enq ruby:core", "RUBY:<< ruby:core", "py::*put:*/queue.py",
			"py::*put:*multiprocessing/queues.py", "py::*put:*asyncio/queues.py",
		)},
		{ForFuture, ParsePatterns(
			"py::*result:*concurrent/futures/_base.py", "py::*wait:*concurrent/futures/_base.py",
			"py::Pool.*:*multiprocessing/pool.py", "py::*Result.*:*multiprocessing/pool.py",
		)},
		{ForThreads, ParsePatterns(
			"py::*join:*threading.py", "py::*_wait_for_tstate_lock:*threading.py", "py::*Barrier.*:*threading.py",
			"py::*_shutdown:*threading.py", "RUBY:Thread#join ruby:core", "RUBY:Thread#value ruby:core",
		)},
		{ForNetwork, ParsePatterns(
			"py::Stream*:*asyncio/streams.py", "py::*read*:*asyncio/streams.py", "py::*drain*:*asyncio/streams.py",
			"py::open_connection:*asyncio/streams.py",
			"py::*:*gevent/_socket*.py", "py::*:*gevent/_ssl*.py", "py::trampoline:*eventlet/hubs/__init__.py",
		)},
		{ForNetwork, ParsePatterns("py::*:*/ssl.py")}, // OpenSSL calls read(2), as for a file
		{ForWakeUp, ParsePatterns(
			"py::*wait:*threading.py", "py::*wait_for:*threading.py", "py::*wait*:*asyncio/locks.py",
			"RUBY:sleep ruby:core", "RUBY:wait ruby:core",
			"RUBY:Thread#stop ruby:core",
		)},
		{ForChild, ParsePatterns("py::*wait:*subprocess.py", "py::*communicate:*subprocess.py")},
	}),
	requests: slices.Concat(dotNetRequests, ParsePatterns(
		"py::*:*flask/app.py", "py::*:*django/core/handlers/*", "py::*run_wsgi:*werkzeug/serving.py",
		"py::*:*starlette/routing.py", "py::do_GET:*", "py::*.do_GET:*", "py::do_POST:*", "py::*.do_POST:*",
		"py::*finish_request:*socketserver.py", "py::*handle_request:*gunicorn/workers/*",
		"py::*respond:*cheroot/server.py", "py::*service:*waitress/*",
		// synchronous functions of starlette and FastAPI, and those that Django runs for async views
		"py::WorkerThread.run:*anyio/_backends/*", "py::*thread_handler:*asgiref/sync.py",
		"RUBY:handle_request */puma/request.rb", "RUBY:service */webrick/httpserver.rb",
		"RUBY:process_client */unicorn/http_server.rb", "RUBY:* */action_controller/*", "RUBY:call! */sinatra/base.rb",
	)),
	// of queues; the last of Laravel and Symfony
	tasks: slices.Concat(dotNetTasks, ParsePatterns(
		"py::*trace_task:*celery/app/trace.py", "py::*perform_job:*rq/worker*.py", "py::*execute_job:*rq/worker*.py",
		"py::*process_message:*dramatiq/worker.py", "py::*execute:*huey/api.py", "py::*run_job:*apscheduler/*",
		"PHP:Illuminate\\Queue\\Worker::process *", "PHP:Symfony\\*\\Worker::handleMessage *",
		"RUBY:execute_job */sidekiq/processor.rb",
		// tasks of an executor, in a server with a shared connection for requests
		"py::_unary_response_in_pool:*/grpc/_server.py", "py::_stream_response_in_pool:*/grpc/_server.py",
	)),
	workers: ParsePatterns(
		"py::*workloop:*billiard/pool.py", "py::*_WorkerThread.run:*dramatiq/worker.py", "py::*loop:*huey/consumer.py",
		"PHP:Illuminate\\Queue\\Worker::daemon *", "PHP:Symfony\\*\\Worker::run *",
		"RUBY:run */sidekiq/processor.rb", "py::_worker:*/concurrent/futures/thread.py",
	),
	mains: ParsePatterns("py::<module>:*", "PHP:{main} *", "RUBY:<main> *"),
	opens: ParsePatterns(
		"py::*create_connection:*", "py::*connect:*http/client.py", "py::*connect:*urllib3/connection.py",
		"RUBY:connect */net/http.rb", "RUBY:*connect* */redis/*", "RUBY:*connect* */mysql2/*", "RUBY:*connect* */pg/*",
		"py::connect:*psycopg2/__init__.py", "py::*connect:*psycopg/connection.py", "py::*connect:*pymysql/*",
		"py::*connect:*mysql/connector/*", "py::*connect:*redis/connection.py", "py::*connect:*sqlalchemy/engine/*",
	),
}
