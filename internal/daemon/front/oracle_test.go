package front

import (
	"html/template"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/report/page"
)

// TestPageLikeHTMLTemplate: the page is what html/template makes of it, with hostile names.
func TestPageLikeHTMLTemplate(t *testing.T) {
	funcs := template.FuncMap(maps.Clone(functions()))
	funcs["href"] = func(s string) string { return s }
	oracle := template.Must(template.New("page").Funcs(funcs).Parse(pageText))
	for name, state := range map[string]exporter.State{"sick": sick(), "starting": {}, "healthy": {Ended: ended}} {
		for _, trusted := range []bool{true, false} {
			f := &front{titles: map[string]string{}, Options: Options{
				Host: hostile, Window: time.Minute, Now: func() exporter.State { return state }, Incidents: incidents,
			}}
			data := pageData{f.view(trusted), trusted, "STYLE"}
			var want strings.Builder
			err := oracle.Execute(&want, struct {
				View
				Recorder bool
				Style    template.CSS
			}{data.View, data.Recorder, "STYLE"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := page.Must(page.Parse(pageText, functions())).Text("page", data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), got); diff != "" {
				t.Errorf("%s, trusted %t (-html/template +page):\n%s", name, trusted, diff)
			}
		}
	}
}
