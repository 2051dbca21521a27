package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// command runs a package client in dir. The error has the end of the client's output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		const enough = 2000 // bytes: the clients' messages end with what was wrong
		end := string(out[max(0, len(out)-enough):])
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, end)
	}
	return strings.TrimSpace(string(out)), nil
}

func npmInstall(ctx context.Context, dir string, packages []string) error {
	return npm(ctx, dir, packages, "--ignore-scripts")
}

func npmInstallWithScripts(ctx context.Context, dir string, packages []string) error {
	return npm(ctx, dir, packages)
}

// npm installs the packages. It keeps an existing package.json, which may say that the program is a module.
func npm(ctx context.Context, dir string, packages []string, flags ...string) error {
	manifest := filepath.Join(dir, "package.json")
	if _, err := os.Stat(manifest); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(manifest, []byte("{\"private\": true}\n"), 0o644); err != nil { //nolint:gosec // see fill
			return err
		}
	}
	args := slices.Concat([]string{"install", "--save-exact", "--no-audit", "--no-fund", "--loglevel=error"}, flags,
		packages)
	_, err := command(ctx, dir, nil, "npm", args...)
	return err
}

// pipInstall puts the packages beside the program, where Python looks for them first.
func pipInstall(ctx context.Context, dir string, packages []string) error {
	args := append([]string{
		"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore", "--target", dir,
	}, packages...)
	_, err := command(ctx, dir, nil, "python3", args...)
	return err
}

// dependencyPlugin is pinned: without a version, the client takes the newest.
const dependencyPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

func mavenInstall(ctx context.Context, dir string, packages []string) error {
	var pom strings.Builder
	pom.WriteString("<project><modelVersion>4.0.0</modelVersion><groupId>exam</groupId><artifactId>exam</artifactId>" +
		"<version>1</version><dependencies>\n")
	for _, p := range packages {
		part := strings.Split(p, ":")
		fmt.Fprintf(&pom, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>",
			part[0], part[1], part[2])
		if len(part) > 3 {
			fmt.Fprintf(&pom, "<classifier>%s</classifier>", part[3])
		}
		pom.WriteString("</dependency>\n")
	}
	pom.WriteString("</dependencies></project>\n")
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, []byte(pom.String()), 0o644); err != nil { //nolint:gosec // see fill
		return err
	}
	_, err := command(ctx, dir, nil, "mvn", "-q", "-B", "-C", "-ntp", "-f", file, dependencyPlugin,
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "lib"))
	return err
}

// compile builds the files: *.go, *.rs and *.c to program, *.java to classes. If the case has no program of its own,
// its Go modules and crates are the programs.
func (f *Fetch) compile(ctx context.Context, dir string) error {
	sources := func(ext string) []string {
		var list []string
		for _, name := range f.Files {
			if filepath.Ext(name) == ext {
				list = append(list, name)
			}
		}
		return list
	}
	var errs []error
	switch {
	case len(sources(".go")) > 0:
		errs = append(errs, goBuild(ctx, dir, f.Go))
	case len(f.Go) > 0:
		errs = append(errs, goInstall(ctx, dir, f.Go))
	}
	switch {
	case len(sources(".rs")) > 0:
		errs = append(errs, cargoBuild(ctx, dir, f.Cargo))
	case len(f.Cargo) > 0:
		errs = append(errs, cargoInstall(ctx, dir, f.Cargo))
	}
	if files := sources(".java"); len(files) > 0 {
		args := append([]string{"-g", "-d", "classes", "-cp", "lib/*"}, files...)
		_, err := command(ctx, dir, nil, "javac", args...)
		errs = append(errs, err)
	}
	if files := sources(".c"); len(files) > 0 {
		args := append([]string{"-O2", "-g", "-pthread", "-o", "program"}, files...)
		for _, library := range f.Link {
			args = append(args, "-l"+library)
		}
		_, err := command(ctx, dir, nil, "cc", args...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// goEnv keeps the client from fetching another Go, and lets it write the missing go.mod.
var goEnv = []string{"GOTOOLCHAIN=local", "GOFLAGS=-mod=mod", "GOWORK=off"}

func goBuild(ctx context.Context, dir string, modules []string) error {
	steps := [][]string{{"mod", "init", "exam"}}
	if len(modules) > 0 {
		steps = append(steps, append([]string{"get"}, modules...))
	}
	steps = append(steps, []string{"mod", "tidy"}, []string{"build", "-o", "program", "."})
	for _, args := range steps {
		if _, err := command(ctx, dir, goEnv, "go", args...); err != nil {
			return err
		}
	}
	for _, m := range modules {
		path, version, _ := strings.Cut(m, "@")
		got, err := command(ctx, dir, goEnv, "go", "list", "-m", "-f", "{{.Version}}", path)
		if err != nil {
			return err
		}
		if got != version {
			return fmt.Errorf("%s: the build has %s: another module needs that, or the path is of no module", m, got)
		}
	}
	return nil
}

// goInstall installs the programs into the directory.
func goInstall(ctx context.Context, dir string, packages []string) error {
	for _, p := range packages {
		env := []string{"GOTOOLCHAIN=local", "GOBIN=" + dir}
		if _, err := command(ctx, dir, env, "go", "install", p); err != nil {
			return err
		}
	}
	return nil
}

func cargoBuild(ctx context.Context, dir string, crates []string) error {
	manifest := "[package]\nname = \"program\"\nversion = \"1.0.0\"\nedition = \"2021\"\n" +
		"[[bin]]\nname = \"program\"\npath = \"main.rs\"\n[profile.release]\ndebug = true\n[dependencies]\n"
	for _, c := range crates {
		name, version, _ := strings.Cut(c, "@")
		manifest += fmt.Sprintf("%s = \"=%s\"\n", name, version)
	}
	file := filepath.Join(dir, "Cargo.toml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil { //nolint:gosec // see fill
		return err
	}
	if _, err := command(ctx, dir, nil, "cargo", "build", "--release", "--quiet"); err != nil {
		return err
	}
	target := filepath.Join(dir, "target")
	return errors.Join(os.Rename(filepath.Join(target, "release", "program"), filepath.Join(dir, "program")),
		os.RemoveAll(target))
}

// cargoInstall installs the programs into bin.
func cargoInstall(ctx context.Context, dir string, crates []string) error {
	args := append([]string{"install", "--quiet", "--locked", "--root", dir}, crates...)
	_, err := command(ctx, dir, nil, "cargo", args...)
	return err
}

// policy keeps services from starting (invoke-rc.d(8)): Debian starts a server when it installs it.
const policy = "/usr/sbin/policy-rc.d"

// aptInstall installs missing packages. If a package is unknown, it first updates the package lists.
func aptInstall(ctx context.Context, packages []string) error {
	var missing []string
	for _, p := range packages {
		if aptVersion(ctx, p) == "" {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	file, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // a program for all
	if err == nil {
		defer func() { _ = os.Remove(policy) }()
		_, err = file.WriteString("#!/bin/sh\nexit 101\n")
		err = errors.Join(err, file.Close())
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	lock := []string{"-q", "-y", "-o", "DPkg::Lock::Timeout=300"}
	install := slices.Concat(lock, []string{"install", "--no-install-recommends"}, missing)
	if _, err := command(ctx, "", env, "apt-get", install...); err == nil {
		return nil
	}
	if _, err := command(ctx, "", env, "apt-get", append(lock, "update")...); err != nil {
		return err
	}
	_, err = command(ctx, "", env, "apt-get", install...)
	return err
}

// aptVersion returns the version of an installed package, or "".
func aptVersion(ctx context.Context, name string) string {
	out, err := command(ctx, "", nil, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name)
	version, ok := strings.CutPrefix(out, "installed ")
	if err != nil || !ok {
		return ""
	}
	return version
}
