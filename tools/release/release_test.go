package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

const root = "../.."

func TestPackageVersion(t *testing.T) {
	for in, want := range map[string]string{
		"v1.2.0":                  "1.2.0",
		"v1.2.0-dirty":            "1.2.0+dirty",
		"v1.2.0-12-gabcdef0":      "1.2.0+12.gabcdef0",
		"v1.2.0-12-g0123-dirty":   "1.2.0+12.g0123.dirty",
		"abcdef0":                 "0.0.0+abcdef0",
		"abcdef0-dirty":           "0.0.0+abcdef0.dirty",
		"0123456":                 "0.0.0+0123456",
		"v2.0.0-rc1-3-gabc-dirty": "0.0.0+v2.0.0.rc1.3.gabc.dirty",
	} {
		if got := (&release{version: in}).packageVersion(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestVersionsSort lets dpkg judge: a package of a later commit must replace one of an earlier commit.
func TestVersionsSort(t *testing.T) {
	testenv.Need(t, testenv.Tool("dpkg"))
	in := []string{"abcdef0", "v0.9.0", "v1.2.0", "v1.2.0-9-gabc", "v1.2.0-12-g000", "v1.2.1"}
	for i := 1; i < len(in); i++ {
		a, b := (&release{version: in[i-1]}).packageVersion(), (&release{version: in[i]}).packageVersion()
		if err := exec.Command("dpkg", "--compare-versions", a, "lt", b).Run(); err != nil {
			t.Errorf("%s is not before %s: %v", a, b, err)
		}
	}
}

// packed makes packages around a file that stands for the program. Each call makes it at another time in another place.
func packed(t *testing.T, made time.Time) *release {
	t.Helper()
	r := &release{root: root, out: t.TempDir(), version: "v1.2.3", time: time.Unix(1_700_000_000, 0).UTC()}
	must(t, os.WriteFile(r.binary("arm64"), []byte("the program"), 0o600))
	must(t, os.Chtimes(r.binary("arm64"), made, made))
	must(t, r.pack("arm64"))
	return r
}

func TestPackagesAreReproducible(t *testing.T) {
	a, b := packed(t, time.Unix(1, 0)), packed(t, time.Now())
	for _, name := range []string{"perfdoctor_1.2.3_arm64.deb", "perfdoctor-1.2.3-1.aarch64.rpm"} {
		one, err := os.ReadFile(filepath.Join(a.out, name))
		must(t, err)
		other, err := os.ReadFile(filepath.Join(b.out, name))
		must(t, err)
		if !bytes.Equal(one, other) {
			t.Errorf("%s differs from one build to the next", name)
		}
	}
}

// TestPackagesAgree compares both formats: a file that is in only one is forgotten in the other.
func TestPackagesAgree(t *testing.T) {
	testenv.Need(t, testenv.Tool("dpkg-deb"), testenv.Tool("rpm"))
	r := packed(t, time.Now())
	archive, err := exec.Command("dpkg-deb", "--fsys-tarfile", filepath.Join(r.out, "perfdoctor_1.2.3_arm64.deb")).
		Output()
	must(t, err)
	var deb []string
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		if h.Typeflag == tar.TypeReg || h.Name == "./etc/perfdoctor/" {
			deb = append(deb, strings.TrimSuffix(strings.TrimPrefix(h.Name, "."), "/"))
		}
		if h.Uid != 0 || h.Uname != "root" || h.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %s, mode %o", h.Name, h.Uname, h.Mode)
		}
		if !h.ModTime.Equal(r.time) {
			t.Errorf("%s is of %v, the commit of %v", h.Name, h.ModTime, r.time)
		}
	}
	out, err := exec.Command("rpm", "-qpl", filepath.Join(r.out, "perfdoctor-1.2.3-1.aarch64.rpm")).Output()
	must(t, err)
	rpm := strings.Fields(string(out))
	slices.Sort(deb)
	slices.Sort(rpm)
	if diff := cmp.Diff(deb, rpm); diff != "" {
		t.Errorf("-deb +rpm:\n%s", diff)
	}
	for _, path := range []string{
		"/usr/bin/perfdoctor", "/usr/lib/systemd/system/perfdoctor-exporter.service",
		"/etc/default/perfdoctor-exporter",
		"/usr/share/man/man1/perfdoctor-exporter.1.gz", "/usr/share/perfdoctor/prometheus/perfdoctor.rules.yml",
		"/usr/share/bash-completion/completions/perfdoctor", "/usr/share/fish/vendor_completions.d/perfdoctor.fish",
		"/usr/share/zsh/vendor-completions/_perfdoctor", "/usr/share/zsh/site-functions/_perfdoctor",
	} {
		if !slices.Contains(deb, path) {
			t.Errorf("no %s in the packages", path)
		}
	}
	scripts, err := exec.Command("rpm", "-qp", "--scripts", filepath.Join(r.out, "perfdoctor-1.2.3-1.aarch64.rpm")).
		Output()
	must(t, err)
	for _, want := range []string{"postinstall scriptlet", "preuninstall scriptlet", "postuninstall scriptlet"} {
		if !strings.Contains(string(scripts), want) {
			t.Errorf("the RPM package has no %s:\n%s", want, scripts)
		}
	}
}

// TestReproducible makes the whole release once more, from a clone in another directory, and compares the checksums.
func TestReproducible(t *testing.T) {
	packages := given(t, packagesVar)
	want, err := os.ReadFile(filepath.Join(packages, "SHA256SUMS"))
	must(t, err)
	if strings.Contains(string(want), "dirty") {
		t.Fatal("the release was made from a tree with changes, which no clone has: commit them first")
	}
	dir := filepath.Join(t.TempDir(), "elsewhere")
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		must(t, err)
		return string(out)
	}
	git("clone", "--quiet", ".", dir)
	// What make bundle fetched is in the program, too, and not in the repository.
	for name := range strings.Lines(git("ls-files", "--others", "--ignored", "--exclude-standard", "--full-name",
		":/internal")) {
		name = strings.TrimSpace(name)
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		copyFile(t, filepath.Join(root, name), filepath.Join(dir, name))
	}
	r := release{root: dir, out: filepath.Join(dir, "out")}
	must(t, r.run(t.Context(), ""))
	got, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	must(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("not the same bytes (-release +clone):\n%s", diff)
	}
}

// TestBill reads the bills of materials of a release: the program's modules and what is embedded in it.
func TestBill(t *testing.T) {
	packages := given(t, packagesVar)
	for _, arch := range architectures {
		text, err := os.ReadFile(filepath.Join(packages, "perfdoctor-linux-"+arch+".cdx.json"))
		must(t, err)
		var bill struct {
			SpecVersion string
			Components  []struct{ Name, Version, Purl string }
		}
		must(t, json.Unmarshal(text, &bill))
		for _, name := range []string{"std", "github.com/cilium/ebpf", "async-profiler", "uplot"} {
			if !slices.ContainsFunc(bill.Components, func(c struct{ Name, Version, Purl string }) bool {
				return c.Name == name && c.Version != "" && strings.HasPrefix(c.Purl, "pkg:")
			}) {
				t.Errorf("%s: no %s among %d components", arch, name, len(bill.Components))
			}
		}
		if strings.Contains(string(text), "golangci") {
			t.Errorf("%s: a linter is in the bill, which is not in the program", arch)
		}
	}
}
