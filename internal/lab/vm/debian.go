package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// FetchKernel returns Debian's newest kernel of a release such as "6.1" or "6.12", for a GOARCH (amd64 or arm64),
// from the package sources of this machine: Debian 12 has both. "5.10" comes from Debian 11 on the same mirrors. The
// kernel is the cloud flavour, a download of 30 MB, which has everything that guests need. It is fetched once into
// the user's cache (XDG_CACHE_HOME/perfdoctor/kernels, about 100 MB a kernel; delete a folder there to fetch again).
// FetchKernel needs no root and installs nothing. On other distributions use [KernelAt].
func FetchKernel(ctx context.Context, release, arch string) (Kernel, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Kernel{}, fmt.Errorf("folder for kernels: %w", err)
	}
	return fetchKernel(ctx, filepath.Join(cache, "perfdoctor", "kernels"), release, arch)
}

func fetchKernel(ctx context.Context, cache, release, arch string) (Kernel, error) {
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+$`).MatchString(release) {
		return Kernel{}, fmt.Errorf("kernel release %q: want two numbers such as 6.1", release)
	}
	if arch != "amd64" && arch != "arm64" {
		return Kernel{}, fmt.Errorf("kernel for %q: guests are amd64 or arm64", arch)
	}
	dir := filepath.Join(cache, release+"-"+arch)
	if k, err := unpackedKernel(dir); err == nil {
		return k, nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return Kernel{}, err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return Kernel{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := download(ctx, work, release, arch); err != nil {
		return Kernel{}, fmt.Errorf("fetch Debian's kernel %s for %s: %w", release, arch, err)
	}
	// All or nothing. Another process may have been faster; its folder is just as good.
	if err := os.Rename(filepath.Join(work, "root"), dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return Kernel{}, err
	}
	return unpackedKernel(dir)
}

func unpackedKernel(dir string) (Kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return Kernel{}, fmt.Errorf("%s: %d kernels, want 1: remove this folder", dir, len(images))
	}
	return KernelAt(images[0])
}

// download unpacks the package into work/root. Apt works on separate lists, which do not depend on installed packages
// and can serve a foreign architecture.
func download(ctx context.Context, work, release, arch string) error {
	a := apt{dir: work}
	if err := a.configure(arch); err != nil {
		return err
	}
	if _, err := a.run(ctx, "apt-get", "-q", "update"); err != nil {
		return err
	}
	if suite, ok := debianOf(release); ok {
		if err := a.switchTo(ctx, suite); err != nil {
			return err
		}
	}
	names, err := a.run(ctx, "apt-cache", "search", "--names-only", fmt.Sprintf(`^linux-image-%s\.[0-9]`,
		regexp.QuoteMeta(release)))
	if err != nil {
		return err
	}
	name, ok := newestKernel(names, release, arch)
	if !ok {
		return errors.New("the package sources of this machine have none: add the distribution's security or " +
			"backports source")
	}
	if _, err := a.run(ctx, "apt-get", "-q", "download", name); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages", name, len(packages))
	}
	if _, err := a.run(ctx, "dpkg-deb", "--extract", packages[0], filepath.Join(work, "root")); err != nil {
		return err
	}
	return foldUsr(filepath.Join(work, "root"))
}

// debianOf returns the Debian suite of a kernel release older than Debian 12's: no later Debian carries such a
// kernel.
func debianOf(release string) (suite string, ok bool) {
	suite, ok = map[string]string{"5.10": "bullseye"}[release]
	return suite, ok
}

// foldUsr moves /usr/lib/modules to its place in releases before Debian 13.
func foldUsr(root string) error {
	err := os.Rename(filepath.Join(root, "usr", "lib", "modules"), filepath.Join(root, "lib", "modules"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// apt runs apt's programs on private folders below dir.
type apt struct{ dir string }

// configure makes the folders. The package sources are still those of the machine.
func (a apt) configure(arch string) error {
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o700); err != nil {
			return err
		}
	}
	config := fmt.Sprintf(`APT::Architecture %q;
APT::Architectures { %q; };
APT::Sandbox::User "root"; // the folder is ours alone
Acquire::Languages "none";
Dir::State %q;
Dir::State::status %q;
Dir::Cache %q;
`, arch, arch, filepath.Join(a.dir, "state"), filepath.Join(a.dir, "state", "status"), filepath.Join(a.dir, "cache"))
	if err := os.WriteFile(filepath.Join(a.dir, "state", "status"), nil, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, "apt.conf"), []byte(config), 0o600)
}

// debianKeys has the keys of Debian's releases, including past ones. It belongs to package debian-archive-keyring, a
// part of every Debian.
const debianKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"

// switchTo fetches the lists of another Debian from the mirrors of this machine. It needs this machine's lists first:
// they say which of the sources are Debian's.
func (a apt) switchTo(ctx context.Context, suite string) error {
	targets, err := a.run(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)",
		"Created-By: Packages", "Origin: Debian", "Component: main")
	if err != nil {
		return err
	}
	sources, err := sourcesOf(targets, suite)
	if err != nil {
		return err
	}
	list := filepath.Join(a.dir, "sources.list")
	if err := os.WriteFile(list, []byte(sources), 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(a.dir, "apt.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// The lists of a Debian that is no longer maintained have expired.
	_, err = fmt.Fprintf(f, "Dir::Etc::sourcelist %q;\nDir::Etc::sourceparts \"-\";\nAcquire::Check-Valid-Until "+
		"\"false\";\n", list)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	_, err = a.run(ctx, "apt-get", "-q", "update")
	return err
}

// sourcesOf turns lines with a mirror and a suite, such as bookworm-security, into a source list for another Debian.
func sourcesOf(targets, suite string) (string, error) {
	var list []string
	for line := range strings.Lines(targets) {
		mirror, own, ok := strings.Cut(strings.TrimSpace(line), " ")
		_, part, _ := strings.Cut(own, "-")
		if !ok || part != "" && part != "security" && part != "updates" {
			continue // others, such as backports, may not exist
		}
		source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", debianKeys, mirror, strings.TrimSuffix(suite+"-"+part,
			"-"))
		if !slices.Contains(list, source) {
			list = append(list, source)
		}
	}
	if len(list) == 0 {
		return "", errors.New("none of the package sources of this machine is Debian's: give the kernel's file")
	}
	return strings.Join(list, ""), nil
}

func (a apt) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(a.dir, "apt.conf"), "LC_ALL=C")
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%w: on a system other than Debian give the kernel's file", err)
	case err != nil:
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, output(err))
	}
	return string(out), nil
}

// newestKernel picks from lines of apt-cache search. The signed package and the unsigned one are the same kernel.
func newestKernel(lines, release, arch string) (name string, ok bool) {
	form := regexp.MustCompile(`^linux-image-(` + regexp.QuoteMeta(release) + `\.[0-9][0-9.+a-z~-]*)-cloud-` + arch +
		`$`)
	var newest []int
	for line := range strings.Lines(lines) {
		found, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		match := form.FindStringSubmatch(found)
		if match == nil {
			continue
		}
		if v := numbers(match[1]); slices.Compare(v, newest) > 0 {
			name, newest = found, v
		}
	}
	return name, name != ""
}

// numbers returns the numbers in a version, in order: 6, 12, 117, 12 for 6.12.117+deb12.
func numbers(version string) []int {
	var out []int
	for _, digits := range strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' }) {
		n, err := strconv.Atoi(digits)
		out = append(out, n)
		if err != nil {
			return nil // a number too large for a version: not a version
		}
	}
	return out
}
