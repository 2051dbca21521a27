package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const peersHead = `
## Others on the same cases

Other tools were put to the faults, and are marked by the same rubric: the worst finding by their own severity is the
verdict. How they were run, what their findings mean in the words of the vocabulary, and what could not be had of them
is in [exam/README.md](../exam/README.md#peers).

`

// peerSection writes the results of other tools on the same cases, each beside the first contact.
func (p *page) peerSection() {
	if len(p.peers) == 0 {
		return
	}
	p.printf("%s", peersHead)
	p.peerTable()
	p.peerCases()
	p.peerBroken()
}

// peerTable writes the counts. It repeats those of the first contact above each peer that got other cases than the
// previous one.
func (p *page) peerTable() {
	p.printf("| tool | date | cases%s | time |\n|---|---|---:%s|---:|\n",
		markHead(), strings.Repeat("|---:", len(marks)+1))
	row := func(who string, r *Results, t *Tally) {
		p.printf("| %s | %s | %d", cell(who), days(r), t.Cases)
		p.markCells(t)
		p.printf(" | %s |\n", seconds(t))
	}
	peers := slices.Clone(p.peers)
	slices.SortStableFunc(peers, func(a, b *Results) int { return cmp.Compare(b.total().Cases, a.total().Cases) })
	shown := 0
	for _, r := range peers {
		if t := p.first.on(r); t.Cases != shown {
			row("first contact, on these: "+p.first.Who, p.first, t)
			shown = t.Cases
		}
		row(r.Who, r, r.total())
	}
	for _, r := range peers {
		if n := p.first.notPut(r); n > 0 {
			p.printf("\n%s has not been put to %d more cases yet.\n", r.Who, n)
		}
	}
}

// notPut counts the cases that another tool did not get. A tool with cases of a single runtime is only for that
// runtime.
func (r *Results) notPut(other *Results) int {
	runtime := func(c *CaseScore) string { return c.Runtime }
	all, put := r.by(runtime, r.Sealed.Runtimes), other.by(runtime, other.Sealed.Runtimes)
	if len(put) > 1 {
		return r.total().Cases - other.total().Cases
	}
	n := 0
	for name, t := range put {
		n = tallyOf(all, name).Cases - t.Cases
	}
	return n
}

// on counts the cases that the other results have too: open cases by name, and sealed ones by runtime, if the other
// tool got all sealed cases of that runtime.
func (r *Results) on(other *Results) *Tally {
	t := newTally()
	for _, c := range r.Cases {
		if other.find(c.Name) != nil {
			t.add(c)
		}
	}
	for runtime, sealed := range r.Sealed.Runtimes {
		if o := other.Sealed.Runtimes[runtime]; o != nil && o.Cases == sealed.Cases {
			t.merge(sealed)
		}
	}
	return t
}

// peerCases writes each open case that a tool got, with what each tool said first.
func (p *page) peerCases() {
	p.printf("\n| open case | truth | first contact")
	for _, r := range p.peers {
		p.printf(" | %s", cell(r.Who))
	}
	p.printf(" |\n|---|---|---%s|\n", strings.Repeat("|---", len(p.peers)))
	for _, c := range p.first.Cases {
		if !slices.ContainsFunc(p.peers, func(r *Results) bool { return r.find(c.Name) != nil }) {
			continue
		}
		p.printf("| %s | %s | %s", c.Name, p.cases[c.Name].Truth.Mechanism, c.Fault.Mark)
		for _, r := range p.peers {
			p.printf(" | %s", peerMark(r.find(c.Name)))
		}
		p.printf(" |\n")
	}
}

func peerMark(c *CaseScore) string {
	switch {
	case c == nil:
		return "–" // it did not get the case
	case len(c.Fault.Says) == 0:
		return string(c.Fault.Mark)
	}
	return fmt.Sprintf("%s: %s", c.Fault.Mark, strings.Join(c.Fault.Says, " or "))
}

// peerBroken writes which open cases a peer has no answer for, and why.
func (p *page) peerBroken() {
	for _, r := range p.peers {
		for _, c := range r.Cases {
			if c.Fault.Broken != "" {
				p.printf("\n%s has no answer to %s: %s\n", cell(r.Who), c.Name, prose(c.Fault.Broken))
			}
		}
	}
}
