package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// parseWhatIf reads "METHOD=0.5", "quota=4" or "pool=20". A method's name may contain a =.
func parseWhatIf(s string) (what string, x float64, err error) {
	i := strings.LastIndexByte(s, '=')
	if i > 0 {
		what = s[:i]
		x, err = strconv.ParseFloat(s[i+1:], 64)
	}
	positive := what == evidence.WhatIfQuota || what == evidence.WhatIfPool
	if i <= 0 || err != nil || !(x >= 0) || x > most || positive && x == 0 {
		return "", 0, command.UsageErrorf("--what-if %q: give METHOD=0.5 (it takes half of its CPU time), quota=4 "+
			"(CPUs) or pool=20 (places)", s)
	}
	return what, x, nil
}

func (d *diagnosis) validateWhatIf(given bool) error {
	if !given {
		return nil
	}
	if f := command.Format(d.output); f != command.Text && f != command.JSON {
		return command.UsageErrorf("--what-if goes with -o text or -o json")
	}
	_, _, err := parseWhatIf(d.whatIf)
	return err
}

// tellWhatIf prints what a change that somebody considers would bring, according to the recording.
func (d *diagnosis) tellWhatIf(rec *recording.Recording, f command.Format) error {
	what, x, err := parseWhatIf(d.whatIf)
	if err != nil {
		return err
	}
	res := check.Run(rec, []*check.Check{evidence.WhatIf(what, x)}, check.Options{})
	if len(res.Findings) == 0 {
		return command.UsageErrorf("--what-if %s: %s", d.whatIf, res.Outcomes[0].Reason)
	}
	promises := res.Findings[0].Promises
	if f == command.JSON {
		out := json.NewEncoder(d.Streams.Out)
		out.SetIndent("", "  ")
		return command.OutputError(out.Encode(struct {
			WhatIf   string          `json:"what_if"`
			Promises []check.Promise `json:"promises"`
		}{d.whatIf, promises}))
	}
	for i := range promises {
		if _, err := fmt.Fprintf(d.Streams.Out, "%s: %s\n", d.whatIf, promises[i].Text()); err != nil {
			return command.OutputError(err)
		}
	}
	return nil
}
