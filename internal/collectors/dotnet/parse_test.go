package dotnet

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
)

// text is a string as the stream has it.
func text(s string) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(s + "\x00")) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b
}

func word(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

// object puts the content of an object into its frame.
func object(name string, content []byte) []byte {
	b := append([]byte{5, 5, 1}, bytes.Repeat([]byte{0, 0, 0, 4}, 2)...)
	b = append(append(b, word(uint32(len(name)))...), name...)
	return append(append(append(b, tagEnd), content...), tagEnd)
}

// block appends a block of events to a stream. Their headers are compressed, and each has every field that may be in
// one.
func block(stream []byte, name string, id uint32, payloads ...[]byte) []byte {
	content := append([]byte{20, 0, 1, 0}, make([]byte, 16)...)
	for _, p := range payloads {
		content = append(content, 0xff)
		content = binary.AppendUvarint(content, uint64(id))
		content = append(content, 1, 2, 3, 4, 5, 6) // sequence, thread, CPU, its thread, stack, time
		content = append(content, make([]byte, 32)...)
		content = binary.AppendUvarint(content, uint64(len(p)))
		content = append(content, p...)
	}
	const frame = 3 + 8 + 4 + 1 // tags, versions, the length of the name, its end
	at := len(stream) + frame + len(name) + 4
	aligned := append(word(uint32(len(content))), make([]byte, -at&3)...)
	return append(stream, object(name, append(aligned, content...))...)
}

func compiled(at uint64, size uint32, class, name string) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 16), at)
	b = append(append(b, word(size)...), make([]byte, 8)...)
	return append(append(append(b, text(class)...), text(name)...), text("void ()")...)
}

func described(id uint32, provider string, event uint32) []byte {
	return append(append(append(word(id), text(provider)...), word(event)...), text("")...)
}

// stream has two kinds of events; one kind is methods.
func stream() []byte {
	b := append([]byte(streamMagic), object("Trace", make([]byte, traceSize))...)
	b = block(b, "MetadataBlock", 0, described(7, rundown, methodEnd), described(8, rundown, 152))
	b = block(b, "StackBlock", 0, nil)
	b = block(b, "EventBlock", 8, []byte("something else"))
	b = block(b, "EventBlock", 7, compiled(0x7f0000001000, 64, "Shop.Cart", "Tax"),
		compiled(0x7f0000002000, 16, "", "Ärger"))
	return append(b, tagNull)
}

func TestMethods(t *testing.T) {
	got, err := methodsOf(bytes.NewReader(stream()))
	if err != nil {
		t.Fatal(err)
	}
	want := []perfmap.Entry{
		{Start: 0x7f0000001000, Size: 64, Name: "Shop.Cart.Tax"}, {Start: 0x7f0000002000, Size: 16, Name: "Ärger"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A stream that ends early, or claims more than it contains, is an error that quotes no byte of it.
func TestBrokenStreams(t *testing.T) {
	whole := stream()
	for n := range len(whole) {
		if _, err := methodsOf(bytes.NewReader(whole[:n])); err == nil {
			t.Fatalf("cut at %d of %d: no error", n, len(whole))
		}
	}
	frame := []byte(streamMagic + "\x05\x05\x01\x00\x00\x00\x04\x00\x00\x00\x04")
	for name, bad := range map[string][]byte{
		"no stream":    []byte(strings.Repeat("secret", 20)),
		"a long name":  append(frame, word(1<<31-1)...),
		"a huge block": append(append(append(frame, word(10)...), "EventBlock\x06"...), word(1<<31-1)...),
		"a long header": append([]byte(streamMagic),
			object("EventBlock", append(word(4), 0, 0, 0, 0xff, 0xff, 1, 0))...),
		"an event too big": block([]byte(streamMagic), "EventBlock", 1<<31, []byte{1}),
	} {
		_, err := methodsOf(bytes.NewReader(bad))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzMethods(f *testing.F) {
	f.Add(stream())
	f.Fuzz(func(t *testing.T, b []byte) {
		methods, err := methodsOf(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, m := range methods {
			if m.Size == 0 || m.End() < m.Start || m.Name == "" {
				t.Errorf("%+v", m)
			}
		}
	})
}
