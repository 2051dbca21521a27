package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Fetch is a directory that is made once from packages and the case's own files.
type Fetch struct {
	Name    string   `yaml:",key" json:"-"`
	NPM     []string `yaml:"npm"`
	Scripts bool     `yaml:"scripts"` // npm packages may run their scripts: for native modules
	Pip     []string `yaml:"pip"`
	Maven   []string `yaml:"maven"`
	Go      []string `yaml:"go"`
	Cargo   []string `yaml:"cargo"`
	Apt     []string `yaml:"apt"`
	Link    []string `yaml:"link"` // libraries for *.c files
	Files   []string `yaml:"files"`
}

// client is a package client and what it should fetch.
type client struct {
	name     string
	packages []string
	exact    *regexp.Regexp
	want     string // the form of a package
	// install is nil if compile does it.
	install func(ctx context.Context, dir string, packages []string) error
}

// Patterns of exact versions: nothing that a client would look up, such as ^1.2, latest or a range.
var (
	atVersion    = regexp.MustCompile(`^(@[\w.-]+/)?[\w./~-]+@v?[0-9][\w.+-]*$`)
	npmAlias     = `(^[\w.-]+@npm:(@[\w.-]+/)?[\w.-]+@[0-9][\w.+-]*$)`
	npmVersion   = regexp.MustCompile(atVersion.String() + `|` + npmAlias)
	pipVersion   = regexp.MustCompile(`^[\w.-]+(\[[\w,.-]+\])?==[0-9][\w.+!-]*$`)
	mavenVersion = regexp.MustCompile(`^[\w.-]+:[\w.-]+:[0-9rRvV][\w.-]*(:[\w.-]+)?$`)
	aptName      = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+$`)
)

// clients returns all clients for the directory, in the order in which they run.
func (f *Fetch) clients() []client {
	npm := client{"npm", f.NPM, npmVersion, "NAME@VERSION", npmInstall}
	if f.Scripts {
		npm.install = npmInstallWithScripts
	}
	return []client{
		{"apt", f.Apt, aptName, "the name of a package", nil},
		npm,
		{"pip", f.Pip, pipVersion, "NAME==VERSION", pipInstall},
		{"maven", f.Maven, mavenVersion, "group:artifact:version", mavenInstall},
		{"go", f.Go, atVersion, "MODULE@VERSION", nil},
		{"cargo", f.Cargo, atVersion, "NAME@VERSION", nil},
	}
}

// fetchAll makes the directories of a case below cache, and returns their paths by name.
func (c *Case) fetchAll(ctx context.Context, cache string, say func(string, ...any)) (map[string]string, error) {
	paths := map[string]string{}
	for i := range c.Fetch {
		f := &c.Fetch[i]
		path, err := c.fetch(ctx, cache, f, say)
		if err != nil {
			return nil, fmt.Errorf("fetch %s: %w", f.Name, err)
		}
		paths[f.Name] = path
	}
	return paths, nil
}

// fetch makes one directory, unless it exists. The directory's name is just a hash: the name of the case says what is
// wrong, and would be in each command line.
func (c *Case) fetch(ctx context.Context, cache string, f *Fetch, say func(string, ...any)) (string, error) {
	if err := aptInstall(ctx, f.Apt); err != nil { // on the machine, which may be a different one than last time
		return "", err
	}
	key, err := c.key(f)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, key)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	say("%s: fetching %s", c.Name, f.Name)
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // processes of other users run from it
		return "", err
	}
	tmp, err := os.MkdirTemp(cache, "part-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := c.fill(ctx, f, tmp); err != nil {
		return "", err
	}
	err = os.Rename(tmp, path)
	if errors.Is(err, os.ErrExist) { // another run was faster
		return path, nil
	}
	return path, err
}

// fill copies the case's files into the directory, and runs the clients there.
func (c *Case) fill(ctx context.Context, f *Fetch, dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // processes of other users run from it
		return err
	}
	for _, name := range f.Files {
		data, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil { //nolint:gosec // a program
			return err
		}
	}
	for _, client := range f.clients() {
		if len(client.packages) == 0 || client.install == nil {
			continue
		}
		if err := client.install(ctx, dir, client.packages); err != nil {
			return fmt.Errorf("%s: %w", client.name, err)
		}
	}
	return f.compile(ctx, dir)
}

// key returns a hash of the definition and the files. Two cases with the same key share the directory.
func (c *Case) key(f *Fetch) (string, error) {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(f); err != nil {
		return "", err
	}
	for _, name := range f.Files {
		data, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return "", err
		}
		sum.Write(append(data, name...))
	}
	const enough = 16 // digits: 64 bits, for some hundreds of directories
	return hex.EncodeToString(sum.Sum(nil))[:enough], nil
}
