package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// keyVar names the file of an OpenSSH private key of the kind ed25519: the same key and bytes give the same
	// signature.
	keyVar = "PERFDOCTOR_SIGNING_KEY"
	// signedFor is the namespace of the signatures: one that the key made for a commit or a login is none of a release.
	signedFor = "perfdoctor-release"
)

// sign signs the checksums, and by them all files, as `ssh-keygen -Y verify` reads it: SHA256SUMS.sig. Without a key it
// says so.
func (r *release) sign(ctx context.Context, key string, say io.Writer) error {
	if key == "" {
		_, err := fmt.Fprintf(say, "release: it is NOT signed: %s names no key\n", keyVar)
		return err
	}
	// -P: a key with a passphrase is refused rather than asked about on the terminal.
	public, err := exec.CommandContext(ctx, "ssh-keygen", "-y", "-P", "", "-f", key).Output()
	if err != nil {
		return fmt.Errorf("%s=%s: not a private key of OpenSSH without a passphrase that only its owner may read: %w",
			keyVar, key, err)
	}
	if !strings.HasPrefix(string(public), "ssh-ed25519 ") {
		return fmt.Errorf("%s=%s is no ed25519 key: make one with ssh-keygen -t ed25519", keyVar, key)
	}
	sums := filepath.Join(r.out, "SHA256SUMS")
	if err := exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-f", key, "-n", signedFor, sums).Run(); err != nil {
		return fmt.Errorf("sign %s with ssh-keygen: %w", sums, err)
	}
	if _, err := os.Stat(sums + ".sig"); err != nil {
		return errors.Join(errors.New("ssh-keygen made no signature"), err)
	}
	_, err = fmt.Fprintf(say, "release: signed with %s", public)
	return err
}
