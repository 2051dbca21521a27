package load

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestPlanCheck(t *testing.T) {
	tests := []struct {
		name string
		plan Plan
		want string // "": right
	}{
		{"least", Plan{Target: "127.0.0.1:80", Count: 1}, ""},
		{"ipv6", Plan{Target: "[::1]:80", Duration: time.Second}, ""},
		{"name", Plan{Target: "localhost:80", Count: 1}, `target "localhost:80": want ip:port`},
		{"no end", Plan{Target: "127.0.0.1:80"}, "no end"},
		{"protocol", Plan{Target: "127.0.0.1:80", Count: 1, Protocol: "udp"}, `protocol "udp": want one of`},
		{"tls", Plan{Target: "127.0.0.1:80", Count: 1, TLS: "yes"}, `tls "yes"`},
		{"close", Plan{Target: "127.0.0.1:80", Count: 1, Close: "both"}, `close "both"`},
		{"rate and steps", Plan{Target: "127.0.0.1:80", Rate: 1, Steps: []Step{{1, time.Second}}}, "rate and steps"},
		{"not a rate", Plan{Target: "127.0.0.1:80", Count: 1, Rate: math.NaN()}, "rate NaN"},
		{"rate cap", Plan{Target: "127.0.0.1:80", Count: 1, Rate: 2 * MaxRate}, "rate 2e+06"},
		{"step", Plan{Target: "127.0.0.1:80", Steps: []Step{{1, time.Second}, {-1, time.Second}}}, "step 2: rate -1"},
		{"step without time", Plan{Target: "127.0.0.1:80", Steps: []Step{{1, 0}}}, "step 1"},
		{"step too long", Plan{Target: "127.0.0.1:80", Steps: []Step{{1, time.Hour}}}, "step 1: rate 1 for 1h0m0s"},
		{
			"steps too long",
			Plan{Target: "127.0.0.1:80", Steps: []Step{{1, MaxDuration}, {1, time.Second}}},
			"duration 10m1s: want 0s to 10m0s",
		},
		{"duration cap", Plan{Target: "127.0.0.1:80", Duration: time.Hour}, "duration 1h0m0s: want 0s to 10m0s"},
		{"negative", Plan{Target: "127.0.0.1:80", Count: 1, Connections: -1}, "connections -1"},
		{"no bind", Plan{Target: "127.0.0.1:80", Count: 1, BindNoPort: true}, "bind_no_port"},
		{"bind", Plan{Target: "127.0.0.1:80", Count: 1, BindIP: "eth0"}, "bind_ip"},
		{"smuggled", Plan{Target: "127.0.0.1:80", Count: 1, Path: "/\r\nX: y"}, "path"},
		{"smuggled by the name", Plan{Target: "127.0.0.1:80", Count: 1, UserAgent: "a\r\nX: y"}, "user_agent"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.plan.Check()
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestServerPlanCheck(t *testing.T) {
	if err := (ServerPlan{Listen: "127.0.0.1:0"}).Check(); err != nil {
		t.Error(err)
	}
	bad := ServerPlan{Listen: ":80", Protocol: "udp", TLS: "dsa", Backlog: -1, Stall: Stall{For: -1}}
	err := bad.Check()
	for _, want := range []string{"listen", "protocol", "tls", "backlog", "stall: for"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %q", err, want)
		}
	}
}

func TestPlanIsData(t *testing.T) {
	want := Plan{
		Target: "10.0.0.2:443", Protocol: TCP, TLS: ResumeTLS, Steps: []Step{
			{100, 1500 * time.Millisecond},
			{0.5, time.Second},
		},
		Connections: 8, RequestsPerConn: 3, Close: ServerCloses, Count: 9, Timeout: time.Second, BindIP: "10.0.0.1",
		BindNoPort: true, Path: "/x", Host: "h", UserAgent: "u", RequestBytes: 10, ResponseBytes: 20,
	}
	for name, codec := range map[string]struct {
		write func(any) ([]byte, error)
		read  func([]byte, any) error
	}{"json": {json.Marshal, json.Unmarshal}, "yaml": {yaml.Marshal, yaml.Unmarshal}} {
		t.Run(name, func(t *testing.T) {
			text, err := codec.write(want)
			if err != nil {
				t.Fatal(err)
			}
			var got Plan
			if err := codec.read(text, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, text)
			}
		})
	}
	var got Plan
	text := "{target: 10.0.0.2:80, steps: [{rate: 100, for: 1.5s}], requests_per_conn: 1, bind_no_port: true}"
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want = Plan{
		Target: "10.0.0.2:80", Steps: []Step{{100, 1500 * time.Millisecond}}, RequestsPerConn: 1,
		BindNoPort: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSchedule(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name  string
		steps []Step
		want  []time.Duration
	}{
		{"even", []Step{{10, 300 * ms}}, []time.Duration{0, 100 * ms, 200 * ms}},
		{"two rates", []Step{{10, 200 * ms}, {20, 100 * ms}}, []time.Duration{0, 100 * ms, 200 * ms, 250 * ms}},
		{"pause", []Step{{10, 100 * ms}, {0, time.Second}, {10, 200 * ms}}, []time.Duration{0, 1100 * ms, 1200 * ms}},
		// After 250 ms at 10 a second the next request is half due, and at 20 a second it takes 25 ms more.
		{"carried", []Step{{10, 250 * ms}, {20, 100 * ms}}, []time.Duration{0, 100 * ms, 200 * ms, 275 * ms, 325 * ms}},
		{"slow", []Step{{0.5, time.Second}}, []time.Duration{0}},
		{"nothing", []Step{{0, time.Second}}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := schedule{steps: test.steps}
			var got []time.Duration
			for n := uint64(0); ; n++ {
				at, ok := s.due(n)
				if !ok {
					break
				}
				got = append(got, at.Round(time.Microsecond))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A rate that float64 does not hold must not lose or gain a request.
func TestScheduleCountsExactly(t *testing.T) {
	for rate := 1; rate < 3000; rate += 7 {
		s := schedule{steps: []Step{{float64(rate), 100 * time.Millisecond}, {float64(rate), 900 * time.Millisecond}}}
		n := uint64(0)
		for {
			if _, ok := s.due(n); !ok {
				break
			}
			n++
		}
		if n != uint64(rate) {
			t.Errorf("%d a second for a second: %d requests", rate, n)
		}
	}
}

func TestStall(t *testing.T) {
	const ms = time.Millisecond
	once, often := Stall{After: 100 * ms, For: 30 * ms}, Stall{After: 100 * ms, For: 30 * ms, Every: 50 * ms}
	tests := []struct {
		stall    Stall
		at, want time.Duration
	}{
		{once, 99 * ms, 0},
		{once, 100 * ms, 30 * ms},
		{once, 110 * ms, 20 * ms},
		{once, 130 * ms, 0},
		{once, 155 * ms, 0},
		{often, 99 * ms, 0},
		{often, 110 * ms, 20 * ms},
		{often, 140 * ms, 0},
		{often, 155 * ms, 25 * ms},
		{Stall{}, 10 * ms, 0},
	}
	for _, test := range tests {
		if got := test.stall.left(test.at); got != test.want {
			t.Errorf("%+v at %v: %v, want %v", test.stall, test.at, got, test.want)
		}
	}
}
