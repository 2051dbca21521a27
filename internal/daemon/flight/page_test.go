package flight

import (
	"bytes"
	"html/template"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPageLikeHTMLTemplate: the page is what html/template makes of it, with hostile names.
func TestPageLikeHTMLTemplate(t *testing.T) {
	const hostile = "</td><script>\"'`+&amp;{{.}}"
	f := File{
		Name: "a.zip", URL: "/recordings/a.zip", Bytes: 7, Began: time.Unix(1e9, 0), Check: hostile, Subject: hostile,
		Severity: hostile, Summary: hostile, Target: hostile, Seconds: 14.6, Others: []string{hostile, "b"},
	}
	damaged := File{Name: "b.zip", URL: "/recordings/b.zip", Damaged: hostile}
	for _, l := range []list{{}, {Recordings: []File{f, damaged}, Bytes: 7, MaxBytes: 9}} {
		oracle := template.Must(template.New("page").Funcs(template.FuncMap{
			"began": func(f File) string { return f.Began.UTC().Format("2006-01-02 15:04:05") },
			"href":  func(s string) string { return s },
		}).Parse(pageText))
		var want bytes.Buffer
		err := oracle.Execute(&want, struct {
			list
			Style template.CSS
		}{l, template.CSS(pageStyle)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := pageTemplate().Text("page", pageData{l, "STYLE"})
		if err != nil {
			t.Fatal(err)
		}
		page := bytes.ReplaceAll([]byte(got), []byte("STYLE"), []byte(pageStyle))
		if diff := cmp.Diff(want.String(), string(page)); diff != "" {
			t.Errorf("(-html/template +page):\n%s", diff)
		}
	}
}
