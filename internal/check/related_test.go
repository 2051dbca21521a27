package check

import "testing"

// TestRelated pins which findings may be cause and consequence by their subjects.
func TestRelated(t *testing.T) {
	listener := func(id string) Subject { return Subject{Kind: "listener", ID: id} }
	destination := func(id string) Subject { return Subject{Kind: "destination", ID: id} }
	for _, tc := range []struct {
		name          string
		cause, effect Subject
		want          bool
	}{
		{"same subject", destination("10.0.0.5:443"), destination("10.0.0.5:443"), true},
		{"two of one kind", destination("10.0.0.5:443"), destination("10.0.0.6:443"), false},
		{"two kinds", Subject{Kind: "netns", ID: "of the host"}, destination("10.0.0.5:443"), true},
		{"listener on that address", listener("10.0.0.5:443"), destination("10.0.0.5:443"), true},
		{"listener on all addresses", listener("0.0.0.0:443"), destination("127.0.0.1:443"), true},
		{"listener on all addresses of both families", listener("[::]:443"), destination("127.0.0.1:443"), true},
		{"listener on another port", listener("0.0.0.0:8080"), destination("127.0.0.1:443"), false},
		{"listener on another address", listener("10.0.0.5:443"), destination("10.0.0.6:443"), false},
		{"the other way round", destination("127.0.0.1:443"), listener("0.0.0.0:443"), true},
	} {
		if got := related(tc.cause, tc.effect); got != tc.want {
			t.Errorf("%s: related(%v, %v) = %v, want %v", tc.name, tc.cause, tc.effect, got, tc.want)
		}
	}
}
