package check

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var kebab = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Validate checks a suite before it runs: unique kebab-case names, a document whose first line is a title, a primary source, needs, a
// reason for every parameter, and explanations that are in the suite.
func Validate(checks []*Check) error {
	var errs []error
	names := map[string]bool{}
	for _, c := range checks {
		if names[c.Name] {
			errs = append(errs, fmt.Errorf("check %q is listed twice", c.Name))
		}
		names[c.Name] = true
		errs = append(errs, c.validate()...)
		for _, e := range c.Explains {
			if !slices.Contains(checks, e) {
				errs = append(errs, fmt.Errorf("check %q explains %q, which is not in the suite", c.Name, e.Name))
			}
		}
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
	for _, p := range c.Params {
		if !kebab.MatchString(p.Name) || p.Why == "" {
			bad("parameter %q needs a kebab-case name and a reason", p.Name)
		}
	}
	return errs
}
