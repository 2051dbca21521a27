package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
)

// billOfMaterials writes what is in one program as CycloneDX: the modules that its own build information names, and
// what is embedded in it. It is read from the program that was built rather than from go.mod, which also has what its
// tests need.
func (r *release) billOfMaterials(w io.Writer, arch string) error {
	info, err := buildinfo.ReadFile(r.binary(arch))
	if err != nil {
		return fmt.Errorf("what is in %s: %w", r.binary(arch), err)
	}
	components := append(goComponents(info), cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	})
	embedded, err := r.embedded(arch)
	if err != nil {
		return err
	}
	components = append(components, embedded...)
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.PackageURL, b.PackageURL) })
	for i := range components {
		components[i].BOMRef = components[i].PackageURL
	}
	sum, err := sumOf(r.binary(arch))
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: "perfdoctor", Type: cdx.ComponentTypeApplication, Name: "perfdoctor", Version: r.version,
			PackageURL: "pkg:golang/" + info.Main.Path + "@" + r.version,
			Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}},
		},
	}
	bom.Components = &components
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

func goComponents(info *debug.BuildInfo) []cdx.Component {
	var out []cdx.Component
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if strings.HasPrefix(m.Path, "./") { // tools/conntrack: part of this program
			continue
		}
		out = append(out, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: "pkg:golang/" + m.Path + "@" +
				m.Version,
		})
	}
	return out
}

// embedded are the parts that are no Go modules, if this build has them.
func (r *release) embedded(arch string) ([]cdx.Component, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	for _, f := range library.Files() {
		if f.Arch != arch {
			continue
		}
		_, err := f.Read(os.DirFS(filepath.Join(r.root, "internal/jvm/asprof/library")))
		if errors.Is(err, library.ErrNotBundled) {
			return page, nil
		}
		if err != nil {
			return nil, err
		}
		return append(page, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: "async-profiler", Version: library.Version,
			PackageURL: "pkg:maven/tools.profiler/async-profiler@" + library.Version,
			Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: f.SHA256}},
		}), nil
	}
	return page, nil
}

// page are the libraries of the HTML report's program, which are in it when it was built.
func (r *release) page() ([]cdx.Component, error) {
	_, err := os.Stat(filepath.Join(r.root, "internal/report/html/bundle/built/page.js"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(r.root, "web/package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version string `json:"version"`
			Dev     bool   `json:"dev"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("web/package-lock.json: %w", err)
	}
	var out []cdx.Component
	for path, p := range lock.Packages {
		name, ok := strings.CutPrefix(path, "node_modules/")
		if !ok || p.Dev {
			continue
		}
		out = append(out, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: name, Version: p.Version, PackageURL: "pkg:npm/" + name + "@" +
				p.Version,
		})
	}
	return out, nil
}
