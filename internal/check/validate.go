package check

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
)

var kebab = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Validate checks a suite before it runs: unique kebab-case names, a document whose first line is a title, a primary
// source, needs, and a reason for every parameter.
func Validate(checks []*Check) error {
	var errs []error
	names := map[string]bool{}
	for i, c := range checks {
		if c == nil {
			return fmt.Errorf("entry %d of the suite is empty", i+1)
		}
		if names[c.Name] {
			errs = append(errs, fmt.Errorf("check %q is listed twice", c.Name))
		}
		names[c.Name] = true
		errs = append(errs, c.validate()...)
	}
	return errors.Join(errs...)
}

func (c *Check) validate() []error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("check %q: "+format, append([]any{c.Name}, args...)...))
	}
	if !kebab.MatchString(c.Name) {
		bad("the name is not kebab-case")
	}
	if c.Stage.String() == "" {
		bad("no such stage: %d", c.Stage)
	}
	if !strings.Contains(c.Doc, "\n") || c.Title() == "" {
		bad("the document needs a title line and a body")
	}
	if c.URL == "" || c.Run == nil || len(c.Needs) == 0 {
		bad("source, Run and Needs must be set")
	}
	for _, f := range c.Facts {
		if !kebab.MatchString(string(f)) {
			bad("the fact %q is not kebab-case", f)
		}
	}
	c.validateParams(bad)
	return errs
}

func (c *Check) validateParams(bad func(format string, args ...any)) {
	params := map[string]bool{}
	for _, p := range c.Params {
		if params[p.Name] {
			bad("parameter %q is listed twice", p.Name)
		}
		params[p.Name] = true
		if math.IsNaN(p.Default) || math.IsInf(p.Default, 0) {
			bad("parameter %q has no default that can be compared", p.Name)
		}
		if !kebab.MatchString(p.Name) || p.Why == "" {
			bad("parameter %q needs a kebab-case name and a reason", p.Name)
		}
	}
}
