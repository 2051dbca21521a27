package cli

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/redact"
)

// freshKey is the value of --redact without a file.
const freshKey = "random"

// Bounds of a key file. A shorter key could be found by trial; a longer file is not a key.
const (
	leastKey = 16
	mostKey  = 4096
)

func (d *diagnosis) addRedactFlag(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.redact, "redact", "",
		"replace hosts, addresses, users, paths and groups by pseudonyms, from a random key or the secret in "+
			"--redact=`FILE`")
	f.Lookup("redact").NoOptDefVal = freshKey
}

// validateRedact prepares the pseudonyms, before ten seconds are spent.
func (d *diagnosis) validateRedact(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("redact") {
		return nil
	}
	if d.redact != freshKey {
		key, err := readKey(d.redact)
		if err != nil {
			return command.UsageErrorf("--redact: %v", err)
		}
		d.names = redact.New(key)
		return nil
	}
	key := make([]byte, 2*leastKey)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("--redact: %w", err)
	}
	d.names = redact.New(key)
	return nil
}

func readKey(path string) ([]byte, error) {
	if path == "" {
		return nil, fmt.Errorf("give --redact alone, or --redact=FILE with a file that holds a secret")
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() { // opening a pipe waits for ever
		return nil, fmt.Errorf("%s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	key, err := io.ReadAll(io.LimitReader(f, mostKey+1))
	if err != nil {
		return nil, err
	}
	if len(key) < leastKey || len(key) > mostKey {
		return nil, fmt.Errorf("%s holds %d bytes, a key has %d to %d: make one with head -c 32 /dev/urandom > FILE",
			path, min(len(key), mostKey+1), leastKey, mostKey)
	}
	return key, nil
}

// redacted returns the recording with pseudonyms, if they were asked for.
func (d *diagnosis) redacted(rec *recording.Recording) (*recording.Recording, error) {
	if d.names == nil {
		return rec, nil
	}
	out, err := rec.Redacted(d.names)
	if err != nil {
		return nil, command.UsageErrorf("--redact: %v", err)
	}
	return out, nil
}
