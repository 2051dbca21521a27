package report

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

func TestShort(t *testing.T) {
	for _, tt := range []struct {
		n    float64
		unit quantity.Unit
		want string
	}{
		{115432, "1/s", "115k/s"},
		{8421, "1/s", "8421/s"},
		{12.4, "1/s", "12/s"},
		{0.53, "1/s", "0.53/s"},
		{1, quantity.None, "1"},
		{1234567, quantity.None, "1.2M"},
		{25 << 30, quantity.Bytes, "25 GiB"},
		{1234567, "B/s", "1.2 MiB/s"},
		{0, "B/s", "0 B/s"},
	} {
		if got := short(tt.n, tt.unit); got != tt.want {
			t.Errorf("short(%v, %q) = %q, want %q", tt.n, tt.unit, got, tt.want)
		}
	}
}
