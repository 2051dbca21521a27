// Command release makes what a release consists of: the program for each architecture, Debian and RPM packages, a bill
// of materials for each program, the checksums of them all, and a signature of these. The same commit gives the same
// bytes: nothing in them is of the machine, the path or the time of the build.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// architectures are those that a release is for, as GOARCH.
var architectures = []string{"amd64", "arm64"}

// A release is what all of its files have in common.
type release struct {
	root    string // of the repository
	out     string
	version string    // as git describe gives it; the program says it
	time    time.Time // of the commit: what is in packages has it
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := release{}
	flag.StringVar(&r.root, "root", ".", "the repository")
	flag.StringVar(&r.out, "out", "dist", "a directory for the files; what a former release left there is removed")
	only := flag.String("arch", "", "one architecture instead of all")
	flag.Parse()
	if err := r.run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

func (r *release) run(ctx context.Context, only string) error {
	if err := r.describe(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // a release is for everybody
		return err
	}
	for _, arch := range architectures {
		if only != "" && only != arch {
			continue
		}
		if err := r.build(ctx, arch); err != nil {
			return err
		}
		if err := r.pack(arch); err != nil {
			return err
		}
	}
	if err := checksums(r.out); err != nil {
		return err
	}
	return r.sign(ctx, os.Getenv(keyVar), os.Stderr)
}

// describe asks git for the version and the time of the commit.
func (r *release) describe(ctx context.Context) error {
	version, err := r.git(ctx, "describe", "--tags", "--always", "--dirty")
	if err != nil {
		return err
	}
	seconds, err := r.git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("the time of the commit: %w", err)
	}
	r.version, r.time = version, time.Unix(n, 0).UTC()
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (r *release) binary(arch string) string { return filepath.Join(r.out, "perfdoctor-linux-"+arch) }

// build makes the program and its bill of materials. It is what `make binary` does, for any architecture.
func (r *release) build(ctx context.Context, arch string) error {
	out, err := filepath.Abs(r.binary(arch))
	if err != nil {
		return err
	}
	// -buildvcs=false: the version says it already, and a copy without .git must give the same bytes.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+r.version, "-o", out, "./cmd/perfdoctor")
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build for %s: %w", arch, err)
	}
	bill, err := os.OpenFile(r.binary(arch)+".cdx.json", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // for everybody
	if err != nil {
		return err
	}
	return errors.Join(r.billOfMaterials(bill, arch), bill.Close())
}

// described is what git says some commits after a tag.
var described = regexp.MustCompile(`^v([0-9][0-9.]*)(?:-([0-9]+)-g([0-9a-f]+))?(-dirty)?$`)

// packageVersion is the version as package managers sort it: v0.1.0-12-gabc comes after 0.1.0, and a commit without a
// tag before all.
func (r *release) packageVersion() string {
	m := described.FindStringSubmatch(r.version)
	switch {
	case m == nil:
		return "0.0.0+" + strings.ReplaceAll(r.version, "-", ".")
	case m[2] != "":
		return m[1] + "+" + m[2] + ".g" + m[3] + strings.ReplaceAll(m[4], "-", ".")
	case m[4] != "":
		return m[1] + "+dirty"
	}
	return m[1]
}

// checksums writes SHA256SUMS of all that is in dir, as sha256sum -c reads it.
func checksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		sum, err := sumOf(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sum, e.Name()))
	}
	// by name, after 64 digits and two blanks
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644) //nolint:gosec // for everybody
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h.Sum(nil), nil
}
