package compare

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// Loudest gives the higher of the severities.
func (f *Finding) Loudest() check.Severity {
	loudest := f.Either().Severity
	if f.Before != nil {
		loudest = max(loudest, f.Before.Severity)
	}
	return loudest
}

// counts tells whether the finding says something about better or worse.
func (f *Finding) counts() bool {
	changed := f.Fate == New || f.Fate == Gone || f.Fate == Risen || f.Fate == Fallen
	return changed && f.Doubt == "" && f.Loudest() >= check.Warning
}

const atThreshold = "half of one window alone says the other: it is at the threshold"

// wavers tells whether a half of the window has the check speak as loudly as the other recording does, and not as the whole does. 0 is
// silence. Halves that cannot be assessed say nothing. What came up within the window and was critical at its end has passed the
// threshold, and is not at it.
func (d *diagnosis) wavers(name string, whole, other check.Severity) bool {
	var said []check.Severity
	blind := true
	for _, h := range d.halves {
		if st := state(h.Result, name); st == check.Found || st == check.Fine {
			said = append(said, loudest(h.Result, name))
			blind = blind && h.blind[name]
		}
	}
	if len(said) == 0 {
		return false
	}
	if other > whole {
		return slices.Max(said) >= other
	}
	if blind && slices.Max(said) < whole { // what the whole rests on is in neither
		return false
	}
	arose := other == 0 && whole == check.Critical && said[len(said)-1] == check.Critical
	return slices.Min(said) <= other && !arose
}
