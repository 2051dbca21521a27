// Package licenses holds the licences of the parts of this program: its own, those of the Go modules linked into it,
// and async-profiler's if it is bundled.
//
// The texts of the modules are not in the repository: internal/cli/licenses/gather takes them from the module cache
// when perfdoctor is built. A build without them still names every module, its version and where its licence is.
package licenses

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
	"github.com/perfdoctor/perfdoctor/internal/report/html/bundle"
)

// A License is one part of the program with everything that its licence asks to be shown.
type License struct {
	Name    string // module path, or the name of a program
	Version string //
	Text    string // licence and notice; empty if this build has no texts
}

// FileName is the gathered file in the folder texts.
const FileName = "licenses.txtar.zst"

//go:embed all:texts
var gathered embed.FS

// apache is the licence of perfdoctor and of async-profiler, the same as the file LICENSE of the repository,
// which go:embed cannot reach.
//
//go:embed apache-2.0.txt
var apache string

// notice is what the Apache licence asks of those who pass async-profiler on, and what else its library holds.
const notice = `async-profiler ` + library.Version + `
Copyright The async-profiler authors
https://github.com/async-profiler/async-profiler

libasyncProfiler.so is part of this program, compressed and otherwise unchanged,
as published in Maven's central repository under ` + library.Artifact + `.
It is licensed under the Apache License, Version 2.0, which follows. It contains
the GNU C++ runtime library under the GPL version 3 with the GCC Runtime Library
Exception, which allows that: https://www.gnu.org/licenses/gcc-exception-3.1
`

// own is perfdoctor's name among the licences.
const own = "perfdoctor"

// All lists perfdoctor, async-profiler and the libraries of the HTML report if they are bundled, the Go runtime, and
// every module that the build information of this program names, in this order.
func All() ([]License, error) {
	texts, err := gatheredTexts()
	if err != nil {
		return nil, fmt.Errorf("the licence texts of this build: %w", err)
	}
	list := []License{{Name: own, Text: apache}}
	if _, err := library.Bundled(); err == nil {
		list = append(list, License{"async-profiler", library.Version, notice + "\n" + apache})
	}
	page, err := bundle.Licenses()
	if err != nil {
		return nil, err
	}
	if page != "" {
		list = append(list, License{"libraries of the HTML report", "", page})
	}
	list = append(list, License{GoName, runtime.Version(), texts[GoName]})
	info, _ := debug.ReadBuildInfo() // without it there are no modules to list
	return append(list, modules(info, texts)...), nil
}

// GoName is the name of Go's runtime and standard library among the licences.
const GoName = "Go"

func modules(info *debug.BuildInfo, texts map[string]string) []License {
	if info == nil {
		return nil
	}
	var list []License
	for _, m := range info.Deps {
		if m.Replace != nil && !strings.HasPrefix(m.Replace.Path, "./") { // tools/conntrack has the name it stands for
			m = m.Replace
		}
		list = append(list, License{m.Path, m.Version, texts[Key(m.Path, m.Version)]})
	}
	slices.SortFunc(list, func(x, y License) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// Key is the name of a module's text in the gathered file.
func Key(path, version string) string { return path + "@" + version }

// maxTexts bounds what is unpacked: twenty times the size of twenty modules' texts.
const maxTexts = 4 << 20

func gatheredTexts() (map[string]string, error) {
	packed, err := gathered.ReadFile("texts/" + FileName)
	if err != nil {
		return nil, nil // a build without it: each licence is then named without its text
	}
	r, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxTexts))
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, f := range txtar.Parse(data).Files {
		texts[f.Name] = string(f.Data)
	}
	return texts, nil
}
