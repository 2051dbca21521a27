package hotcode

import (
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// goPackages are the first parts of the import paths of Go's standard library (go list std, Go 1.26), and of what the
// compiler makes: type..eq.T. A module's path usually begins with a host name.
var goPackages = []string{
	"archive", "bufio", "bytes", "cmp", "compress", "container", "context", "crypto", "database", "debug", "embed",
	"encoding", "errors",
	"expvar", "flag", "fmt", "go", "hash", "html", "image", "index", "internal", "io", "iter", "log", "maps", "math",
	"mime", "net", "os",
	"path", "plugin", "reflect", "regexp", "runtime", "slices", "sort", "strconv", "strings", "structs", "sync",
	"syscall", "testing",
	"text", "time", "type", "unicode", "unique", "unsafe", "vendor", "weak",
}

// goCollector are the functions in which Go's collector runs beside the program (runtime/mgc.go, mgcsweep.go,
// mgcscavenge.go).
var goCollector = []string{"runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge"}

// goModules returns the files that are Go programs: a goroutine's outermost function is runtime.goexit, the
// scheduler's is runtime.mstart.
func goModules(p *stacks.Profile) map[string]bool {
	out := map[string]bool{}
	for _, f := range p.Frames {
		if p.Event == stacks.Goroutine || !f.Managed() && (strings.HasPrefix(f.Name, "runtime.goexit") ||
			strings.HasPrefix(f.Name, "runtime.mstart")) {
			out[f.Module] = true
		}
	}
	return out
}

// goStandard reports whether a function belongs to Go's standard library. This includes functions of the runtime that
// are written in assembly and have no package, such as memeqbody.
func goStandard(f stacks.Frame) bool {
	if !strings.Contains(f.Name, ".") {
		return true
	}
	return slices.Contains(goPackages, f.Name[:strings.IndexAny(f.Name, "./:")])
}

// goLibraries begin the import paths of modules that many Go programs use. A path in no list counts as the
// application's: its own module has a path of the same form.
var goLibraries = []string{
	"cloud.google.com/", "github.com/aws/", "github.com/Azure/", "github.com/bradfitz/", "github.com/cenkalti/",
	"github.com/confluentinc/confluent-kafka-go", "github.com/dgraph-io/", "github.com/eclipse/paho",
	"github.com/elastic/go-elasticsearch", "github.com/fsnotify/", "github.com/gin-gonic/", "github.com/go-chi/",
	"github.com/go-kit/", "github.com/go-logr/", "github.com/go-pg/", "github.com/go-redis/", "github.com/go-resty/",
	"github.com/go-sql-driver/", "github.com/gofiber/", "github.com/gogo/", "github.com/golang/",
	"github.com/gomodule/", "github.com/google/", "github.com/googleapis/", "github.com/gorilla/",
	"github.com/grpc-ecosystem/", "github.com/hashicorp/golang-lru", "github.com/hashicorp/go-",
	"github.com/IBM/sarama",
	"github.com/jackc/", "github.com/jinzhu/", "github.com/jmoiron/", "github.com/json-iterator/",
	"github.com/julienschmidt/", "github.com/klauspost/", "github.com/labstack/", "github.com/lib/pq",
	"github.com/mattn/", "github.com/nats-io/nats.go", "github.com/olivere/elastic", "github.com/panjf2000/ants",
	"github.com/patrickmn/", "github.com/prometheus/client_golang", "github.com/prometheus/common",
	"github.com/rabbitmq/amqp091-go", "github.com/redis/", "github.com/robfig/cron", "github.com/rs/",
	"github.com/segmentio/", "github.com/Shopify/sarama", "github.com/sirupsen/", "github.com/spf13/",
	"github.com/streadway/", "github.com/tidwall/", "github.com/twmb/", "github.com/uptrace/", "github.com/urfave/",
	"github.com/valyala/", "go.etcd.io/bbolt", "go.etcd.io/etcd/client", "go.mongodb.org/", "go.opentelemetry.io/",
	"go.opencensus.io/", "go.uber.org/", "golang.org/x/", "google.golang.org/", "gopkg.in/", "gorm.io/",
	"k8s.io/client-go",
	"k8s.io/klog", "modernc.org/", "sigs.k8s.io/",
}

// ofGo returns the owner of a function of a Go program.
func ofGo(f stacks.Frame) Owner {
	switch {
	case strings.HasPrefix(f.Name, "runtime.") || strings.HasPrefix(f.Name, "internal/runtime/") ||
		!strings.Contains(f.Name, "."):
		return Machine
	case goStandard(f) || hasPrefix(f.Name, goLibraries):
		return Library
	}
	return Application
}

// goMethod returns the function of a Go program whose time a sample is: the nearest outside the standard library, as
// for Java the nearest outside the JDK. By innermost function, a method that formats and compares would appear as a
// dozen functions of fmt, strconv and memeqbody, which others call too. ok is false if there is none.
func goMethod(p *stacks.Profile, modules map[string]bool, stack []int) (name string, ok bool) {
	inGo := false
	for _, i := range stack {
		f := p.Frames[i]
		if f.Kind == stacks.Kernel || !modules[f.Module] {
			continue
		}
		inGo = true
		if !goStandard(f) {
			return f.Name, true
		}
	}
	if !inGo {
		return "", false
	}
	for _, i := range stack {
		if name := p.Frames[i].Name; slices.ContainsFunc(goCollector,
			func(c string) bool { return strings.HasPrefix(name, c) }) {
			return "[" + string(PartGC) + "]", true
		}
	}
	return "", false
}
