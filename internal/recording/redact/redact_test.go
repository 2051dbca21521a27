package redact

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var test = New([]byte("a key of sixteen bytes and more"))

func address(t *testing.T, s string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAddressesStayRelated: the checks' questions about addresses have the same answers for their pseudonyms.
func TestAddressesStayRelated(t *testing.T) {
	for _, s := range []string{
		"127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "224.0.0.1",
		"255.255.255.255", "ff02::1",
	} {
		if a := address(t, s); test.Addr(a) != a {
			t.Errorf("%s became %s, and names no host", s, test.Addr(a))
		}
	}
	for _, s := range []string{
		"10.1.2.3", "172.20.1.9", "192.168.1.1", "100.64.3.3", "169.254.169.254", "8.8.8.8",
		"203.0.113.7", "1.0.0.1", "fd12::1", "fe80::1", "2a00::1",
	} {
		a := address(t, s)
		p := test.Addr(a)
		same := p.IsPrivate() == a.IsPrivate() && p.IsLinkLocalUnicast() == a.IsLinkLocalUnicast() &&
			p.Is4() == a.Is4() && !p.IsLoopback() &&
			!p.IsMulticast() && !p.IsUnspecified()
		if p == a || !same {
			t.Errorf("%s became %s, want another of its kind", s, p)
		}
		if a.Is4() {
			if in6 := test.Addr(netip.AddrFrom16(a.As16())); in6.Unmap() != p {
				t.Errorf("%s in IPv6 became %s, itself %s", s, in6, p)
			}
		}
	}
}

// TestNetworksStay: a network's addresses stay in one network, and no two of them have the same pseudonym.
func TestNetworksStay(t *testing.T) {
	for _, network := range []string{"10.3.4.0/24", "172.16.0.0/24", "192.168.255.0/24", "8.8.8.0/24"} {
		seen := map[netip.Addr]bool{}
		networks := map[netip.Prefix]bool{}
		a := netip.MustParsePrefix(network).Addr()
		for range 256 {
			p := test.Addr(a)
			seen[p] = true
			in, err := p.Prefix(24)
			if err != nil {
				t.Fatal(err)
			}
			networks[in] = true
			a = a.Next()
		}
		if len(seen) != 256 || len(networks) != 1 {
			t.Errorf("%s: %d pseudonyms in %d networks, want 256 in one", network, len(seen), len(networks))
		}
	}
	seen := map[netip.Addr]string{}
	for a := netip.MustParseAddr("192.168.0.7"); netip.MustParsePrefix("192.168.0.0/16").Contains(a); {
		if before, ok := seen[test.Addr(a)]; ok {
			t.Fatalf("%s and %s have one pseudonym", a, before)
		}
		seen[test.Addr(a)] = a.String()
		raw := a.As4()
		raw[2]++
		if a = netip.AddrFrom4(raw); raw[2] == 0 {
			break
		}
	}
	one, other := test.Addr(netip.MustParseAddr("2a00:1:2:3::1")), test.Addr(netip.MustParseAddr("2a00:1:2:3::2"))
	x, _ := one.Prefix(64)
	if y, _ := other.Prefix(64); x != y || one == other {
		t.Errorf("%s and %s, want two addresses of one /64", one, other)
	}
}

// TestKeys: the key alone decides.
func TestKeys(t *testing.T) {
	again, other := New([]byte("a key of sixteen bytes and more")), New([]byte("another key of that length"))
	if test.User("alice") != again.User("alice") || test.ID() != again.ID() {
		t.Error("the same key gives other pseudonyms")
	}
	if test.User("alice") == other.User("alice") || test.ID() == other.ID() ||
		test.Endpoint("10.0.0.1:80") == other.Endpoint("10.0.0.1:80") {
		t.Error("another key gives the same pseudonyms")
	}
	if test.Word("user", "alice") == test.Word("host", "alice") {
		t.Error("a user and a host of one name have one pseudonym")
	}
	if once := test.User("alice"); test.User(once) != once {
		t.Error("a pseudonym got another one")
	}
}

// names are parts of originals. None of them may be in what is made of them.
var names = []string{"alice", "acme", "10.9.8", "fd99", "billing", "9f8e7d6c"}

// shape is a text with its pseudonyms replaced by their kinds, for a table.
func shape(s string) string {
	for _, kind := range []string{"user", "host", "name", "container", "if", "arg", "net"} {
		for {
			i := strings.Index(s, kind+"-")
			if i < 0 || len(s) < i+len(kind)+1+2*wordBytes || !test.isPseudonym(kind, s[i:i+len(kind)+1+2*wordBytes]) {
				break
			}
			s = s[:i] + "<" + kind + ">" + s[i+len(kind)+1+2*wordBytes:]
		}
	}
	return s
}

func TestTexts(t *testing.T) {
	n := test
	n.User("alice")
	n.Word("container", "9f8e7d6c5b4a")
	hidden, hidden6 := n.Addr(netip.MustParseAddr("10.9.8.7")).String(), n.Addr(netip.MustParseAddr("fd99::7")).String()
	tests := map[string]struct {
		by       func(string) string
		in, want string
	}{
		"host path": {
			n.Text, "open /export/alice/acme.conf: permission denied",
			"open /<name>/<name>/<name>.conf: permission denied",
		},
		"proc":          {n.Text, "read /proc/4021/maps", "read /proc/4021/maps"},
		"root of a pid": {n.Text, "open /proc/4021/root/acme/x", "open /proc/4021/root/<name>/<name>"},
		"address":       {n.Text, "connect to 10.9.8.7:443.", "connect to " + hidden + ":443."},
		"IPv6":          {n.Text, "connect to [fd99::7]:443", "connect to [" + hidden6 + "]:443"},
		"host":          {n.Text, "db1.acme.internal does not answer", "<host> does not answer"},
		"user and host": {n.Text, "bob@db1.acme.internal", "<user>@<host>"},
		"mentioned":     {n.Text, "container 9f8e7d6c5b4a of alice", "container <container> of <user>"},
		"sentence": {
			n.Text, "run as root, or with CAP_PERFMON; 5 / 60 s; e.g. 1.2 of 3",
			"run as root, or with CAP_PERFMON; 5 / 60 s; e.g. 1.2 of 3",
		},
		"a version":      {n.Text, "Linux 6.1.0-13-amd64, JDK 17.0.9+9", "Linux 6.1.0-13-amd64, JDK 17.0.9+9"},
		"thread":         {n.Name, "http-nio-8080-exec-3", "http-nio-8080-exec-3"},
		"thread of host": {n.Name, "pool db1.acme.internal:5432 10.9.8.7", "pool <host>:5432 " + hidden},
		"pool":           {n.Pool, "conn 10.9.8.", "conn <net>"},
		"method":         {n.Code, "com.example.shop.Cache.get", "com.example.shop.Cache.get"},
		"C++":            {n.Name, "std::vector<int>::add", "std::vector<int>::add"},
		"Go":             {n.Code, "github.com/x/y.(*T).Run", "github.com/x/y.(*T).Run"},
		"script":         {n.Code, "~handler /srv/acme/billing.js:12", "~handler /srv/<name>/<name>.js:12"},
		"URL of script": {
			n.Code, "~handler file:///srv/acme/billing.js:12",
			"~handler file:///srv/<name>/<name>.js:12",
		},
		"group": {n.Path, "/system.slice/acme.service", "/system.slice/<name>.service"},
		"pod": {
			n.Path, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podacme.slice",
			"/kubepods.slice/kubepods-burstable.slice/<name>.slice",
		},
		"group's files": {
			n.Path, "/sys/fs/cgroup/cpu,cpuacct/acme/cpu.max",
			"/sys/fs/cgroup/cpu,cpuacct/<name>/cpu.max",
		},
		"agent":         {n.Program, "/opt/acme/liboneagentproc.so", "/opt/<name>/liboneagentproc.so"},
		"eth0":          {n.Device, "eth0", "eth0"},
		"veth":          {n.Device, "veth3fa2b1c", "veth3fa2b1c"},
		"bridge":        {n.Device, "br-acme", "br-<if>"},
		"named":         {n.Device, "acme0", "<if>"},
		"listener":      {n.Endpoint, "0.0.0.0:8080", "0.0.0.0:8080"},
		"host and port": {n.Endpoint, "db1.acme.internal:5432", "<host>:5432"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.by(tt.in)
			if diff := cmp.Diff(tt.want, shape(got)); diff != "" {
				t.Errorf("%q: -want +got:\n%s", tt.in, diff)
			}
			for _, original := range names {
				if strings.Contains(got, original) {
					t.Errorf("%q still has %q", got, original)
				}
			}
		})
	}
}

func TestArgs(t *testing.T) {
	tests := map[string]struct{ in, want []string }{
		"java": {
			[]string{
				"/usr/lib/jvm/temurin/bin/java", "-Xmx512m", "-XX:+UseG1GC", "-XX:HeapDumpPath=/opt/acme/heap",
				"-Dacme.host=db1",
				"-javaagent:/opt/acme/agent.jar=k=v", "-cp", "/opt/acme/a.jar:/opt/acme/b.jar", "com.example.Main",
				"alice",
			},
			[]string{
				"/usr/lib/jvm/<name>/bin/java", "-Xmx512m", "-XX:+UseG1GC", "-XX:HeapDumpPath=/opt/<name>/<name>",
				"-Dacme.host=<arg>",
				"-javaagent:/opt/<name>/agent.jar=k=<arg>", "-cp", "/opt/<name>/<name>.jar:/opt/<name>/<name>.jar",
				"com.example.Main", "<arg>",
			},
		},
		"a jar's arguments": {
			[]string{"java", "-jar", "/srv/acme.jar", "Alice"},
			[]string{"java", "-jar", "/srv/<name>.jar", "<arg>"},
		},
		"client": {
			[]string{"mysql", "-ualice", "-h", "db1.acme.internal", "--port=3306", "--host", "db1", "***"},
			[]string{"mysql", "-u<arg>", "-h", "<host>", "--port=3306", "--host", "<arg>", "***"},
		},
		"URL": {
			[]string{
				"wrk", "-t4", "http://db1.acme.internal:8080/billing/7", "jdbc:postgresql://db1/acme",
				"DSN=db1:5432",
			},
			[]string{"wrk", "-t4", "http://<host>:8080/<name>/7", "jdbc:postgresql://<host>/<name>", "DSN=<host>:5432"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range test.Args(tt.in) {
				got = append(got, shape(a))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// FuzzText: no text makes it fail, and its result has no address of the text.
func FuzzText(f *testing.F) {
	f.Add("open /export/alice/x: 10.9.8.7:443 [fd99::7]:1 a@b.com")
	f.Add("::0%")
	f.Fuzz(func(t *testing.T, s string) {
		for _, by := range []func(string) string{
			test.Text, test.Name, test.Code, test.Pool, test.Path, test.Device,
			test.Endpoint,
		} {
			if out := by(s + " 10.9.8.7 x"); strings.Contains(out, " 10.9.8.7 ") && !strings.Contains(out, "/") {
				t.Errorf("%q became %q", s, out)
			}
		}
		test.Args([]string{s, s, "-" + s})
	})
}

// TestPublicPython: files of Python's standard library, and packages that rules know, are public. What is around and
// beside them is not.
func TestPublicPython(t *testing.T) {
	n := New([]byte("key"))
	for _, path := range []string{
		"/usr/lib/python3.11/logging/__init__.py", "/usr/local/lib/python3.13/re/_compiler.py",
		"/usr/lib/python3.11/site-packages/pyaes/aes.py", "/usr/lib/python3/dist-packages/redis/connection.py",
	} {
		if got := n.Path(path); got != path {
			t.Errorf("%s became %s", path, got)
		}
	}
	for _, path := range []string{
		"/usr/lib/python3.11/site-packages/acme/secret.py", "/opt/acme/python3.11/secret.txt",
		"/srv/alice/rsa/secret.key", "/srv/alice/redis/secret.py", "/opt/acme/rsa/core.py",
	} {
		if got := n.Path(path); strings.Contains(got, "acme") || strings.Contains(got, "secret") ||
			strings.Contains(got, "alice") {
			t.Errorf("%s became %s", path, got)
		}
	}
}

// TestPublicRuby tests the same for Ruby's library, and for gems that rules know.
func TestPublicRuby(t *testing.T) {
	n := New([]byte("key"))
	for path, ends := range map[string]string{
		"/usr/lib/ruby/3.1.0/json/common.rb":                                    "/ruby/3.1.0/json/common.rb",
		"/var/lib/gems/3.1.0/gems/puma-5.6.5/lib/puma/thread_pool.rb":           "/puma/thread_pool.rb",
		"/usr/lib/ruby/vendor_ruby/sidekiq/fetch.rb":                            "/vendor_ruby/sidekiq/fetch.rb",
		"/opt/acme/gems/connection_pool-2.3/lib/connection_pool/timed_stack.rb": "/connection_pool/timed_stack.rb",
		"/srv/alice/puma/secret.rb":                                             ".rb",
		"/opt/acme/gems/secret-1.0/lib/secret.rb":                               ".rb",
	} {
		got := n.Path(path)
		if !strings.HasSuffix(got, ends) || strings.Contains(got, "acme") || strings.Contains(got, "secret") ||
			strings.Contains(got, "alice") {
			t.Errorf("%s became %s", path, got)
		}
	}
}

// TestPackagesOfNode: the directory of installed packages, which stays, tells who owns a script.
func TestPackagesOfNode(t *testing.T) {
	n := New([]byte("key"))
	got := n.Code("JS:lex /srv/acme/node_modules/secret/lib/secret.cjs:12")
	if !strings.Contains(got, "/node_modules/") || !strings.HasSuffix(got, ".cjs:12") ||
		strings.Contains(got, "acme") || strings.Contains(got, "secret") {
		t.Errorf("it became %s", got)
	}
}
