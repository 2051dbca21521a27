package experiment

import (
	"context"
	"errors"
	"fmt"
)

// A Result is what an experiment showed.
type Result struct {
	Schema     int      `json:"schema"` // of this object, now 1
	Experiment string   `json:"experiment"`
	Target     string   `json:"target"`
	Change     Change   `json:"change"`
	Windows    []Window `json:"windows"` // before, during and after
	Result     Outcome  `json:"result"`
	Because    string   `json:"because"`
	Undone     string   `json:"undone"` // what is there now

	lasted bool // the change, until it was undone
}

// An Outcome is what an experiment says about the finding.
type Outcome string

// The outcomes.
const (
	Stands Outcome = "stands"
	Falls  Outcome = "falls"
	Unsure Outcome = "cannot be told"
)

// Run measures, makes the change, measures, undoes it, and measures again. Whatever error it returns, the change is
// undone, or the error says how to undo it. Between the change and its end nothing is written to any stream, because
// the reader of the stream may be what is paused.
func (e *Experiment) Run(ctx context.Context) (*Result, error) {
	r := &Result{Schema: 1, Experiment: e.name, Target: e.target.Name, Change: e.Change()}
	before, err := e.window(ctx, "before")
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	during, err := e.changed(ctx, r)
	if err != nil {
		return nil, err
	}
	after, err := e.window(ctx, "after")
	if err != nil {
		return nil, fmt.Errorf("%w; undone: %s", err, r.Undone)
	}
	r.Windows = []Window{before, during, after}
	r.Result, r.Because = Unsure, "the change did not last for its window"
	if r.lasted {
		r.Result, r.Because = e.judge(before, during, after)
	}
	return r, nil
}

// changed has the watchdog make the change, measures, and undoes the change.
func (e *Experiment) changed(ctx context.Context, r *Result) (Window, error) {
	w, err := startWatchdog(&e.knob, e.Duration)
	if err != nil {
		return Window{}, fmt.Errorf("%w; nothing was changed", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		<-w.gone
		cancel(errWatchdog)
	}()
	if err := w.turn(ctx); err != nil {
		if end := w.end(); errors.Is(err, errWatchdog) {
			err = fmt.Errorf("%w (%s)", err, end)
		}
		if errors.Is(err, ErrRefused) { // what is there is not ours
			return Window{}, fmt.Errorf("%w; nothing was changed", err)
		}
		return Window{}, e.undone(r, err) // the change may have been made all the same
	}
	during, err := e.window(ctx, "during")
	err = e.undone(r, err)
	if end := w.end(); errors.Is(err, errWatchdog) {
		err = fmt.Errorf("%w (%s)", err, end)
	}
	return during, err
}

// undone undoes the change, and adds the result to an error.
func (e *Experiment) undone(r *Result, err error) error {
	how, lasted, failed := e.knob.undo()
	r.Undone, r.lasted = how, lasted
	switch {
	case failed != nil:
		return errors.Join(err, failed)
	case err != nil:
		return fmt.Errorf("%w; undone: %s", err, how)
	}
	return nil
}
