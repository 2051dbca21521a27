package quantity

import (
	"encoding/json"
	"math"
	"testing"
)

func TestArithmeticShowsItsWork(t *testing.T) {
	ports := Of("usable ports", 28232, Ports)
	ceiling := ports.Per(Of("TIME_WAIT", 60, Seconds)).Named("ceiling of %s", "10.0.0.5:443")
	measured := Of("measured", 466, "connections/s")
	for _, tc := range []struct {
		v    Value
		want string
	}{
		{ports, "usable ports: 28232 ports"},
		{ceiling, "ceiling of 10.0.0.5:443: 28232 ports / 60 s = 470.5 ports/s"},
		{ceiling.As("connections/s"), "ceiling of 10.0.0.5:443: 28232 ports / 60 s = 470.5 connections/s"},
		{measured.Per(ceiling.As("connections/s")), "466 connections/s / 470.5 connections/s = 99 %"},
		{Of("", 3, Sockets).Plus(Of("", 4, Sockets)), "3 sockets + 4 sockets = 7 sockets"},
		{Of("", 3, Sockets).Minus(Of("", 4, Sockets)), "3 sockets − 4 sockets = -1 sockets"},
		{Of("", 10, "connections/s").Times(Of("", 60, Seconds)), "10 connections/s × 60 s = 600 connections"},
		{
			Of("", 100, Entries).Per(Of("", 2.5, "entries/s")).Named("full in"),
			"full in: 100 entries / 2.5 entries/s = 40 s",
		},
		{Of("", 1, Seconds).Per(Of("", 0, Seconds)), "1 s / 0 s = unknown"},
		{Of("", 512, "B/s"), "512 B/s"},
		{Value{}, "0"},
	} {
		if got := tc.v.String(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
	if ceiling.Work() != "28232 ports / 60 s" || ceiling.Label() == "" || ceiling.Unit() != "ports/s" ||
		ports.Number() != 28232 {
		t.Errorf("%+v", ceiling)
	}
}

func TestUnits(t *testing.T) {
	for _, tc := range []struct{ got, want Unit }{
		{Seconds.Per(Seconds), Ratio},
		{Ports.Per(Seconds), "ports/s"},
		{Ports.Per(Ratio), Ports},
		{Ports.Per(None), Ports},
		{Ratio.Per(Seconds), "1/s"},
		{None.Per(None), Ratio},
		{Entries.Per("entries/s"), Seconds},
		{Bytes.Per(Seconds).Per("packets/s"), "B/packets"},
		{Unit("connections/s").Per(CPUs), "connections/s/CPUs"},
		{Unit("connections/s").Per(Connections), "1/s"},
		{None.Per("1/s"), Seconds},
		{Unit("connections/s").times(Seconds), Connections},
		{Seconds.times("B/s"), Bytes},
		{Ratio.times(Bytes), Bytes},
		{Bytes.times(Ratio), Bytes},
		{Unit("connections/s/CPUs").times(CPUs), "connections/s"},
		{Seconds.times(CPUs), "s·CPUs"},
		{Unit("1/s").times(Seconds), None},
	} {
		if tc.got != tc.want {
			t.Errorf("got unit %q, want %q", tc.got, tc.want)
		}
	}
}

func TestFormatting(t *testing.T) {
	for _, tc := range []struct {
		n    float64
		unit Unit
		want string
	}{
		{0, Ratio, "0 %"},
		{1, Ratio, "100 %"},
		{0.05, Ratio, "5 %"},
		{0.0512, Ratio, "5.1 %"},
		{0.123, Ratio, "12 %"},
		{0.00012, Ratio, "0.012 %"},
		{2.5, Ratio, "250 %"},
		{-0.05, Ratio, "-5 %"},
		{math.Copysign(0, -1), Ratio, "0 %"},
		{0, Seconds, "0 s"},
		{60, Seconds, "60 s"},
		{0.012, Seconds, "12 ms"},
		{0.000035, Seconds, "35 µs"},
		{0.0000052, Threads, "<0.0001 threads"},
		{0.00012, Threads, "0.00012 threads"},
		{1.5, Seconds, "1.5 s"},
		{-0.5, Seconds, "-500 ms"},
		{0, Bytes, "0 B"},
		{1023, Bytes, "1023 B"},
		{1024, Bytes, "1 KiB"},
		{4 << 20, Bytes, "4 MiB"},
		{1 << 60, Bytes, "1048576 TiB"},
		{1536, "B/s", "1.5 KiB/s"},
		{7, None, "7"},
		{math.Copysign(0, -1), None, "0"},
		{470.533, Ports, "470.5 ports"},
		{28232, Ports, "28232 ports"},
		{1234.5, Ports, "1234 ports"},
		{9.999, Ports, "10 ports"},
		{3.14159, Ports, "3.14 ports"},
		{0.5, Ports, "0.5 ports"},
		{0.0123, Ports, "0.012 ports"},
		{1e15, Ports, "1000000000000000 ports"},
		{math.NaN(), Ports, "unknown"},
		{math.Inf(1), Ports, "+Inf ports"},
	} {
		if got := Of("x", tc.n, tc.unit).Text(); got != tc.want {
			t.Errorf("%v %s prints %q, want %q", tc.n, tc.unit, got, tc.want)
		}
	}
}

func TestComparisons(t *testing.T) {
	one, two := Of("", 1, CPUs), Of("", 2, CPUs)
	if !two.AtLeast(two) || one.AtLeast(two) || !two.Above(one) || two.Above(two) || !one.Below(two) || two.Below(two) {
		t.Error("1 and 2 compare wrongly")
	}
	nan, seconds := one.Per(Of("", 0, None)), Of("", 1, Seconds)
	for name, f := range map[string]func(){
		"other unit, at least": func() { one.AtLeast(seconds) }, "other unit, above": func() { one.Above(seconds) },
		"other unit, below": func() { one.Below(seconds) }, "other unit, plus": func() { one.Plus(seconds) },
		"other unit, minus": func() { one.Minus(seconds) },
		"NaN at least":      func() { nan.AtLeast(one) }, "at least NaN": func() { one.AtLeast(nan) },
		"NaN below": func() { nan.Below(one) }, "above NaN": func() { one.Above(nan) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestJSON(t *testing.T) {
	for _, tc := range []struct {
		v    Value
		want string
	}{
		{Of("a", 1.5, Seconds), `{"label":"a","value":1.5,"unit":"s","text":"1.5 s"}`},
		{
			Of("", 6, Ports).Per(Of("", 3, Seconds)).Named("r"),
			`{"label":"r","value":2,"unit":"ports/s","text":"2 ports/s","arithmetic":"6 ports / 3 s = 2 ports/s"}`,
		},
		{Of("a", math.NaN(), None), `{"label":"a","value":null,"unit":"","text":"unknown"}`},
		{Of("a", math.Inf(-1), None), `{"label":"a","value":null,"unit":"","text":"-Inf"}`},
	} {
		if got, err := json.Marshal(tc.v); err != nil || string(got) != tc.want {
			t.Errorf("%s, %v; want %s", got, err, tc.want)
		}
	}
}

// TestOneThing writes units as a person would.
func TestOneThing(t *testing.T) {
	for _, c := range []struct {
		n    float64
		unit Unit
		want string
	}{
		{1, Ports, "1 port"},
		{2, Ports, "2 ports"},
		{1, "connections/s", "1 connection/s"},
		{1, Entries, "1 entry"},
		{1, Switches, "1 switch"},
		{1, CPUs, "1 CPU"},
		{1, "ms", "1 ms"},
		{1, Seconds, "1 s"},
		{1.0001, Ports, "1 port"},
		{0, Ports, "0 ports"},
	} {
		if got := Of("", c.n, c.unit).Text(); got != c.want {
			t.Errorf("%v %s: %q, want %q", c.n, c.unit, got, c.want)
		}
	}
}
