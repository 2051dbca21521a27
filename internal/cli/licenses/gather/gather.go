package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/cli/licenses"
)

// program is the package whose licences are gathered.
const program = "github.com/perfdoctor/perfdoctor/cmd/perfdoctor"

// licenceFile matches the file names under which a Go module keeps what its licence asks to be shown.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors)([.-].*)?$`)

// goPackage is the part of `go list -json`'s output that is used here.
type goPackage struct {
	Dir    string
	Module *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// gather returns the licence texts of the modules in the program, for every architecture it is built for, and of Go
// itself, as a txtar file with one entry per module.
func gather(ctx context.Context) (*txtar.Archive, error) {
	var list []goPackage
	for _, arch := range []string{"amd64", "arm64"} {
		pkgs, err := packages(ctx, arch)
		if err != nil {
			return nil, err
		}
		list = append(list, pkgs...)
	}
	goroot, err := os.ReadFile(filepath.Join(goRoot(ctx), "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("the licence of Go: %w", err)
	}
	out := &txtar.Archive{Files: []txtar.File{{Name: licenses.GoName, Data: goroot}}}
	files := licenceFiles(list)
	for _, key := range sortedKeys(files) {
		text, err := join(files[key])
		if err != nil {
			return nil, err
		}
		if text == "" {
			return nil, fmt.Errorf("%s: no licence file in its module: it cannot be passed on", key)
		}
		out.Files = append(out.Files, txtar.File{Name: key, Data: []byte(text)})
	}
	return out, nil
}

// goRoot is where Go's own licence is.
func goRoot(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return runtime.Version() // a directory that does not exist: whoever reads it says so
	}
	return strings.TrimSpace(string(out))
}

func packages(ctx context.Context, arch string) ([]goPackage, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Module", program)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module != nil && !p.Module.Main {
			list = append(list, p)
		}
	}
}

// licenceFiles returns the licence files in the directories of the packages and above, up to the root of each module:
// a module may hold a package under its own licence.
func licenceFiles(list []goPackage) map[string][]string {
	files := map[string][]string{}
	for _, p := range list {
		key := licenses.Key(p.Module.Path, p.Module.Version)
		for dir := p.Dir; strings.HasPrefix(dir, p.Module.Dir); dir = filepath.Dir(dir) {
			for _, f := range licencesIn(dir) {
				if !slices.Contains(files[key], f) {
					files[key] = append(files[key], f)
				}
			}
		}
		if files[key] == nil {
			files[key] = []string{}
		}
		slices.Sort(files[key])
	}
	return files
}

func licencesIn(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the module then has no licence, and that is reported
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() && licenceFile.MatchString(e.Name()) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

func join(files []string) (string, error) {
	var b strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		b.Write(text)
		b.WriteString("\n")
	}
	return b.String(), nil
}

func sortedKeys(m map[string][]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func pack(a *txtar.Archive) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(txtar.Format(a), nil), w.Close()
}
