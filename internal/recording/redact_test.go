package recording

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// secret stands for text that must not be in any output. It is not a key-like word by itself.
const secret = "hunter2"

func TestRedactHides(t *testing.T) {
	for _, line := range []string{
		"app --password hunter2", "app --password=hunter2", "app --password:hunter2", "app -password hunter2",
		"app --db-pass hunter2", "app --pass=hunter2", "app DB_PASS=hunter2", "app PGPASSWORD=hunter2",
		"app MYSQL_PWD=hunter2",
		"java -Dpassword=hunter2 -jar a.jar", "java -Djavax.net.ssl.keyStorePassword=hunter2", "java -Dapp.key=hunter2",
		"java -Dspring.datasource.url=jdbc:mysql://root:hunter2@db/app",
		"keytool -storepass hunter2", "openssl rsa -passin pass:hunter2", "app --token hunter2", "app --token -hunter2",
		"app --api-key hunter2", "app API_KEY=hunter2", "app --access-key=hunter2", "app AWS_SECRET_ACCESS_KEY=hunter2",
		"app --client-secret hunter2", "app --auth hunter2", "app -p hunter2", "app -u root:hunter2",
		"redis-cli -a hunter2",
		"redis-server --requirepass hunter2", "mysql -phunter2 db", "mysqldump -uroot -phunter2 db",
		"/usr/bin/mariadb -phunter2",
		"docker exec db mysql -phunter2", "sshpass -phunter2 ssh host", "7z a -phunter2 x.7z", "ldapsearch -w hunter2",
		"smbclient -U me%hunter2", "curl -ume:hunter2 http://h/", "curl -u me:hunter2 http://h/",
		"curl -H Authorization:hunter2", "curl -HX-Api-Key:hunter2",
		"app postgres://me:hunter2@db/app", "app postgres://me:a/hunter2@db/app", "app amqp://me:a@hunter2@mq:5672/",
		"app DATABASE_URL=postgres://me:hunter2@db/app", "app jdbc:mysql://db/app?user=me&password=hunter2",
		"app jdbc:oracle:thin:me/hunter2@db:1521:orcl", "app jdbc:sqlserver://db;user=sa;password=hunter2",
		"app Server=db;User=sa;Password=hunter2", "app https://h/x?sig=hunter2", "app https://h/x?a=1&token=hunter2",
		`app {"user":"me","password":"hunter2"}`, "app --session-cookie hunter2", "app --pin hunter2",
		"app sentry_dsn=hunter2",
		// Attack 12.
		"app --pw hunter2", "java -Dcreds=hunter2", "app --otp hunter2", "app --passcode=hunter2",
		"app --license hunter2",
		"app --db-pw=hunter2", "app DB_PW=hunter2", "app --totp hunter2", "app --licence=hunter2", "app --cred hunter2",
		"app --jwt hunter2", "app --sas=hunter2", "app --connection-string hunter2", "java -Ddb.creds=hunter2",
		"java -DdbPw=hunter2", "app a=b;pw=hunter2;c=d", "app https://h/x?a=1&key=hunter2",
		"app jdbc:x://db;otp=hunter2",
	} {
		if got := strings.Join(Redact(strings.Fields(line)), " "); strings.Contains(got, secret) {
			t.Errorf("%s\n  became %s", line, got)
		}
	}
	for _, arg := range []string{
		"Authorization: Bearer hunter2", "Proxy-Authorization: Basic hunter2", "X-Auth-Token: hunter2",
		"Cookie: a=hunter2",
		"host=db user=me password=hunter2 dbname=app", "host=db password = hunter2", "A=1 TOKEN=hunter2 ./run",
		"mysql --password=hunter2",
		"mysql --password hunter2", "curl -H 'Authorization: Bearer hunter2' http://h/",
		"export A=1; TOKEN=hunter2 ./run",
		"nginx: worker --token hunter2", "run --pw hunter2", "run --db-pw hunter2", "java -Dcreds=hunter2",
		"key: hunter2",
	} {
		if got := strings.Join(Redact([]string{"sh", "-c", arg}), " "); strings.Contains(got, secret) {
			t.Errorf("one word %q\n  became %s", arg, got)
		}
	}
}

func TestRedactHidesKeysByTheirForm(t *testing.T) {
	for _, key := range []string{
		"ghp_16C7e42F292c6912E7710c838347Ae178B4a", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N", "d41d8cd98f00b204e9800998ecf8427e",
		"xoxb-123456789012-abcdefghij", "sk-abcdefghijklmnopqrst1234", "glpat-abcdefghijklmnopqrst",
		"c29tZSBzZWNyZXQgdmFsdWUgMTIzNDU2Nzg5MA==",
	} {
		for _, arg := range []string{key, "--x=" + key} {
			if got := Redact([]string{"app", arg}); strings.Contains(strings.Join(got, " "), key[:20]) {
				t.Errorf("%s became %q", arg, got)
			}
		}
	}
}

func TestRedactKeeps(t *testing.T) {
	for _, line := range []string{
		"java -Xmx2g -Xms512m -XX:+UseG1GC -XX:InitiatingHeapOccupancyPercent=45 " +
			"-XX:+PrintGCApplicationConcurrentTime -jar app.jar",
		"java -cp /app/lib/auth.jar:/app/lib/session-token.jar:/app/main.jar com.example.authentication.Main",
		"/usr/sbin/nginx -g daemon off;", "python3 -m http.server 8080", "node --max-old-space-size=4096 server.js",
		"/usr/bin/envoy --concurrency 2 --config-path /etc/envoy.yaml", "postgres: checkpointer",
		"redis-server 127.0.0.1:6379", "app --listen=0.0.0.0:8080 --workers 16 --log-level=info",
		"app --enable-experimental-feature-with-a-long-name", "curl https://example.com/a/b", "mysqld --port=3306",
		"mysqld --key-buffer-size=16M --keepalive=30", "app --keyspace orders --pinned=2",
		"java -XX:+UseNUMA -Dkeepalive=60",
		"app --monkey 3 --spin 4 --turnkey=yes",
		"app --upstream=http://10.0.0.5:8080/path", "java -Dserver.port=8080 -Dhttp.maxConnections=200", "***", "",
	} {
		args := strings.Split(line, " ")
		if diff := cmp.Diff(args, Redact(args)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", line, diff)
		}
	}
}

func TestRedactBounds(t *testing.T) {
	got := Redact(slices.Repeat([]string{"a"}, 1000))
	if len(got) != maxArgs+1 || got[maxArgs] != "…" {
		t.Errorf("%d arguments are kept, the last is %q", len(got), got[len(got)-1])
	}
	got = Redact([]string{strings.Repeat("é.", 1<<20)})
	if len(got[0]) > maxArg+len("…") || !utf8.ValidString(got[0]) {
		t.Errorf("an argument of %d bytes is kept", len(got[0]))
	}
	if got := Redact([]string{"a\xffb"}); got[0] != "a\uFFFDb" {
		t.Errorf("invalid UTF-8 became %q", got)
	}
	if got := Redact(nil); got != nil {
		t.Errorf("nothing became %q", got)
	}
}

func FuzzRedact(f *testing.F) {
	for _, line := range []string{
		"app --password x", "mysql -psecret", "a=b?c&d;e", "x://a:b@c", "-p", "\xff",
		"jdbc:oracle:thin:a/b@c",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		once := Redact(args)
		for _, a := range once {
			if !utf8.ValidString(a) || len(a) > maxArg+len("…") {
				t.Fatalf("%q gave %q", args, a)
			}
		}
		// The value after a password option is hidden, whatever surrounds it.
		hidden := Redact([]string{"app", "--password", "zq" + line + "zq", "--password=zq" + line})
		if diff := cmp.Diff([]string{"app", "--password", redacted, "--password=" + redacted}, hidden); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(once, Redact(once)); diff != "" {
			t.Fatalf("redacting twice differs:\n%s", diff)
		}
	})
}

// TestSecretsInNames is attack 12: a thread or process whose name holds a secret.
func TestSecretsInNames(t *testing.T) {
	// Two names that are equal once redacted, and no thread id: they become one thread.
	threads := []stacks.Thread{{Name: "token=hunter2"}, {Name: "http-nio-8080-exec-1"}, {Name: "token=hunter22"}}
	frames := []stacks.Frame{{Name: "f"}}
	samples := []stacks.Sample{
		{Stack: []int{0}, Count: 1, Value: 1},
		{Stack: []int{0}, Thread: 1, Count: 1, Value: 1},
		{Stack: []int{0}, Thread: 2, Count: 1, Value: 1},
	}
	b := NewBuilder()
	a := b.Appender()
	a.Counter(metric.ProcessCPU, 1, "7", "pw=hunter2", "user", "target")
	a.Profile(&stacks.Profile{Event: stacks.CPU, Threads: threads, Frames: frames, Samples: samples})
	a.Commit()
	rec := b.Done(Meta{Target: Target{Name: "otp=hunter2"}})
	profile, ok := rec.Profile(stacks.CPU)
	if !ok {
		t.Fatal("no profile")
	}
	got := []string{rec.Counter(metric.ProcessCPU)[0].Label("comm"), rec.Meta.Target.Name}
	for _, thread := range profile.Threads {
		got = append(got, thread.Name)
	}
	slices.Sort(got)
	want := []string{"http-nio-8080-exec-1", "otp=***", "pw=***", "token=***"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
