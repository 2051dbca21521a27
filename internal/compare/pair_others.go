package compare

// A familyPair is the series of one metric and its lasting labels in both recordings.
type familyPair struct{ before, after *family }

// pairFamilies returns the families that both recordings have with enough readings.
func pairFamilies(before, after map[string]*family) []familyPair {
	var out []familyPair
	for key, x := range before {
		if y, ok := after[key]; ok && x.estimate != nil && y.estimate != nil {
			out = append(out, familyPair{x, y})
		}
	}
	return out
}
