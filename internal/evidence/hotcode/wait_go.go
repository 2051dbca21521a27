package hotcode

// goWaits are the functions in which goroutines wait, of Go 1.21 to 1.26 and of widely used libraries.
var goWaits = waitTable{
	calls: []waitRow{
		{ForLock, ParsePatterns(
			"sync.runtime_Semacquire*Mutex*", "internal/sync.runtime_Semacquire*Mutex*", "sync.(*Mutex).lockSlow",
			"internal/sync.(*Mutex).lockSlow", "sync.(*RWMutex).*",
		)},
		{ForThreads, ParsePatterns("sync.(*WaitGroup).Wait")},
		{ForSleep, ParsePatterns("time.Sleep")},
		{ForQueue, ParsePatterns("runtime.chansend*")},
		{ForItem, ParsePatterns("runtime.chanrecv*")},
		{ForWakeUp, ParsePatterns("runtime.selectgo", "sync.(*Cond).Wait", "runtime.block")},
		{ForChild, ParsePatterns("os.(*Process).*", "os/exec.(*Cmd).*")},
		{ForFile, ParsePatterns("os.(*File).*", "os.ReadFile", "os.WriteFile", "os.Open*", "os.Stat", "os.ReadDir",
			"syscall.Flock", "syscall.Fsync", "syscall.Fdatasync")},
		{ForNetwork, ParsePatterns("internal/poll.runtime_pollWait")},
	},
	callers: []waitRow{
		{ForPool, ParsePatterns(
			"database/sql.(*DB).conn", "golang.org/x/sync/semaphore.(*Weighted).Acquire",
			"github.com/jackc/puddle*.(*Pool*).*cquire*", "github.com/jackc/pgx*/pgxpool.(*Pool).Acquire*",
			"github.com/*redis*/internal/pool.(*ConnPool).*", "github.com/gomodule/redigo/redis.(*Pool).*",
			"go.mongodb.org/mongo-driver*.(*pool).checkOut", "github.com/valyala/fasthttp.(*HostClient).acquireConn",
		)},
		{ForGC, ParsePatterns("runtime.gcAssistAlloc*", "runtime.gcMarkDone", "runtime.gcStart", "runtime.GC")},
		{ForPermit, ParsePatterns("golang.org/x/time/rate.(*Limiter).Wait*", "go.uber.org/ratelimit.*")},
		{Idle, ParsePatterns(
			// Servers at accept and at the next request of a connection.
			"internal/poll.(*FD).Accept", "net/http.(*conn).serve", "net/http.(*conn).readRequest",
			"net/http.(*connReader).backgroundRead", "net/http.(*http2serverConn).*",
			"golang.org/x/net/http2.(*serverConn).*",
			"github.com/valyala/fasthttp.(*RequestHeader).*", "github.com/valyala/fasthttp.acceptConn",
			"google.golang.org/grpc/internal/transport.(*http2Server).*", "google.golang.org/grpc.(*Server).*erve*",
			"net/rpc.(*Server).ServeCodec",
			// Clients' own goroutines, for which others wait.
			"net/http.(*persistConn).readLoop", "net/http.(*persistConn).writeLoop", "net/http.(*http2ClientConn).*",
			"golang.org/x/net/http2.(*ClientConn).*", "google.golang.org/grpc/internal/transport.(*http2Client).*",
			"google.golang.org/grpc/internal/transport.(*loopyWriter).*",
			"google.golang.org/grpc/internal/transport.(*controlBuffer).*",
			"google.golang.org/grpc/internal/grpcsync.*", "database/sql.(*DB).connection*",
			"github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher*", "go.mongodb.org/mongo-driver*.(*Server).*",
			"github.com/*redis*/internal/pool.(*ConnPool).reaper*",
		)},
		{Idle, ParsePatterns("os/signal.*")},
		{ForName, ParsePatterns("net.(*Resolver).*")},
		{ForNetwork, ParsePatterns(
			"net/http.(*persistConn).roundTrip", "net/http.(*Transport).getConn",
			"net.(*Dialer).*", "google.golang.org/grpc.*Invoke", "google.golang.org/grpc.(*clientStream).*",
			"google.golang.org/grpc/internal/transport.(*recvBufferReader).*", "net/rpc.(*Client).Call",
			"net/http.(*http2clientStream).*", "net/http.(*http2Transport).*", "golang.org/x/net/http2.(*Transport).*",
		)},
		{ForFuture, ParsePatterns(
			"golang.org/x/sync/singleflight.*",
		)},
	},
	parks: ParsePatterns("runtime.gopark"),
	requests: ParsePatterns(
		"net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*ServeMux).ServeHTTP",
		"google.golang.org/grpc.(*Server).handleStream*", "github.com/valyala/fasthttp.(*Server).serveConn",
		"net/rpc.(*service).call",
	),
	mains: ParsePatterns("runtime.main"),
	opens: ParsePatterns(
		"net.(*Dialer).Dial*", "crypto/tls.(*Conn).clientHandshake", "*onnector).Connect",
		"github.com/jackc/pgx/*pgconn.connect*", "github.com/lib/pq.*pen*",
	),
}
