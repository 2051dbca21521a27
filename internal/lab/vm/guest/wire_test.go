package guest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readAll returns the payloads of a stream by kind.
func readAll(stream []byte) (map[Kind]string, error) {
	got := map[Kind]string{}
	for frames := NewFrames(bytes.NewReader(stream)); ; {
		kind, data, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got[kind] += string(data)
	}
}

func stream(t testing.TB, kind Kind, payloads ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, p := range payloads {
		if err := WriteFrames(&b, kind, []byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestFrames(t *testing.T) {
	long := strings.Repeat("0123456789", 3*maxPayload/10) + "end"
	got, err := readAll(append(stream(t, Stdout, "a\r\n\x00", "", long), stream(t, Exit, "{}")...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[Kind]string{Stdout: "a\r\n\x00" + long, Exit: "{}"}, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

// Every single damaged, lost or added byte is noticed.
func TestDamage(t *testing.T) {
	whole := stream(t, Stdout, "some output\n", "more of it\n")
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x20
		lost := append(bytes.Clone(whole[:i]), whole[i+1:]...)
		added := append(append(bytes.Clone(whole[:i]), '!'), whole[i:]...)
		for what, damaged := range map[string][]byte{"flipped": flipped, "lost": lost, "added": added} {
			if got, err := readAll(damaged); err == nil {
				t.Errorf("byte %d %s: read as %q without an error", i, what, got)
			}
		}
	}
	for i := range whole {
		if _, err := readAll(whole[:i]); err == nil && i != 0 && i != len(stream(t, Stdout, "some output\n")) {
			t.Errorf("cut at byte %d: no error", i)
		}
	}
}

func TestIsInit(t *testing.T) {
	t.Setenv("PERFDOCTOR_GUEST", "1")
	if IsInit() {
		t.Error("a test took itself for the init of a guest")
	}
	if Inside() {
		t.Error("a test took this machine for a guest")
	}
}

func TestSettings(t *testing.T) {
	for _, setting := range []string{"", "net.core.somaxconn", "net.no_such_setting=1"} {
		if err := setSysctl(setting); err == nil {
			t.Errorf("sysctl %q: no error", setting)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(stream(f, Stdout, "some output\n", "x"))
	f.Add([]byte(magic + "o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		frames := NewFrames(bytes.NewReader(data))
		var again bytes.Buffer
		for {
			kind, payload, err := frames.Next()
			if err != nil {
				break
			}
			if err := WriteFrames(&again, kind, payload); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(data, again.Bytes()) {
			t.Errorf("frames were read that were not sent: %q of %q", again.Bytes(), data)
		}
	})
}
