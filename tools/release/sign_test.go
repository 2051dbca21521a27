package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// newKey makes an OpenSSH key.
func newKey(t *testing.T, kind, passphrase string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// verifies does what docs/deploy.md tells a user to do.
func verifies(t *testing.T, dir, key, namespace string) bool {
	t.Helper()
	public, err := os.ReadFile(key + ".pub")
	must(t, err)
	signers := filepath.Join(t.TempDir(), "signers")
	must(t, os.WriteFile(signers, append([]byte("release "), public...), 0o600))
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release",
		"-n", namespace, "-s", filepath.Join(dir, "SHA256SUMS.sig"))
	cmd.Stdin = bytes.NewReader(sums)
	return cmd.Run() == nil
}

// TestSign lets OpenSSH verify. The signature holds for these bytes, this key and this use, and for no other.
func TestSign(t *testing.T) {
	testenv.Need(t, testenv.Tool("ssh-keygen"))
	r := &release{out: t.TempDir()}
	must(t, os.WriteFile(filepath.Join(r.out, "perfdoctor"), []byte("the program"), 0o600))
	must(t, checksums(r.out))
	key := newKey(t, "ed25519", "")
	var said strings.Builder
	must(t, r.sign(t.Context(), key, &said))
	if !strings.Contains(said.String(), "signed with ssh-ed25519 ") {
		t.Errorf("it says %q", said.String())
	}
	if !verifies(t, r.out, key, signedFor) {
		t.Error("the signature does not hold")
	}
	if verifies(t, r.out, newKey(t, "ed25519", ""), signedFor) {
		t.Error("it holds for another key")
	}
	if verifies(t, r.out, key, "git") {
		t.Error("it holds for another use")
	}
	sums := filepath.Join(r.out, "SHA256SUMS")
	text, err := os.ReadFile(sums)
	must(t, err)
	text[0] ^= 1
	must(t, os.WriteFile(sums, text, 0o600))
	if verifies(t, r.out, key, signedFor) {
		t.Error("it holds for other bytes")
	}
}

// TestNotSigned: without a key the release says so. An unusable key ends it.
func TestNotSigned(t *testing.T) {
	testenv.Need(t, testenv.Tool("ssh-keygen"))
	r := &release{out: t.TempDir()}
	must(t, checksums(r.out))
	var said strings.Builder
	must(t, r.sign(t.Context(), "", &said))
	if !strings.Contains(said.String(), "NOT signed") {
		t.Errorf("it says %q", said.String())
	}
	for _, key := range []string{"/nowhere", newKey(t, "ecdsa", ""), newKey(t, "ed25519", "a passphrase")} {
		if err := r.sign(t.Context(), key, &said); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := os.Stat(filepath.Join(r.out, "SHA256SUMS.sig")); err == nil {
		t.Error("there is a signature")
	}
}
