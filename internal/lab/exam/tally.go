package main

// Tally counts cases by their outcome.
type Tally struct {
	Cases int          `json:"cases"`
	Marks map[Mark]int `json:"marks"` // the marks of the faults, including broken ones
	// Healthy systems: the twin of each case, or its fixed system if it has no twin; and all fixed systems.
	Healthy int `json:"healthy"`
	Alarms  int `json:"false_alarms"`
	Cured   int `json:"cured"`
	Uncured int `json:"alarms_on_cured"`
	// Fixes: the measured ones, the ones that move what they must, verdicts in a fault, and those verdicts that are
	// gone with the fix.
	Cures    int     `json:"cures"`
	Work     int     `json:"cures_that_work"`
	Verdicts int     `json:"verdicts"`
	Silenced int     `json:"silenced"`
	Seconds  float64 `json:"seconds"` // perfdoctor's time, over all faults that were built

	Busiest map[Mark]int     `json:"busiest,omitempty"`
	Random  map[Mark]float64 `json:"random,omitempty"`
}

func newTally() *Tally {
	return &Tally{Marks: map[Mark]int{}, Busiest: map[Mark]int{}, Random: map[Mark]float64{}}
}

// add counts a case.
func (t *Tally) add(c *CaseScore) {
	t.Cases++
	t.Marks[c.Fault.Mark]++
	if c.Fault.Mark == Broken {
		t.Busiest[Broken]++
		t.Random[Broken]++
	} else {
		t.Seconds = round(t.Seconds + c.Fault.Seconds)
		if c.Fault.Busiest != "" {
			t.Busiest[c.Fault.Busiest]++
		}
		for m, p := range c.Random {
			t.Random[m] += p
		}
	}
	count(c.healthy(), &t.Healthy, &t.Alarms)
	count(c.Cure, &t.Cured, &t.Uncured)
	countIf(c.CureWorks, &t.Cures, &t.Work)
	countIf(c.Silenced, &t.Verdicts, &t.Silenced)
}

func count(p *PhaseScore, all, alarms *int) {
	if p == nil || p.Broken != "" {
		return
	}
	alarm := p.Alarm
	countIf(&alarm, all, alarms)
}

func countIf(is *bool, all, yes *int) {
	if is == nil {
		return
	}
	*all++
	if *is {
		*yes++
	}
}

// merge adds the counts of another tally.
func (t *Tally) merge(o *Tally) {
	t.Cases += o.Cases
	t.Healthy += o.Healthy
	t.Alarms += o.Alarms
	t.Cured += o.Cured
	t.Uncured += o.Uncured
	t.Cures += o.Cures
	t.Work += o.Work
	t.Verdicts += o.Verdicts
	t.Silenced += o.Silenced
	t.Seconds = round(t.Seconds + o.Seconds)
	for m, n := range o.Marks {
		t.Marks[m] += n
	}
	for m, n := range o.Busiest {
		t.Busiest[m] += n
	}
	for m, n := range o.Random {
		t.Random[m] += n
	}
}

// built returns the number of cases with an answer.
func (t *Tally) built() int { return t.Cases - t.Marks[Broken] }
