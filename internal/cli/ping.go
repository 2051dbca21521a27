package cli

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/collect/vantage"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// ping holds the flags of ping.
type ping struct {
	*app
	files
	plan vantage.Plan
	pid  int
	save string
}

func (a *app) pingCommand() *cobra.Command {
	p := &ping{app: a}
	cmd := &cobra.Command{
		Use:   "ping ADDRESS:PORT",
		Short: "Measure round trips to a destination from another place",
		Long: `Opens and closes a TCP connection to the destination again and again and prints
the round trips, which the kernel measured. One host cannot tell where on a path
packets wait. Run it at the same moment on an unloaded host behind the same
egress (--as neighbour) and on one outside of that (--as outside), and give the
files to the diagnosis of the loaded host with --vantage.`,
		Example: `  perfdoctor ping api.example.com:443 --as neighbour --save neighbour.zip
  perfdoctor ping api.example.com:443 --as outside --save outside.zip
  perfdoctor diagnose --pid 4021 --vantage neighbour.zip --vantage outside.zip`,
		Args: command.OneArg("the address and port of the destination"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&p.plan.Name, "as", metric.VantageHere, "`where` this is, seen from the loaded host: here, neighbour "+
		"or outside")
	timeVarP(f, &p.plan.Duration, "duration", "d", 10*time.Second, "ping for this `time`")
	timeVar(f, &p.plan.Interval, "interval", 200*time.Millisecond, "`time` between pings")
	f.IntVarP(&p.pid, "pid", "p", 0, "ping from the network namespace of process `N`, such as one in a container")
	f.StringVar(&p.save, "save", "", "keep the round trips in the directory `PATH`, or in a zip file when it ends "+
		"in .zip")
	p.addForceFlag(cmd)
	completeRunning(cmd, "pid", processIDs)
	command.CompleteFlag(cmd, "as", vantage.Names()...)
	return cmd
}

func (p *ping) run(cmd *cobra.Command, destination string) error {
	if err := p.validateSave(cmd, &p.save); err != nil {
		return err
	}
	address, err := net.ResolveTCPAddr("tcp", destination)
	if err != nil {
		return command.UsageErrorf("%q: want ADDRESS:PORT: %v", destination, err)
	}
	p.plan.Destination, p.plan.Version = address.AddrPort(), p.Version
	rec, err := PingFrom(cmd.Context(), p.pid, p.plan)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.Streams.Out, pingSummary(rec, p.plan))
	if err = command.OutputError(err); err == nil && p.save != "" {
		err = rec.SaveAs(p.save, p.how())
	}
	return err
}

// PingFrom pings from the network namespace of a process, or from the program's own if pid is 0.
func PingFrom(ctx context.Context, pid int, plan vantage.Plan) (rec *recording.Recording, err error) {
	if pid == 0 {
		return plan.Ping(ctx)
	}
	err = host.Local().InNetNS(pid, func() (err error) {
		rec, err = plan.Ping(ctx)
		return err
	})
	return rec, err
}

func pingSummary(rec *recording.Recording, plan vantage.Plan) string {
	unanswered := 0.0
	for _, s := range rec.Counter(metric.VantageUnanswered) {
		unanswered = s.Points[len(s.Points)-1].Value
	}
	var row []float64
	for _, s := range rec.Gauge(metric.VantageRTT) {
		row = append(row, series.Values(s.Points)...)
	}
	if len(row) == 0 {
		return fmt.Sprintf("%s, as %s: no answer to %.0f pings within 1 s", plan.Destination, plan.Name, unanswered)
	}
	text := func(v float64) string { return quantity.Of("", v, quantity.Seconds).Text() }
	return fmt.Sprintf("%s, as %s: %d round trips, least %s, median %s, most %s; %.0f unanswered", plan.Destination,
		plan.Name, len(row),
		text(slices.Min(row)), text(series.Median(row)), text(slices.Max(row)), unanswered)
}

// withVantages adds what was measured elsewhere. If that fails, the recording is as good as it was.
func (d *diagnosis) withVantages(rec *recording.Recording) (*recording.Recording, error) {
	var others []*recording.Recording
	for _, path := range d.vantages {
		other, err := recording.Open(path)
		if err != nil {
			return rec, fromError(fmt.Errorf("--vantage: %w", err))
		}
		others = append(others, other)
	}
	with, err := vantage.Add(rec, others...)
	if err != nil {
		return rec, fmt.Errorf("--vantage: %w", err)
	}
	return with, nil
}
