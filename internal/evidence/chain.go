package evidence

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A Chain says how the target's waits lead into a database server: to its sessions at the other ends of the target's
// connections, found by the two addresses of each connection.
type Chain struct {
	Server   string   // address of the server, where the target waits most
	Waiters  []string // the target's threads and processes that wait there, such as "python3 pid 77"
	Sessions []string // pids of sessions of the server that serve these connections and waited for a lock
	Seconds  float64  // that the target's threads waited for answers of Server
	Answers  float64  // seconds that they waited for answers of all destinations
}

// A link is one connection, by both of its addresses.
type link struct{ source, destination string }

func linkOf(s *recording.Series) link { return link{s.Label("source"), s.Label("destination")} }

// ChainOf returns the chain of the recording; ok is false if no session that waited for a lock serves the target.
func ChainOf(p *check.Pass) (c Chain, ok bool) { return chainOf(p.Recording) }

func chainOf(rec *recording.Recording) (c Chain, ok bool) {
	sessions := map[link]string{}
	for _, s := range rec.Info(metric.DatabaseSessionClient) {
		sessions[linkOf(s)] = s.Label("pid")
	}
	waits, found := map[string]float64{}, map[string]float64{} // by server; found only on the connections of sessions
	for _, s := range rec.Gauge(metric.ConnectionWaitTime) {
		server := s.Label("destination")
		waits[server] += s.Last()
		c.Answers += s.Last()
		if sessions[linkOf(s.Series)] != "" {
			found[server] += s.Last()
		}
	}
	for server, n := range found {
		if c.Server == "" || cmp.Or(cmp.Compare(n, found[c.Server]), strings.Compare(c.Server, server)) > 0 {
			c.Server = server
		}
	}
	if c.Server == "" {
		return c.ofLoop(rec)
	}
	c.Seconds = waits[c.Server]
	for _, s := range rec.Gauge(metric.ConnectionWaitTime, "destination", c.Server) {
		who := s.Label("comm") + " pid " + s.Label("pid")
		session := sessions[linkOf(s.Series)]
		if session != "" && !slices.Contains(c.Waiters, who) {
			c.Waiters = append(c.Waiters, who)
		}
		if session != "" && !slices.Contains(c.Sessions, session) {
			c.Sessions = append(c.Sessions, session)
		}
	}
	return c, true
}

// ofLoop returns the chain of a target whose threads wait for many connections at once, so that none is seen waiting
// for a single one. The sessions that serve it are known all the same, because the collector found them.
func (c Chain) ofLoop(rec *recording.Recording) (Chain, bool) {
	sessions := rec.Info(metric.DatabaseSessionClient)
	if len(sessions) == 0 || rec.Recorded(metric.DatabaseScanTime) { // the server itself is the target
		return c, false
	}
	c.Server = sessions[0].Label("destination")
	for _, s := range sessions {
		c.Sessions = append(c.Sessions, s.Label("pid"))
	}
	return c, true
}

// JoinServer returns the recording of a client, extended by what another recording shows of the database server that
// it waits for: the sessions at the other ends of its connections, what they waited for, and who held it. The two
// recordings were made at the same time, on one host or on two; their clocks need to agree only so far that the
// windows overlap.
func JoinServer(client, server *recording.Recording) (*recording.Recording, error) {
	if len(server.Info(metric.DatabaseServer)) == 0 {
		return nil, errors.New("the second recording is not that of a database server: record one with --pid of " +
			"PostgreSQL, and give it with --and")
	}
	if endOf(client).Before(server.Meta.Started) || endOf(server).Before(client.Meta.Started) {
		return nil, fmt.Errorf("the recordings are of different times, %s and %s: record both at once",
			client.Meta.Started.Format(time.DateTime), server.Meta.Started.Format(time.DateTime))
	}
	asked := map[link]bool{}
	for _, s := range client.Gauge(metric.ConnectionWaitTime) {
		asked[linkOf(s.Series)] = true
	}
	serving := map[string]bool{}
	for _, s := range server.Info(metric.DatabaseSessionClient) {
		if asked[linkOf(s)] {
			serving[s.Label("pid")] = true
		}
	}
	if len(serving) == 0 {
		return nil, errors.New("no session that waited for a lock in the second recording serves a connection on " +
			"which threads waited in the first: between the two may be a proxy that has connections of its own, or " +
			"nothing was locked")
	}
	return client.WithSeries(server, []metric.Metric{
		metric.DatabaseServer, metric.DatabaseSessionTime, metric.DatabaseTransactionAge, metric.DatabasePasses,
		metric.DatabaseLockTime, metric.DatabaseSessionClient,
	}, func(s *recording.Series) bool {
		switch s.Metric {
		case metric.Metric(metric.DatabaseLockTime), metric.Metric(metric.DatabaseSessionClient):
			return serving[s.Label("pid")]
		}
		return true
	}), nil
}

func endOf(rec *recording.Recording) time.Time {
	return rec.Meta.Started.Add(time.Duration(rec.Meta.Duration * float64(time.Second)))
}
