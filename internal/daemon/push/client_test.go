package push

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// file writes a file in a directory of the test.
func file(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSecretsFromFiles: passwords and tokens in files are read when a message is sent, so that they can be changed.
func TestSecretsFromFiles(t *testing.T) {
	for name, tc := range map[string]struct{ config, secret, want, other, then string }{
		"password": {
			"basic_auth: {username: node, password_file: secret}", "first\n", "Basic bm9kZTpmaXJzdA==", "second",
			"Basic bm9kZTpzZWNvbmQ=",
		},
		"token": {"authorization: {credentials_file: secret}", "first", "Bearer first", "second\n", "Bearer second"},
		"other": {"authorization: {type: Token, credentials_file: secret}", "a b", "Token a b", "c", "Token c"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 10)
			s := httptest.NewServer(
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") }))
			defer s.Close()
			dir := t.TempDir()
			file(t, dir, "secret", tc.secret)
			p := running(t, Options{Webhook: Server{URL: s.URL, ConfigFile: file(t, dir, "push.yml", tc.config)}})
			for i, want := range []string{tc.want, tc.then} {
				p.enqueue(p.hook, message{body: func() ([]byte, string, error) {
					return []byte("news"), "text/plain",
						nil
				}})
				select {
				case auth := <-got:
					if auth != want {
						t.Errorf("message %d with %q, want %q", i, auth, want)
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("message %d did not come", i)
				}
				file(t, dir, "secret", tc.other)
			}
		})
	}
}

// TestConfigFiles: a configuration that cannot be used is refused before anything is sent. No part that may be a
// password is quoted.
func TestConfigFiles(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ url, config, want string }{
		{"http://h", "hunter2", "push.yml, line 1: not as http_config"},
		{"http://h", "basic_auth: {username: node, pasword: hunter2}", "push.yml, line 1: not as http_config"},
		{"http://h", "basic_auth:\n  username: node\n  password: [hunter2]", "push.yml, line 3: not as http_config"},
		{"http://h", "proxy_url: http://user:hunter2@h:%zz", "push.yml: not as http_config"},
		{"http://h", "basic_auth: {username: node, password_file: none}", "none: no such file or directory"},
		{"http://h", "authorization: {credentials_file: none}", "none: no such file or directory"},
		{"http://h", "tls_config: {ca_file: none}", "none: no such file or directory"},
		{
			"http://h", "basic_auth: {username: a, password: hunter2}\nauthorization: {credentials: hunter2}",
			"push.yml: at most one of basic_auth",
		},
		{"http://u:hunter2@h", "authorization: {credentials: hunter2}", "leave one of them out"},
		{"", "authorization: {credentials: hunter2}", "--push.webhook.config.file goes with --push.webhook"},
	} {
		_, err := New(Options{Webhook: Server{URL: tc.url, ConfigFile: file(t, dir, "push.yml", tc.config)}})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", tc.config, err, tc.want)
		}
	}
	_, err := New(Options{OTLP: Server{URL: "http://h", ConfigFile: filepath.Join(dir, "none.yml")}})
	if err == nil || !strings.Contains(err.Error(), "none.yml: no such file or directory") {
		t.Error(err)
	}
}

// FuzzConfigFile: whatever is in the file, no error quotes a secret from it.
func FuzzConfigFile(f *testing.F) {
	const secret = "hunter2"
	for _, s := range []string{
		"\x00", "basic_auth: {password: \x00}", "proxy_url: http://u:\x00@h:%zz",
		"http_headers: {a: {values: [\x00]}}", "authorization:\n- \x00",
	} {
		before, after, _ := strings.Cut(s, "\x00")
		f.Add(before, after)
	}
	path := filepath.Join(f.TempDir(), "push.yml")
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before, "_file") || strings.Contains(after, "_file") {
			t.Skip("it would read a file of any name, which an error names")
		}
		if err := os.WriteFile(path, []byte(before+secret+after), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := clientOf(path); err != nil && strings.Contains(err.Error(), secret) {
			t.Error(err)
		}
	})
}
