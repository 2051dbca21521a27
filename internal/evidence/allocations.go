package evidence

import (
	"fmt"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// siteShare is the share of the bytes from which on a method is named: less is not worth a change.
const siteShare = 0.05

// shownSites is how many methods are named: past the third they rarely change what to do.
const shownSites = 3

// AllocationSites names the application's methods that allocate most bytes, each with the class of most of them. It
// is empty without an allocation profile of this process.
func AllocationSites(p *check.Pass, pid string) (out []string) {
	prof, ok := p.Ranked(stacks.Alloc)
	if !ok || strconv.Itoa(p.Meta.Target.PID) != pid || prof.Total().Count < FewSamples {
		return nil
	}
	var hits []Hit
	for _, s := range prof.Samples {
		if len(s.Stack) > 0 {
			hits = append(hits, Hit{Sample: s})
		}
	}
	for _, c := range Culprits(prof, hotcode.OwnersOf(p.Recording), hits, nil) {
		if len(out) == shownSites || float64(c.Value) < siteShare*float64(prof.Total().Value) {
			break
		}
		text := fmt.Sprintf("%s of the allocated bytes are for %s", PartText(c.Value, prof.Total().Value), c.Name())
		if c.class != "" {
			text += ", most of them " + c.class
		}
		out = append(out, text)
	}
	return out
}
