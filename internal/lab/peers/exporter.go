package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// scrapeEvery is how often both are scraped: the default of Prometheus and of the exporter is 15 s.
const scrapeEvery = 15 * time.Second

// ofExporter lets both exporters serve for some windows, each with one scrape. A cost covers one window: everything
// that the process did from one scrape to the next. That includes what perfdoctor collects between scrapes and what
// node_exporter collects while it answers.
func ofExporter(n, windows int) func(context.Context, *bench, string) (*Contest, error) {
	return func(ctx context.Context, b *bench, name string) (*Contest, error) {
		g := &groups{lab: b.lab, host: b.host}
		if err := g.grow(n); err != nil {
			return nil, err
		}
		c := &Contest{
			Name: name,
			Work: fmt.Sprintf("%v of an exporter on a host with %d control groups, with one scrape", scrapeEvery, n),
			Field: []*Entrant{
				b.ours("exporter", "--web.listen-address", "127.0.0.1:9843"),
				entrant("node_exporter", "prometheus-node-exporter", "--web.listen-address", "127.0.0.1:9844"),
			},
		}
		var serving []*server
		for i, e := range c.Field {
			if e.Missing != "" {
				continue
			}
			s, err := serve(b.host, e, fmt.Sprintf("127.0.0.1:%d", 9843+i))
			if err != nil {
				return nil, err
			}
			serving = append(serving, s)
		}
		for round := range b.times(windows) + 1 { // the first one covers the start
			if err := clock.Sleep(ctx, scrapeEvery); err != nil {
				return nil, err
			}
			for _, s := range serving {
				if err := s.window(ctx, round > 0); err != nil {
					return nil, err
				}
			}
		}
		return c, nil
	}
}

// A server is a program that serves metrics.
type server struct {
	e      *Entrant
	p      *lab.Process
	url    string
	client *http.Client
	used   time.Duration // CPU time, at the end of the last window
}

func serve(h *lab.Host, e *Entrant, address string) (*server, error) {
	cmd := command(e.argv)
	p, err := h.Start(cmd)
	if err != nil {
		return nil, err
	}
	s := &server{e: e, p: p, url: "http://" + address + "/metrics"}
	dial := func(context.Context, string, string) (c net.Conn, err error) {
		err = h.Do(func() error { c, err = net.Dial("tcp", address); return err }) //nolint:noctx // the context of a request ends with it
		return c, err
	}
	s.client = &http.Client{Transport: &http.Transport{DialContext: dial}}
	answers := func() bool { _, _, err := s.scrape(context.Background()); return err == nil }
	return s, eventually(answers, "%s answers", e.Command)
}

// scrape returns the number of series and how long the answer took.
func (s *server) scrape(ctx context.Context) (series int, took time.Duration, err error) {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	const most = 64 << 20 // a hundred times the size of either answer
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return bytes.Count(body, []byte("\n")) - bytes.Count(body, []byte("\n#")), time.Since(began),
		errors.Join(err, resp.Body.Close())
}

// window ends a window with a scrape, and notes what it cost.
func (s *server) window(ctx context.Context, counts bool) error {
	series, took, err := s.scrape(ctx)
	if err != nil {
		return err
	}
	used, err := clockOf(s.p.Pid)
	if err != nil {
		return err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.p.Pid))
	if err != nil {
		return err
	}
	peak := 0.0 // kilobytes
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &peak); err != nil {
		return fmt.Errorf("VmHWM of pid %d: %w", s.p.Pid, err)
	}
	if counts {
		s.e.Costs = append(s.e.Costs, Cost{
			Wall: took.Seconds(), CPU: (used - s.used).Seconds(), Memory: peak * 1024, Units: float64(series),
		})
	}
	s.used = used
	return nil
}
