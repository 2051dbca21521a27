package signature

import (
	"strings"
	"testing"
)

// TestTableIsComplete: a row of the built-in table says all that a user needs. A user's own row may leave much out.
func TestTableIsComplete(t *testing.T) {
	list := builtIn()
	if len(list) < 25 {
		t.Fatalf("only %d signatures: this test looks at the wrong table", len(list))
	}
	for _, s := range list {
		if len(s.About) < 150 || strings.HasPrefix(s.Source, "signatures") || !strings.HasPrefix(s.Source, "https://") {
			t.Errorf("%s: about or source is missing", s.Name)
		}
		if s.Expect == 0 || strings.HasPrefix(s.Risk, "not known") || strings.Contains(s.WrongIf,
			"other work than the title") {
			t.Errorf("%s: expect, risk or wrong-if is missing", s.Name)
		}
		if (s.Before == "") != (s.After == "") {
			t.Errorf("%s: there is a before without an after, or the other way round", s.Name)
		}
		for _, err := range s.strangers("signatures.yaml", list, nil) {
			t.Error(err)
		}
		for _, w := range s.Where {
			if strings.HasPrefix(w.Does, "matches") {
				t.Errorf("%s: does is missing", s.Name)
			}
			unusual := w.Info != usualInfo || w.Warn != usualWarn
			if unusual && strings.HasPrefix(s.Why, "below it a fix") {
				t.Errorf("%s: other thresholds than the usual ones, and no why", s.Name)
			}
		}
	}
}
