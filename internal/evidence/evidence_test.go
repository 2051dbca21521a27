package evidence

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func TestCPUMask(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		want string
	}{
		{nil, "0"},
		{[]int{0, 1}, "3"},
		{[]int{0, 2, 3}, "d"},
		{[]int{31}, "80000000"},
		{[]int{0, 32}, "1,00000001"},
		{[]int{-1, 64}, "1,00000000,00000000"},
	} {
		if got := cpuMask(c.cpus); got != c.want {
			t.Errorf("cpuMask(%v) = %q, want %q", c.cpus, got, c.want)
		}
	}
}

func TestPoolOf(t *testing.T) {
	for thread, want := range map[string]string{
		"GC Thread#12":    "GC Thread",
		"nginx":           "nginx",
		"pool-1-thread-7": "pool-1-thread",
		"http-nio-8080-e": "http-nio-8080-e",
		"7":               "7",
		"":                "",
	} {
		if got := metric.PoolOf(thread); got != want {
			t.Errorf("PoolOf(%q) = %q, want %q", thread, got, want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"127.0.0.1:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true, "10.0.0.5:443": false,
		"[2001:db8::1]:443": false, "": false,
	} {
		if got := IsLoopback(endpoint); got != want {
			t.Errorf("IsLoopback(%q) = %v, want %v", endpoint, got, want)
		}
	}
}
