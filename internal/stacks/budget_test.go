package stacks

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

// TestPprofBudget: attack 7, a small file with millions of empty messages, each of which takes hundreds of bytes.
func TestPprofBudget(t *testing.T) {
	for name, message := range map[string]string{
		"samples": "\x12\x00", "locations": "\x22\x00", "functions": "\x2a\x00", "mappings": "\x1a\x00", "strings": "\x32\x00",
		"labels": "\x12\x04\x1a\x00\x1a\x00", "location ids": "\x12\x42\x0a\x40" + strings.Repeat("\x01", 64),
	} {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(bytes.Repeat([]byte(message), maxPprof/len(message)-1)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := ParsePprof(&packed, NewBudget())
		if err == nil || !strings.Contains(err.Error(), "MiB of memory") {
			t.Errorf("%s: %v, want an error about memory", name, err)
		}
	}
}
