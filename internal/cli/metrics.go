package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func (a *app) metricsCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "List everything that can be measured, with its unit and source",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := command.ParseFormat(output, plainFormats)
			if err != nil {
				return err
			}
			if f == command.JSON {
				return command.OutputError(a.metricsJSON())
			}
			return command.OutputError(a.metricsText())
		},
	}
	command.AddOutputFlag(cmd, &output, plainFormats)
	return cmd
}

func (a *app) metricsText() error {
	for _, m := range metric.All() {
		d := m.Describe()
		labels := ""
		if len(d.Labels) > 0 {
			labels = "{" + strings.Join(d.Labels, ",") + "}"
		}
		unit := ""
		if d.Unit != "" {
			unit = ", " + string(d.Unit)
		}
		_, err := fmt.Fprintf(a.Streams.Out, "%s%s (%s%s)\n    %s\n    from %s\n", d.Name, labels, d.Kind, unit, d.Help,
			d.Source)
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) metricsJSON() error {
	type entry struct {
		Name   string   `json:"name"`
		Kind   string   `json:"kind"`
		Unit   string   `json:"unit,omitempty"`
		Labels []string `json:"labels,omitempty"`
		Help   string   `json:"help"`
		Source string   `json:"source"`
	}
	var all []entry
	for _, m := range metric.All() {
		d := m.Describe()
		all = append(all, entry{d.Name, string(d.Kind), string(d.Unit), d.Labels, d.Help, d.Source})
	}
	e := json.NewEncoder(a.Streams.Out)
	e.SetIndent("", "  ")
	return e.Encode(all)
}
