package hotcode

import (
	"regexp"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A role says whether a frame can be named, and at which level.
type role uint8

// The roles. A frame of ofNobody is never named.
const (
	ofNobody      role = iota
	ofSystem           // the C library and allocators: their callers' time, if these are known
	byAddress          // the program's own, without a symbol: the file was stripped
	standIn            // a library, a JDK, an interpreter's own functions
	ofApplication      //
)

func setOf(roles []role, of role) stacks.Set {
	set := make(stacks.Set, len(roles))
	for i, r := range roles {
		set[i] = r == of
	}
	return set
}

// roles returns the role of each frame.
func (c *CPU) roles() []role {
	modules := goModules(c.Profile)
	out := make([]role, len(c.Frames))
	for i, f := range c.Frames {
		out[i] = c.roleOf(f, modules[f.Module])
	}
	return out
}

func (c *CPU) roleOf(f stacks.Frame, inGo bool) role {
	switch {
	case f.Kind == stacks.Kernel || Synthetic(f) || isEntry(f) || isInterpreter(f):
		return ofNobody
	case nameless(f):
		return c.roleOfStripped(f, inGo)
	case IsScript(f):
		return roleOfScript(f.Name)
	case f.Managed():
		if c.Owners.Of(f) == Application {
			return ofApplication
		}
		return standIn
	case f.Module == "" || strings.HasPrefix(f.Module, "[") || f.Module == "libjvm.so":
		return ofNobody // stubs of a runtime, and the runtime
	case inGo:
		return roleInGo(f)
	}
	return c.roleOfMachine(f)
}

// roleOfStripped identifies the program's own functions by their start address. It leaves out libraries without
// symbols, because nobody could tell which one a program has loaded, and a runtime's own functions, which are not the
// program's work.
func (c *CPU) roleOfStripped(f stacks.Frame, inGo bool) role {
	_, placed := stacks.Place(f.Name)
	if !placed || inGo || interpreterFile.MatchString(f.Module) || c.Owners.Of(f) != Application {
		return ofNobody
	}
	return byAddress
}

// roleInGo leaves out Go's runtime: it collects, schedules and allocates for its callers. It also leaves out the
// functions that all system calls go through: their callers are worth naming.
func roleInGo(f stacks.Frame) role {
	switch {
	case strings.HasPrefix(f.Name, "runtime.") || strings.HasPrefix(f.Name, "internal/runtime/") ||
		!strings.Contains(f.Name, "."):
		return ofNobody
	case strings.HasPrefix(f.Name, "syscall.RawSyscall") || strings.HasPrefix(f.Name, "syscall.Syscall") ||
		strings.HasPrefix(f.Name, "runtime/internal/syscall."):
		return ofNobody
	case goStandard(f):
		return standIn
	}
	return ofApplication
}

func (c *CPU) roleOfMachine(f stacks.Frame) role {
	switch {
	case machinery(f.Module, systemModules) || machinery(f.Module, supportModules):
		return ofSystem
	case interpreterFile.MatchString(f.Module) || machinery(strings.TrimPrefix(f.Name, "<"), nativeLibraries) ||
		strings.Contains(f.Module, ".so"):
		return standIn
	case c.Owners.Of(f) == Application:
		return ofApplication
	}
	return ofNobody
}

// supportModules are the name prefixes of libraries that come with compilers and allocators.
var supportModules = []string{
	"libm.so", "libm-", "libstdc++", "libgcc_s", "libjemalloc", "libtcmalloc", "libmimalloc",
}

// nativeLibraries are the name prefixes of standard library functions that are compiled into a program.
var nativeLibraries = []string{
	"std::", "core::", "alloc::", "hashbrown::", "__gnu_cxx::", "boost::", "tokio::", "operator new", "operator delete",
}

// interpreterFile matches the files of runtimes that run other people's code.
var interpreterFile = regexp.MustCompile(
	`^(lib)?(python|nodejs|node|ruby|perl|php|php-fpm|php-cgi|lua|luajit|deno|bun|beam\.smp)[-0-9.]*(\.so[0-9.]*)?$`)

// nameless reports whether a frame has no symbol.
func nameless(f stacks.Frame) bool {
	return f.Name == "" || f.Kind == stacks.Unknown || f.Name == stacks.ThreadStart ||
		stacks.IsUnnamed(f.Name) || strings.HasPrefix(f.Name, "0x")
}

// entryFrames begin a thread, and never do work.
var entryFrames = ParsePatterns(
	"_start", "__libc_start*", "libc_start*", "start_thread", "__clone*", "clone", "clone3", "thread_start",
	"thread_native_entry", "java_start", "JavaThread::*", "Thread::call_run", "call_stub", "StubRoutines*",
	"Interpreter", "java.lang.Thread.run", "java.lang.Thread.runWith", "java.lang.VirtualThread.run*",
	"jdk.internal.vm.Continuation.*", "runtime.goexit*", "runtime.main", "runtime.mstart*", "ruby_run_node",
	"std::rt::*", "std::sys*::thread*", "core::ops::function::*", "std::thread::*", "execute_native_thread_routine",
)

func isEntry(f stacks.Frame) bool { return anyFrame(entryFrames, f) }

// interpreterFrames run functions of another language, without showing which: CPython (Python/ceval.c,
// Objects/call.c, Modules/main.c), V8 and Node, Ruby (vm_exec.c), Perl (run.c), PHP (Zend/zend_vm_execute.h).
var interpreterFrames = ParsePatterns(
	"_PyEval_*", "PyEval_*", "_PyFunction_Vectorcall*", "*_vectorcall*", "*Vectorcall*", "_PyObject_Call*",
	"PyObject_Call*", "_PyObject_MakeTpCall", "PyRun_*", "_PyRun_*", "run_mod*", "run_eval_code_obj*", "Py_RunMain",
	"Py_BytesMain", "pymain_*", "pyrun_*", "slot_tp_*", "builtin_exec*", "gen_send_ex*", "gen_iternext*", "t_bootstrap",
	"thread_run", "pythread_wrapper", "function_code_fastcall", "do_call_core", "call_function", "py_trampoline_*",
	"cfunction_call*", "method_call*",
	"Builtins_PromiseFulfillReactionJob*", "Builtins_Async*", // the other builtins: see v8Library
	// the second is what a pattern sees of functions without a namespace
	"v8::internal::Execution::*", "v8::internal::", "v8::Function::Call*",
	"v8::internal::MicrotaskQueue::*", "node::*MakeCallback*", "node::*CallbackScope::*", "node::SpinEventLoop*",
	"node::LoadEnvironment*", "node::StartExecution*", "node::NodeMainInstance::*", "node::Start*",
	"uv_run", "uv__run*", "uv__io_poll", "uv__stream_io", "uv__read", "uv__thread_*",
	"vm_exec*", "rb_vm_exec*", "rb_ec_exec*", "vm_call_*", "invoke_block*", "rb_yield*",
	"Perl_runops*", "perl_run", "S_run_body", "Perl_pp_entersub",
	"execute_ex", "zend_execute*", "php_execute_script*", "zend_call_function*", "luaV_execute", "luaD_call*",
)

// v8Library matches the builtins of V8 that scripts call by name (src/builtins/builtins-definitions.h). The others are
// the steps of its interpreter, such as Builtins_Subtract.
var v8Library = regexp.MustCompile(`^Builtins_(\w*Prototype|Array|String|RegExp|Map|Set|Weak|Typed|Object|JSON|Date|Math|` +
	`BigInt|Reflect|Iter|Promise)`)

func isInterpreter(f stacks.Frame) bool {
	return OfInterpreter(f) && (anyFrame(interpreterFrames, f) ||
		strings.HasPrefix(f.Name, "Builtins_") && !v8Library.MatchString(f.Name))
}

// OfInterpreter reports whether a frame is machine code in an interpreter's file.
func OfInterpreter(f stacks.Frame) bool { return !f.Managed() && interpreterFile.MatchString(f.Module) }

// loopFrames call other code's work: mains, event loops, executors, servers. The time in themselves is theirs, the
// time in what they call is not.
var loopFrames = slices.Concat(ParsePatterns(
	"main", "*.main", "*::main", "*_main", "*Main", "run", "*.run", "*::run", "*.call", "loop", "*_loop", "*.loop",
	"*Loop", "*main_loop*", "*MainLoop*", "*mainLoop*", "*event_loop*", "*EventLoop*", "*eventLoop*", "*ServeHTTP*",
	"*dispatch*", "*Dispatch*", "py::<module>:*", "py::main:*", "py::run:*", "PHP:{main} *", "PHP:main *", "PHP:run *",
	"RUBY:<*> *", "RUBY:main *", "RUBY:run *", "RUBY:call *", "RUBY:loop *", "RUBY:Kernel#loop *", "RUBY:Kernel#load *",
	"RUBY:Kernel#require *", "RUBY:Proc#call *",

	"java.util.concurrent.*", "java.util.stream.*", "java.lang.*.forEach*", "java.util.*.forEach*",
	"java.util.Timer*", "java.lang.Thread.*", "java.lang.reflect.*", "java.lang.invoke.*", "jdk.internal.*",
	"java.security.AccessController.*", "sun.nio.ch.*", "sun.reflect.*", "com.sun.net.httpserver.*",
	"sun.net.httpserver.*", "javax.servlet.*", "jakarta.servlet.*", "org.apache.catalina.*", "org.apache.coyote.*",
	"org.apache.tomcat.*", "org.eclipse.jetty.*", "io.undertow.*", "org.jboss.threads.*", "org.xnio.*",
	"io.netty.channel.*", "io.netty.util.concurrent.*", "io.netty.handler.*", "org.springframework.*",
	"org.glassfish.*", "io.vertx.*", "reactor.*", "io.reactivex.*", "io.quarkus.*", "io.micronaut.*", "io.helidon.*",
	"io.javalin.*", "io.grpc.*", "akka.*", "scala.concurrent.*", "kotlinx.coroutines.*", "org.junit.*",
	"org.openjdk.jmh.*",

	"net/http.*", "sync.*", "golang.org/x/sync/*", "golang.org/x/net/http2.*", "google.golang.org/grpc.*",
	"tokio::*",

	"py::Thread.*:*/threading.py", "py::_bootstrap*:*/threading.py", "py::*:*/concurrent/futures/*.py",
	"py::*:*/asyncio/*.py", "py::*:*/socketserver.py", "py::*:*/wsgiref/*.py", "py::*:*/http/server.py",
	"py::worker:*/multiprocessing/pool.py",

	"RUBY:* */puma/*", "RUBY:* */unicorn/*", "RUBY:* */webrick/*", "RUBY:* */rack/*", "RUBY:* */sidekiq/*",
	"RUBY:* */sinatra/*", "RUBY:* */action_dispatch/*", "RUBY:* */action_controller/*",
	"RUBY:* */abstract_controller/*",
	"RUBY:* */active_support/callbacks.rb", "RUBY:* */active_support/notifications*",
), ParsePatterns(
	// redis (server.c, networking.c, ae.c)
	"aeMain", "aeProcessEvents", "readQueryFromClient", "connSocketEventHandler", "callHandler", "processInputBuffer",
	"processPendingCommandAndInputBuffer", "processCommandAndResetClient", "processCommand", "call", "beforeSleep",
	"handleClientsWithPendingWrites*", "IOThreadMain",
	// nginx (os/unix/ngx_process_cycle.c, event, http)
	"ngx_*_cycle", "ngx_spawn_process", "ngx_process_events*", "ngx_epoll_process_events", "ngx_event_process_posted",
	"ngx_http_*request*", "ngx_http_*handler", "ngx_http_core_*phase*", "ngx_http_handler",
	// haproxy
	"run_poll_loop", "run_thread_poll_loop", "run_tasks_from_lists", "process_runnable_tasks", "process_stream",
	// PostgreSQL (postmaster.c, postgres.c, pquery.c, execMain.c)
	"PostmasterMain", "ServerLoop", "BackendStartup", "BackendRun", "BackendMain", "postmaster_child_launch",
	"PostgresMain", "exec_simple_query", "exec_execute_message", "PortalRun*", "standard_ExecutorRun", "ExecutePlan",
	"ExecProcNode*", "ProcessQuery",
	// and what runs its functions (spi.c, pl_handler.c, pl_exec.c, fmgr.c)
	"SPI_execute*", "_SPI_execute_plan", "plpgsql_call_handler", "plpgsql_exec_*", "exec_stmt*", "exec_toplevel_block",
	"fmgr_security_definer", "ExecInterpExpr*", "ExecMakeFunctionResultSet",
	// MySQL and MariaDB (sql_parse.cc, sql_connect.cc)
	"pfs_spawn_thread", "handle_one_connection", "handle_connection", "do_handle_one_connection", "do_command",
	"dispatch_command*", "mysql_parse", "dispatch_sql_command*", "mysql_execute_command", "threadpool_process_request",
	"handle_select", "mysql_select", "JOIN::exec*", "do_select", "sub_select*", "evaluate_join_record",
	"sp_head::execute*",
	// libevent, libev, GLib
	"event_base_loop", "event_process_active*", "ev_run", "ev_invoke_pending", "g_main_*",
))

func isLoop(f stacks.Frame) bool { return anyFrame(loopFrames, f) }

func anyFrame(patterns []Pattern, f stacks.Frame) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Frame(f) })
}

// scriptMarks are the prefixes of names that V8 writes into its perf map (src/logging/log.cc), and that
// script-profile gives to functions of PHP and Ruby.
var scriptMarks = []string{"JS:", "LazyCompile:", "Function:", "Script:", "Eval:", "PHP:", "RUBY:"}

func cutScript(name string) (rest string, ok bool) {
	for _, mark := range scriptMarks {
		if rest, ok = strings.CutPrefix(name, mark); ok {
			return rest, true
		}
	}
	return name, false
}

// IsScript reports whether a frame is a function of Python, JavaScript, PHP or Ruby.
func IsScript(f stacks.Frame) bool {
	_, ok := cutScript(f.Name)
	return f.Module == "" && (ok || strings.HasPrefix(f.Name, "py::"))
}

// packagePaths occur in the names of scripts installed beside the application, libraryPaths in the names of scripts
// that come with the runtime.
var (
	packagePaths = []string{
		"site-packages/", "dist-packages/", "/node_modules/", "/vendor/", "/usr/share/php/", "/gems/",
		"/vendor_ruby/", "/rubygems-integration/",
	}
	libraryPaths = []string{
		"/lib/python", "/lib64/python", "<frozen ", "<string>", " node:", "/lib/ruby/3", "/lib64/ruby/3", "/ruby3.",
	}
)

// OfPackage reports whether a frame is a script of an installed package, not of the application or the runtime.
func OfPackage(f stacks.Frame) bool { return IsScript(f) && hasPart(f.Name, packagePaths) }

func hasPart(name string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}

// ofRuntime are the suffixes of names that script-profile gives to the runtimes' own functions: map and slice,
// in_array and usleep.
var ofRuntime = []string{" node:v8", " php:core", " ruby:core"}

// entryPoint matches the scripts that start Python and Ruby packages, such as bin/uvicorn: pip and gem write them.
var entryPoint = regexp.MustCompile(`^(?:py::<module>:|RUBY:<(?:main|top \(required\))> ).*/bin/[^/.]+$`)

// relativeFile matches scripts that were called by a relative path: config.ru of a Ruby web server, app.py of uWSGI.
var relativeFile = regexp.MustCompile(`^(?:RUBY:.*\.(?:rb|ru)|py::.*\.py)$`)

func builtin(name string) bool {
	return slices.ContainsFunc(ofRuntime, func(end string) bool { return strings.HasSuffix(name, end) })
}

func roleOfScript(name string) role {
	if builtin(name) {
		return ofSystem
	}
	if entryPoint.MatchString(name) {
		return standIn
	}
	if hasPart(name, packagePaths) || hasPart(name, libraryPaths) ||
		!strings.Contains(name, "/") && !relativeFile.MatchString(name) {
		return standIn
	}
	return ofApplication
}
