package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// preflight holds what can be measured here.
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

// blind is a reason why checks cannot be assessed.
type blind struct {
	Reason string   `json:"reason"`
	Remedy string   `json:"remedy,omitempty"`
	Checks []string `json:"checks"`
}

func (a *app) preflightCommand() *cobra.Command {
	d := &diagnosis{app: a, interval: minInterval, duration: 2 * minInterval, jvm: jvmFlags{probe: true}}
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Say what can be measured here, and what would change that",
		Long: `Probes the kernel and this user's rights, samples every collector for a fifth of
a second, and lists the checks that could be assessed and those that could not.
With a target flag it answers for that target; no profiler is loaded into a JVM.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := command.ParseFormat(d.output, plainFormats)
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
			if f == command.JSON {
				e := json.NewEncoder(a.Streams.Out)
				e.SetIndent("", "  ")
				return command.OutputError(e.Encode(p))
			}
			return command.OutputError(p.text(a.Streams.Out))
		},
	}
	addTargetFlags(cmd, &d.selector)
	command.AddOutputFlag(cmd, &d.output, plainFormats)
	d.jvm.addLibrary(cmd)
	return cmd
}

func (d *diagnosis) preflight(cmd *cobra.Command) (*preflight, error) {
	h := host.Local()
	p := &preflight{
		User: userName(os.Geteuid()), Capabilities: []capability{}, Assessable: []string{},
		Blind: []blind{},
	}
	for _, c := range host.Capabilities() {
		r := h.Probe(c)
		p.Capabilities = append(p.Capabilities, capability{c.Name, c.Doc, string(r.Status), r.Reason, r.Remedy})
	}
	t, described, err := d.resolve(cmd.Context(), h, d.selector)
	if err != nil {
		return nil, err
	}
	rec, err := d.collect(cmd.Context(), h, t, described, checks.Suite(), nil)
	if err != nil {
		return nil, err
	}
	p.Collectors, p.Missing = rec.Meta.Collectors, rec.Meta.Unsupported
	p.sort(rec)
	return p, nil
}

func userName(uid int) string {
	if uid == 0 {
		return "root"
	}
	return fmt.Sprintf("uid %d", uid)
}

// sort separates the checks that have all they need from those that lack something. It does not run them: a fifth of
// a second proves nothing.
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
