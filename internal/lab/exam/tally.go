package main

// Tally counts cases by what they came to.
type Tally struct {
	Cases int          `json:"cases"`
	Marks map[Mark]int `json:"marks"` // of the faults, broken ones too
	// Healthy systems: the twin of each case, or the cured one where there is none; and all cured ones.
	Healthy int `json:"healthy"`
	Alarms  int `json:"false_alarms"`
	Cured   int `json:"cured"`
	Uncured int `json:"alarms_on_cured"`
	// Cures: those that were measured, those that move what they must, verdicts in a fault, those gone in the cure.
	Cures    int     `json:"cures"`
	Work     int     `json:"cures_that_work"`
	Verdicts int     `json:"verdicts"`
	Silenced int     `json:"silenced"`
	Seconds  float64 `json:"seconds"` // of perfdoctor, over all faults that were built

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

// merge adds the counts of another.
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

// built is the number of cases with an answer.
func (t *Tally) built() int { return t.Cases - t.Marks[Broken] }
