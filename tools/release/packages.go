package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats that are made
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// recipe says what is in the packages, for both formats.
const recipe = "deploy/packages/nfpm.yaml"

// pack makes the packages of one architecture.
func (r *release) pack(arch string) error {
	staged, err := os.MkdirTemp("", "perfdoctor-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staged) }()
	if err := r.manPages(staged); err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.packAs(format, arch, staged); err != nil {
			return fmt.Errorf("%s for %s: %w", format, arch, err)
		}
	}
	return nil
}

// manPages compresses them, as both distributions want it: without the time and name that gzip would add.
func (r *release) manPages(staged string) error {
	pages, err := filepath.Glob(filepath.Join(r.root, "docs/man/*.1"))
	if err != nil || len(pages) == 0 {
		return fmt.Errorf("docs/man has %d pages: %w", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(staged, filepath.Base(page)+".gz"), b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) packAs(format, arch, staged string) error {
	env := map[string]string{
		"ROOT": r.root, "BINARY": r.binary(arch), "ARCH": arch, "VERSION": r.packageVersion(), "MAN": staged,
	}
	config, err := nfpm.ParseFileWithEnvMapping(filepath.Join(r.root, recipe), func(name string) string {
		return env[name]
	})
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.time
	info = nfpm.WithDefaults(info)
	// The recipe's files are those of the checkout, whose times are when it was made.
	for _, c := range info.Contents {
		if c.FileInfo != nil {
			c.FileInfo.MTime = r.time
		}
	}
	for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		*script = filepath.Join(r.root, *script)
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info.Target = filepath.Join(r.out, packager.ConventionalFileName(info))
	f, err := os.OpenFile(info.Target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // a release is for everybody
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, f), f.Close())
}
