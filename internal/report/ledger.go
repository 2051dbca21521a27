package report

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// How many pools and places the text shows without -v: the verdict is among the first.
const (
	shownPools  = 3
	shownPlaces = 2
)

// pagePools is how many pools a page shows before it folds or counts the rest: a JVM has forty, and most of them wait
// for work of the runtime.
const pagePools = 10

// BusiestPools splits the pools into those that a page shows and those that it folds, for renderers.
func BusiestPools(l *ledger.Ledger) (shown, folded []*ledger.Pool) {
	n := min(pagePools, len(l.Pools))
	return l.Pools[:n], l.Pools[n:]
}

// threadTimeOf returns the account of the target's time, or nil if nothing was seen of it.
func threadTimeOf(rec *recording.Recording) *ledger.Ledger {
	l, _ := ledger.Of(rec)
	return l
}

func (t *text) threadTime() {
	l := t.d.ThreadTime
	if l == nil || len(l.Pools) == 0 {
		return
	}
	wall := 0.0
	for _, p := range l.Pools {
		wall += p.Wall
	}
	t.blank()
	t.line(bold, "WHERE THE THREADS' TIME GOES", "", "")
	t.line(plain, "  ", "  ", fmt.Sprintf("%s of %s, by pool, busiest first", secondsText(wall),
		quantity.Of("", wall/max(l.Window, 1), quantity.Threads).Text()))
	for i, p := range l.Pools {
		if i == shownPools && !t.verbose {
			t.line(faint, "  ", "  ", fmt.Sprintf("and %d more (-v shows them)", len(l.Pools)-i))
			break
		}
		t.pool(p)
	}
}

func (t *text) pool(p *ledger.Pool) {
	t.line(plain, "  ", "    ", p.Who()+": "+p.Split())
	for _, place := range topPlaces(p) {
		t.line(faint, "      ", "        ", placeText(p, place))
	}
}

// topPlaces returns the places of a pool that are worth a line.
func topPlaces(p *ledger.Pool) []ledger.Place {
	n := 0
	for n < min(len(p.Places), shownPlaces) && p.Places[n].Seconds >= leastPlace*p.Wall {
		n++
	}
	return p.Places[:n]
}

// placeText is "80 % answer in recvfrom: 10.0.0.5:5432".
func placeText(p *ledger.Pool, place ledger.Place) string {
	text := quantity.Of("", place.Seconds/p.Wall, quantity.Ratio).Text() + " " + string(place.Part)
	if place.Call != "" && place.Call != string(place.Part) {
		text += " in " + place.Call
	}
	if place.On != "" {
		text += ": " + place.On
	}
	return text
}

// PlaceTexts returns the places of a pool that are worth a line, for renderers.
func PlaceTexts(p *ledger.Pool) []string {
	var out []string
	for _, place := range topPlaces(p) {
		out = append(out, placeText(p, place))
	}
	return out
}

// leastPlace is the least share of a pool's time that makes a place worth a line.
const leastPlace = 0.1

func (m *markdown) threadTime() {
	l := m.d.ThreadTime
	if l == nil || len(l.Pools) == 0 {
		return
	}
	m.line("\n### Where the threads' time goes\n\n| pool | its time | most |\n|---|---|---|")
	shown, folded := BusiestPools(l)
	for _, p := range shown {
		m.line("| %s | %s | %s |", escape(p.Who()), escape(p.Split()), escape(strings.Join(PlaceTexts(p), "; ")))
	}
	if len(folded) > 0 {
		m.line("\nand %d more pools", len(folded))
	}
}
