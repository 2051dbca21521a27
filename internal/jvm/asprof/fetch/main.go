// Command fetch downloads async-profiler's library by Maven, pinned by version and checksum, into
// internal/jvm/asprof/library, where the build embeds it. It does nothing when the right library is already there, so
// a build that has fetched once works offline.
//
//	fetch [--have] DIRECTORY
//
// With --have it only reports, by its exit status, whether everything is there.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
)

// plugin is the part of Maven that unpacks an artifact. With an empty repository, fetching it and its dependencies
// takes 6 s.
const plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack"

// limit bounds the download; after that the build goes on without the library.
const limit = 2 * time.Minute

func main() {
	args := os.Args[1:]
	only := len(args) == 2 && args[0] == "--have"
	if only {
		args = args[1:]
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: fetch [--have] DIRECTORY")
		os.Exit(2)
	}
	if have(args[0]) {
		return
	}
	if only {
		os.Exit(1)
	}
	if err := fetch(context.Background(), args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "fetch: async-profiler:", err)
		os.Exit(1)
	}
}

// have reports whether every library is there and is the pinned one.
func have(dir string) bool {
	for _, f := range library.Files() {
		if _, err := f.Read(os.DirFS(dir)); err != nil {
			return false
		}
	}
	return true
}

func fetch(ctx context.Context, dir string) error {
	tmp, err := os.MkdirTemp("", "perfdoctor-fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // best effort: it is a temporary directory
	if err := runMaven(ctx, tmp); err != nil {
		return err
	}
	for _, f := range library.Files() {
		if err := place(f, tmp, dir); err != nil {
			return err
		}
	}
	return nil
}

func runMaven(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", plugin,
		"-Dartifact="+library.Artifact,
		"-Dmdep.unpack.includes=linux-*/libasyncProfiler.so", "-DoutputDirectory="+to)
	cmd.Dir = to // without a pom.xml that could change what Maven does
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("there is no mvn: install Maven (Debian package maven)")
	case ctx.Err() != nil:
		return fmt.Errorf("mvn did not end within %v", limit)
	case err != nil:
		return fmt.Errorf("mvn: %w: %s", err, firstError(string(out)))
	}
	return nil
}

// firstError returns the line in which Maven says what went wrong; the other lines say how to get more output.
func firstError(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "ERROR") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(out)
}

// place checks one library and puts it, compressed, where the build embeds it. An interrupted run leaves no partial
// file there.
func place(f library.File, from, to string) error {
	content, err := os.ReadFile(filepath.Join(from, f.InJar))
	if err != nil {
		return fmt.Errorf("%s has no %s: %w", library.Artifact, f.InJar, err)
	}
	if err := f.Verify(content); err != nil {
		return err
	}
	packed, err := library.Pack(content)
	if err != nil {
		return err
	}
	file := filepath.Join(to, f.Arch, library.FileName)
	if err := os.WriteFile(file+".new", packed, 0o644); err != nil { //nolint:gosec // public, and others may build here after root did
		return err
	}
	return os.Rename(file+".new", file)
}
