package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// preflight is what can be measured here.
type preflight struct {
	User         string                      `json:"user"`
	Capabilities []capability                `json:"capabilities"`
	Collectors   []recording.CollectorStatus `json:"collectors"`
	Missing      []recording.Missing         `json:"not_measured"`
	Assessable   []string                    `json:"checks_assessable"`
	Blind        []blind                     `json:"checks_not_assessable"`
}

type capability struct {
	Name   string `json:"name"`
	For    string `json:"for"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// blind is a reason for which checks cannot be assessed.
type blind struct {
	Reason string   `json:"reason"`
	Remedy string   `json:"remedy,omitempty"`
	Checks []string `json:"checks"`
}

func (a *app) preflightCommand() *cobra.Command {
	d := &diagnosis{app: a, interval: minInterval, duration: 2 * minInterval}
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Say what can be measured here as this user, what not, why, and what would change that",
		Long: `Probes the kernel and this user's rights, samples every collector twice within a fifth of a second, and lists the checks that could be assessed and those
that could not. With a target flag it answers for that target.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := parseFormat(d.output)
			if err != nil {
				return err
			}
			if err := checkTargetFlags(cmd, d.selector); err != nil {
				return err
			}
			p, err := d.preflight(cmd)
			if err != nil {
				return err
			}
			if f == formatJSON {
				e := json.NewEncoder(a.streams.Out)
				e.SetIndent("", "  ")
				return e.Encode(p)
			}
			return p.text(a.streams.Out)
		},
	}
	addTargetFlags(cmd, &d.selector)
	cmd.Flags().StringVarP(&d.output, "output", "o", string(formatText), "output format: text or json")
	return cmd
}

func (d *diagnosis) preflight(cmd *cobra.Command) (*preflight, error) {
	h := host.Local()
	p := &preflight{User: fmt.Sprintf("uid %d", os.Geteuid())}
	for _, c := range host.Capabilities() {
		r := h.Probe(c)
		p.Capabilities = append(p.Capabilities, capability{c.Name, c.Doc, string(r.Status), r.Reason, r.Remedy})
	}
	t, described, err := resolve(cmd.Context(), h, d.selector)
	if err != nil {
		return nil, err
	}
	d.streams.Err = io.Discard // no progress line for a fifth of a second
	rec, err := d.collect(cmd.Context(), h, t, described, checks.Suite(), nil)
	if err != nil {
		return nil, err
	}
	p.Collectors, p.Missing = rec.Meta.Collectors, rec.Meta.Unsupported
	p.sort(rec)
	return p, nil
}

// sort tells the checks that have all they need from those that lack something. It does not run them: a fifth of a second proves nothing.
func (p *preflight) sort(rec *recording.Recording) {
	for _, c := range checks.Suite() {
		reason, remedy := lacking(rec, c)
		if reason == "" {
			p.Assessable = append(p.Assessable, c.Name)
			continue
		}
		i := slices.IndexFunc(p.Blind, func(b blind) bool { return b.Reason == reason })
		if i < 0 {
			p.Blind = append(p.Blind, blind{Reason: reason, Remedy: remedy})
			i = len(p.Blind) - 1
		}
		p.Blind[i].Checks = append(p.Blind[i].Checks, c.Name)
	}
}

func lacking(rec *recording.Recording, c *check.Check) (reason, remedy string) {
	for _, m := range c.Needs {
		if !rec.Recorded(m) {
			return rec.Why(m)
		}
	}
	return "", ""
}

func (p *preflight) text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "What perfdoctor can measure here as %s\n\n", p.User)
	for _, c := range p.Capabilities {
		fmt.Fprintf(&b, "%-13s %-20s %s\n", c.Status, c.Name, c.For)
		if c.Status != string(host.Available) {
			fmt.Fprintf(&b, "%34s %s\n", "because", c.Reason)
			if c.Remedy != "" {
				fmt.Fprintf(&b, "%34s %s\n", "change", c.Remedy)
			}
		}
	}
	fmt.Fprintf(&b, "\nCollectors\n")
	for _, c := range p.Collectors {
		longest := time.Duration(c.Longest * float64(time.Second)).Round(10 * time.Microsecond)
		fmt.Fprintf(&b, "%-13s %-20s slowest sample %v\n", c.Status, c.Name, longest)
		if c.Status != recording.StatusOK {
			fmt.Fprintf(&b, "%34s %s\n", "because", c.Reason)
		}
	}
	fmt.Fprintf(&b, "\n%d checks can be assessed, %d cannot\n", len(p.Assessable), len(checks.Suite())-len(p.Assessable))
	for _, x := range p.Blind {
		fmt.Fprintf(&b, "  %s\n      because %s\n", strings.Join(x.Checks, ", "), x.Reason)
		if x.Remedy != "" {
			fmt.Fprintf(&b, "      change: %s\n", x.Remedy)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
