package host

import "testing"

func TestParsePids(t *testing.T) {
	const head = "Name:\tjava\nNStgid:\t9\t1\n"
	for text, want := range map[string][2]int{
		head + "NSpid:\t4711\t23\nNSpgid:\t4711\t1\n":    {4711, 23},
		head + "NSpid:\t4711\t300\t23\nNSpgid:\t4711\n":  {4711, 23},
		head + "NSpid:\t4711\n":                          {4711, 4711},
		head:                                             {},
		head + "NSpid:\t0\t23\n":                         {},
		head + "NSpid:\t4711\t-1\n":                      {},
		head + "NSpid:\t\n":                              {},
		head + "NSpid:\tx\t23\n":                         {},
		head + "NSpid:\t4711\t99999999999999999999999\n": {},
		"": {},
	} {
		if outer, inner := parsePids(text); [2]int{outer, inner} != want {
			t.Errorf("%q: %d, %d, want %v", text, outer, inner, want)
		}
	}
}

func FuzzParsePids(f *testing.F) {
	f.Add("Name:\tjava\nNSpid:\t4711\t23\n")
	f.Add("\nNSpid:")
	f.Fuzz(func(t *testing.T, text string) {
		if outer, inner := parsePids(text); (outer == 0) != (inner == 0) {
			t.Errorf("%q: %d, %d", text, outer, inner)
		}
	})
}
