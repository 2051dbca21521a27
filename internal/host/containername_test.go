package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that mounts something that looks like Docker's files chooses the content of a container's config file.
func TestDockerNameLeadsNowhereElse(t *testing.T) {
	const secret = "root:$6$hunter2"
	for name, place := range map[string]func(config, other string) error{
		"link": func(config, other string) error { return os.Symlink("../"+filepath.Base(other), config) },
		"name": func(config, other string) error { return os.Link(other, config) },
		"fifo": func(config, _ string) error { return unix.Mkfifo(config, 0o600) },
		"text": func(config, _ string) error { return os.WriteFile(config, []byte(secret), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"status": "Uid:\t0\t0\t0\t0\n", "root/shadow": `{"Name":"` + secret + `"}`, "root/id/hostname": "",
			} {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := place(filepath.Join(dir, "root/id/config.v2.json"),
				filepath.Join(dir, "root/shadow")); err != nil {
				t.Fatal(err)
			}
			got, err := readDockerName(dir, "/id/config.v2.json")
			if err == nil || strings.ContainsAny(err.Error(), "$'") {
				t.Errorf("the name is %q, and the error %v", got, err)
			}
		})
	}
}
