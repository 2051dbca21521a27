// Package hotcode finds the hot code in a profile, and its owner: the application, a library, the JDK, the runtime or
// the kernel. Checks and the report read profiles through it, so they name the same method.
//
// The owner of a frame is found by excluding code known to belong to the JDK and to libraries, never by a configured
// filter alone: in one of the studied cases a filter set to the own packages hid the culprit, a lock in the JDK.
package hotcode

import (
	"maps"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// An Owner says whose code a frame is.
type Owner uint8

// The owners.
const (
	Application Owner = iota + 1
	Library           // somebody else's, run by a managed runtime; for Go also its standard library
	JDK               //
	Machine           // machine code of a runtime or of a shared library
	Kernel            //
)

var ownerNames = map[Owner]string{
	Application: "application", Library: "library", JDK: "JDK", Machine: "native code", Kernel: "kernel",
}

// String returns the owner's name as reports show it.
func (o Owner) String() string { return ownerNames[o] }

// jdkPrefixes are the name prefixes of classes that come with a JDK, and of the standard interfaces.
var jdkPrefixes = []string{
	"java.", "javax.", "jakarta.", "jdk.", "sun.", "com.sun.", "netscape.", "org.ietf.jgss.", "org.w3c.dom.",
	"org.xml.sax.",
	"com.oracle.svm.", "org.graalvm.",
}

// OfJDK reports whether a class or method comes with a JDK or belongs to the standard interfaces.
func OfJDK(name string) bool { return hasPrefix(name, jdkPrefixes) }

// libraryPrefixes are the name prefixes of classes of well-known libraries, frameworks, servers, drivers and agents.
var libraryPrefixes = []string{
	// Frameworks and servers.
	"org.springframework.", "org.apache.", "org.eclipse.", "org.jboss.", "org.wildfly.", "org.xnio.", "io.undertow.",
	"io.vertx.",
	"io.quarkus.", "io.smallrye.", "io.micronaut.", "io.helidon.", "io.dropwizard.", "com.codahale.", "io.javalin.",
	"io.ktor.", "akka.",
	"play.api.", "play.core.", "org.glassfish.", "org.jvnet.", "weblogic.", "com.ibm.", "org.osgi.", "com.google.",
	"dagger.",
	"org.aopalliance.", "org.aspectj.", "org.codehaus.", "feign.", "com.netflix.", "org.mortbay.", "com.caucho.",
	"org.quartz.",
	// .NET: what comes with it, and what it generates to call machine code.
	"System.", "Microsoft.", "Interop+", "Internal.", "dynamicClass.", "Npgsql.", "MySql.", "Newtonsoft.", "Dapper.",
	"StackExchange.", "Serilog.", "NLog.", "log4net.", "Autofac.", "Grpc.", "Polly.", "RabbitMQ.", "Confluent.",
	// Asynchronous and network code.
	"io.netty.", "reactor.", "io.reactivex.", "rx.", "org.reactivestreams.", "io.grpc.", "okhttp3.", "okio.",
	"retrofit2.",
	"com.squareup.", "com.lmax.", "kafka.", "io.nats.", "com.rabbitmq.", "com.ning.", "org.asynchttpclient.",
	"com.hazelcast.", "io.github.resilience4j.", "io.github.bucket4j.", "dev.failsafe.",
	// Data.
	"com.fasterxml.", "tools.jackson.", "org.json.", "net.minidev.", "com.alibaba.", "com.dslplatform.",
	"com.jsoniter.", "org.yaml.",
	"com.ctc.wstx.", "org.dom4j.", "org.jdom", "nu.xom.", "org.xmlpull.", "com.thoughtworks.", "org.hibernate.",
	"org.postgresql.",
	"com.mysql.", "org.mariadb.", "oracle.", "com.microsoft.", "net.sourceforge.jtds.", "org.h2.", "org.hsqldb.",
	"com.zaxxer.",
	"com.mchange.", "org.jooq.", "org.mybatis.", "org.flywaydb.", "liquibase.", "com.mongodb.", "org.bson.",
	"redis.clients.",
	"io.lettuce.", "org.redisson.", "net.spy.memcached.", "co.elastic.", "org.elasticsearch.", "org.opensearch.",
	"com.datastax.",
	"org.neo4j.", "org.infinispan.", "com.github.benmanes.", "net.sf.", "net.bytebuddy.", "javassist.",
	"org.objectweb.", "ua_parser.",
	"nl.basjes.", "eu.bitwalker.", "org.joda.", "org.threeten.", "com.ibm.icu.", "com.opencsv.", "com.itextpdf.",
	"org.jsoup.",
	"freemarker.", "org.thymeleaf.", "com.samskivert.", "org.mvel2.", "org.antlr.", "org.mapstruct.",
	"com.esotericsoftware.",
	"org.msgpack.", "com.twitter.", "org.roaringbitmap.", "it.unimi.dsi.", "gnu.trove.", "org.agrona.",
	"com.carrotsearch.",
	// Logging, measuring, security, clouds.
	"ch.qos.", "org.slf4j.", "org.tinylog.", "net.logstash.", "io.micrometer.", "io.prometheus.", "io.opentelemetry.",
	"io.opentracing.",
	"brave.", "zipkin2.", "com.newrelic.", "datadog.", "com.datadog.", "com.dynatrace.", "com.appdynamics.",
	"one.profiler.",
	"one.jfr.", "org.bouncycastle.", "org.conscrypt.", "io.jsonwebtoken.", "com.nimbusds.", "com.auth0.",
	"software.amazon.",
	"com.amazonaws.", "com.azure.", "org.jolokia.", "com.sun.jna.",
	// Languages and tools.
	"kotlin.", "kotlinx.", "scala.", "groovy.", "groovyjarjar", "clojure.", "io.vavr.", "org.jruby.", "org.python.",
	"org.openjdk.jmh.",
	"org.junit.", "junit.", "org.mockito.", "org.testng.", "org.gradle.", "com.intellij.",
}

// shadedParts occur in the names of packages into which builds move a library, so that no other version of it
// conflicts (relocation of the Maven Shade plugin, and of Gradle's Shadow): io.grpc.netty.shaded.io.netty.
var shadedParts = []string{".shaded.", ".shade.", ".shadow.", ".repackaged.", ".relocated.", ".thirdparty."}

// unshaded returns the name that a method has in the library itself, and whether it was moved. Some builds add
// another part: org.apache.flink.shaded.netty4.io.netty.
func unshaded(f stacks.Frame) (name string, moved bool) {
	if !f.Managed() {
		return f.Name, false
	}
	for _, part := range shadedParts {
		_, rest, found := strings.Cut(f.Name, part)
		if !found {
			continue
		}
		_, behind, _ := strings.Cut(rest, ".")
		for _, original := range []string{rest, behind} {
			if hasPrefix(original, libraryPrefixes) {
				return original, true
			}
		}
	}
	return f.Name, false
}

// syntheticParts occur in the names of classes and methods that a compiler or framework generated around somebody's
// code: such names say nothing to a reader.
var syntheticParts = []string{
	"$$Lambda", "$$FastClass", "$$Enhancer", "$$SpringCGLIB", "$$Proxy", "$HibernateProxy$", ".access$",
	"_$$_javassist", "$ByteBuddy$",
}

// Owners finds the owners of the frames of one process.
type Owners struct {
	main string
	inGo map[string]bool // files that are Go programs
}

// OwnersOf returns the Owners for the process of a recording. The package of its main class belongs to the
// application whatever the list of libraries says: a server of org.apache is an application if it is the program that
// runs.
func OwnersOf(rec *recording.Recording) Owners {
	class := mainOfCommand(rec.Meta.Target.Cmdline)
	for _, e := range []stacks.Event{stacks.Wall, stacks.CPU} {
		if p, ok := rec.Ranked(e); ok && class == "" {
			class = mainOfProfile(p)
		}
	}
	o := Owners{main: packageOf(class), inGo: map[string]bool{}}
	for _, e := range []stacks.Event{stacks.CPU, stacks.HostCPU, stacks.Goroutine} {
		if p, ok := rec.Ranked(e); ok {
			maps.Copy(o.inGo, goModules(p))
		}
	}
	return o
}

// valueOptions are the java options that take the next word as their value (man java).
var valueOptions = []string{
	"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules", "--add-opens",
	"--add-exports", "--add-reads", "--limit-modules", "--patch-module", "--source", "--enable-native-access",
}

// mainOfCommand returns the main class that a java command line names; with -jar it names none.
func mainOfCommand(args []string) string {
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-jar":
			return ""
		case a == "-m" || a == "--module":
			if i+1 < len(args) {
				_, class, _ := strings.Cut(args[i+1], "/")
				return class
			}
		case contains(valueOptions, a):
			i++
		case !strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "@"):
			if strings.ContainsAny(a, "/ …*") { // cut, redacted, or a source file
				return ""
			}
			return a
		}
	}
	return ""
}

// mainOfProfile returns the class whose main method is the outermost Java frame of the main thread.
func mainOfProfile(p *stacks.Profile) string {
	for _, s := range p.Samples {
		if s.Thread < 0 || p.Threads[s.Thread].Name != "main" {
			continue
		}
		for i := len(s.Stack) - 1; i >= 0; i-- {
			if f := p.Frames[s.Stack[i]]; f.Managed() {
				if class, ok := strings.CutSuffix(f.Name, ".main"); ok {
					return class
				}
				break
			}
		}
	}
	return ""
}

// serverPrefixes are libraries of one project that is also a program: if the main class belongs to it, the whole
// project is the application, whichever of its packages the class is in.
var serverPrefixes = []string{
	"org.h2.", "org.hsqldb.", "org.elasticsearch.", "org.opensearch.", "org.neo4j.", "org.infinispan.",
	"com.hazelcast.",
}

// packageOf returns the first two parts of a class's package with a dot at the end: modules of one company lie side
// by side. It takes three parts of a package that is a library elsewhere: org.apache.kafka. must not make all of
// org.apache. part of the application.
func packageOf(class string) string {
	parts := strings.Split(class, ".")
	if parts = parts[:len(parts)-1]; len(parts) == 0 || OfJDK(class) || launcher(class) {
		return ""
	}
	n := 2
	if hasPrefix(class, libraryPrefixes) && !hasPrefix(class, serverPrefixes) {
		n = 3
	}
	return strings.Join(parts[:min(n, len(parts))], ".") + "."
}

// launchers start somebody else's application.
var launchers = []string{
	"org.springframework.boot.loader.", "org.apache.catalina.startup.", "org.eclipse.jetty.start.",
	"org.jboss.modules.", "org.codehaus.",
	"org.apache.maven.", "org.gradle.", "io.quarkus.bootstrap.", "com.intellij.", "org.openjdk.jmh.", "org.junit.",
	"io.vertx.core.Launcher",
}

func launcher(class string) bool { return hasPrefix(class, launchers) }

// Of returns the owner of a frame.
func (o Owners) Of(f stacks.Frame) Owner {
	switch {
	case f.Kind == stacks.Kernel:
		return Kernel
	case IsScript(f):
		if roleOfScript(f.Name) == ofApplication {
			return Application
		}
		return Library
	case o.inGo[f.Module]:
		return ofGo(f)
	case !f.Managed():
		return ofMachine(f)
	}
	return o.ofManaged(f)
}

func (o Owners) ofManaged(f stacks.Frame) Owner {
	_, moved := unshaded(f)
	switch {
	case moved:
		return Library
	case o.inMain(f):
		return Application
	case OfJDK(f.Name):
		return JDK
	case hasPrefix(f.Name, libraryPrefixes):
		return Library
	}
	return Application
}

// ofMachine distinguishes a program's own machine code from shared libraries (lib*.so*, ld.so, the vDSO), from Go's
// runtime, which is in the program's file, and from code without a symbol.
func ofMachine(f stacks.Frame) Owner {
	if f.Kind == stacks.Unknown || f.Module == "" || strings.Contains(f.Module, ".so") ||
		strings.HasPrefix(f.Module, "[") ||
		strings.HasPrefix(f.Module, "perf-") || strings.HasPrefix(f.Name, "runtime.") {
		return Machine
	}
	return Application
}

// inMain reports whether a frame is in the package of the main class.
func (o Owners) inMain(f stacks.Frame) bool { return o.main != "" && strings.HasPrefix(f.Name, o.main) }

// A Place is the frame of a stack that a reader can do something about.
type Place struct {
	At      int   // index into the stack: below from if the bottleneck calls it instead of being called by it
	Through int   // a frame of an unknown package nearer the bottleneck, if the place is the main class's; else -1
	Owner   Owner // Application, or another owner if none of the stack belongs to the application
}

// Nearest finds the application's frame nearest the bottleneck, which is at index from: outwards, callers come next.
// It never names frames that match skip, such as constructors of exceptions. If no caller belongs to the application,
// it returns the nearest application frame inwards (a finalizer, a callback), else the nearest library frame, else
// the nearest JDK frame, else the frame itself.
//
// A package in no list counts as the application's. If the main class's package is known and further out, Nearest
// names that and the unknown frame with it: it may be an unlisted library.
func (o Owners) Nearest(p *stacks.Profile, stack []int, from int, skip []Pattern) Place {
	place := Place{At: from, Through: -1, Owner: o.Of(p.Frames[stack[from]])}
	found := false
	rank := map[Owner]int{JDK: 1, Library: 2, Application: 3}
	for i := from; i < len(stack); i++ {
		f := p.Frames[stack[i]]
		who := o.Of(f)
		if rank[who] == 0 || unnamed(f, skip) {
			continue
		}
		switch {
		case who == Application && found && place.Owner == Application:
			if o.inMain(f) {
				return Place{At: i, Through: place.At, Owner: Application}
			}
		case !found || rank[who] > rank[place.Owner]:
			place, found = Place{At: i, Through: -1, Owner: who}, true
			if who == Application && (o.main == "" || o.inMain(f)) {
				return place
			}
		}
	}
	if place.Owner != Application {
		return o.inwards(p, stack, from, skip, place)
	}
	return place
}

// inwards returns the nearest application frame that the bottleneck calls, or else what was found outwards.
func (o Owners) inwards(p *stacks.Profile, stack []int, from int, skip []Pattern, place Place) Place {
	for i := from - 1; i >= 0; i-- {
		if f := p.Frames[stack[i]]; o.Of(f) == Application && !unnamed(f, skip) {
			return Place{At: i, Through: -1, Owner: Application}
		}
	}
	return place
}

// Synthetic reports whether a compiler or framework generated the class or method around somebody's code, such as
// lambdas and proxies.
func Synthetic(f stacks.Frame) bool {
	return hasPart(f.Name, syntheticParts)
}

func unnamed(f stacks.Frame, skip []Pattern) bool {
	if Synthetic(f) || builtin(f.Name) {
		return true
	}
	for _, p := range skip {
		if p.Frame(f) {
			return true
		}
	}
	return false
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
