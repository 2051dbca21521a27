package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// JSON writes the report as one indented JSON object (docs/report-schema.md) with a final newline.
func (d *Data) JSON(w io.Writer) error { return writeJSON(w, d) }

// writeJSON escapes what a terminal could act on.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it is not put into a page as it stands, and "->" should stay readable
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the JSON report: %w", err)
	}
	if _, err := w.Write(escapeUnprintable(b.Bytes())); err != nil {
		return fmt.Errorf("write the JSON report: %w", err)
	}
	return nil
}

// escapeUnprintable writes what a terminal could act on (DEL, C1 controls, direction marks) as \uXXXX, which reads
// back as the same string: encoding/json escapes only the controls below a space. Outside of strings JSON is plain
// ASCII.
func escapeUnprintable(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for _, r := range string(data) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out = append(out, string(r)...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
