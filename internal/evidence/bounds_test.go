package evidence

import "testing"

func TestBoundsOf(t *testing.T) {
	for program, want := range map[string]Bounds{
		"php-fpm8.2": {Serves: "pm.max_children"},
		"apache2":    {Serves: "MaxRequestWorkers (with ServerLimit)", Asks: "max= of ProxyPass"},
		"envoy":      {Asks: "max_connections of the cluster's circuit breakers"},
		"shop":       {},
		"":           {},
	} {
		if got := BoundsOf(program); got != want {
			t.Errorf("%s: %+v, want %+v", program, got, want)
		}
	}
}
