package ebpf

import (
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestExchanges makes a prime number of exchanges of a known time, with one process as the server and as the client.
// Exactly so many are counted on each side, at that time. A batch of requests that is answered at once is one exchange,
// and so is a request that comes in two parts.
func TestExchanges(t *testing.T) {
	const n, takes = 211, 3 * time.Millisecond
	for _, c := range []struct {
		name         string
		parts, batch int
		wait         time.Duration // of the server, before its answer
	}{
		{"at once", 1, 1, 0},
		{"one by one", 1, 1, takes},
		{"sixteen at once", 1, 16, takes},
		{"in two parts", 2, 1, takes},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			check(t, err)
			defer l.Close()
			go answer(l, c.parts*c.batch, c.wait)
			o := openNamed(t, "bpf-exchanges", targetOf(t, os.Getpid()))
			o.sample()
			whole, rest, err := askAll(l.Addr().String(), n, c.parts, c.batch)
			check(t, err)
			settled()
			rec := o.done()
			for side, took := range map[string][]time.Duration{"server": whole, "client": rest} {
				labels := []string{"side", side, "endpoint", l.Addr().String()}
				want(t, rec, n, metric.ExchangeDurations, labels...)
				want(t, rec, n, metric.ExchangeDurations, labels[:2]...)
				got, measured := middleOf(rec, labels), middle(took)
				t.Logf("%s: median %.1f µs, the client measured %.1f µs", side, got*1e6, measured*1e6)
				if c.wait > 0 && !plausible(side, got, measured, c.wait.Seconds()) {
					t.Errorf("%s: median %v s, the client measured %v s", side, got, measured)
				}
			}
		})
	}
}

// TestExchangesAtTimer: answers that are sent after a sleep follow the end of a timed wait. Answers that are sent at
// once do so in proportion to that share of the time, because the runtime has timers of its own (sysmon in
// runtime/proc.go).
func TestExchangesAtTimer(t *testing.T) {
	for _, c := range []struct {
		n           int
		wait        time.Duration
		least, most float64
	}{
		{4001, 0, -1, 0.5},
		{53, 7 * time.Millisecond, 0.75, 1},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		defer l.Close()
		go answer(l, 1, c.wait)
		o := openNamed(t, "bpf-exchanges", targetOf(t, os.Getpid()))
		o.sample()
		began := time.Now()
		_, _, err = askAll(l.Addr().String(), c.n, 1, 1)
		check(t, err)
		took := time.Since(began).Seconds()
		settled()
		rec := o.done()
		want(t, rec, float64(c.n), metric.ExchangeDurations, "side", "server", "endpoint", l.Addr().String())
		chance := total(rec, metric.AfterTimer) / took
		share := total(rec, metric.ExchangesAtTimer, "endpoint", l.Addr().String()) / float64(c.n)
		beyond := (share - chance) / (1 - chance)
		t.Logf("%v: %.2f of the time is after timers, and %.2f of the answers: %.2f beyond chance", c.wait, chance,
			share, beyond)
		if chance <= 0 || beyond < c.least || beyond > c.most {
			t.Errorf("%v: %v beyond chance, want %v to %v", c.wait, beyond, c.least, c.most)
		}
	}
}

// TestExchangesOfClosed: if a peer answers and closes, the client reads the answer later. Nothing of such a connection
// is kept, since its memory is reused for the next one, and each is an exchange.
func TestExchangesOfClosed(t *testing.T) {
	const n = 53
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			if _, err := c.Read(make([]byte, 1)); err == nil {
				_, _ = c.Write([]byte{1}) // the client says what it got
			}
			_ = c.Close()
		}
	}()
	o := openNamed(t, "bpf-exchanges", targetOf(t, os.Getpid()))
	o.sample()
	for range n {
		c, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		_, err = c.Write([]byte{1})
		check(t, err)
		time.Sleep(2 * time.Millisecond) // until the answer and its end are there
		_, err = io.ReadFull(c, make([]byte, 1))
		check(t, err)
		check(t, c.Close())
	}
	settled()
	kept, entries := 0, o.src.(*exchanges).set.collection.Maps[bpf.ExchangesMapExchanges].Iterate()
	for key, value := uint64(0), (bpf.ExchangesExchange{}); entries.Next(&key, &value); {
		kept++
	}
	check(t, entries.Err())
	if kept > 0 {
		t.Errorf("of %d closed connections %d are kept", n, kept)
	}
	rec := o.done()
	for _, side := range []string{"server", "client"} {
		want(t, rec, n, metric.ExchangeDurations, "side", side, "endpoint", l.Addr().String())
	}
}

// TestExchangesInTurns: attached for a part of the time, the programs count as many exchanges as there were, with the
// times that they had. The connections ask again at once, or ask four times in a turn.
func TestExchangesInTurns(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	const takes, connections = 3 * time.Millisecond, 24
	for range connections {
		go answer(l, 1, takes)
	}
	var asked atomic.Int64
	var clients errgroup.Group
	const window, warm = 4*exchangeEvery + exchangeEvery/2, exchangeEvery / 2
	until := time.Now().Add(warm + window)
	for i := range connections {
		wait := time.Duration(i%2) * exchangeTurn / 4
		clients.Go(func() error { return askUntil(l.Addr().String(), until, wait, &asked) })
	}
	time.Sleep(warm) // at first a connection acknowledges each segment at once
	before := asked.Load()
	o := openNamed(t, "bpf-exchanges", targetOf(t, os.Getpid()))
	e := o.src.(*exchanges)
	e.turns.mu.Lock()
	e.times.limit = 0
	first := e.times.number
	e.turns.mu.Unlock()
	o.sample()
	if first != 0 {
		t.Fatal("the first turn has ended before the limit was lowered")
	}
	check(t, clients.Wait())
	settled()
	rec := o.done()
	all := asked.Load() - before
	for _, side := range []string{"server", "client"} {
		labels := []string{"side", side, "endpoint", l.Addr().String()}
		got := total(rec, metric.ExchangeDurations, labels...)
		t.Logf("%s: %v of %d, median %.1f ms", side, got, all, middleOf(rec, labels)*1e3)
		if share := got / float64(all); share < 0.95 || share > 1.05 {
			t.Errorf("%s: %v exchanges of %d", side, got, all)
		}
		if got := middleOf(rec, labels); got < takes.Seconds() || got > 2*takes.Seconds() {
			t.Errorf("%s: median %v s, want a little more than %v", side, got, takes)
		}
	}
	if e.times.number < 4 {
		t.Errorf("the programs were detached %d times, want 2 or more", e.times.number/2)
	}
}

// askUntil asks on one connection and waits after each answer.
func askUntil(address string, until time.Time, wait time.Duration, asked *atomic.Int64) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for b := []byte{0}; time.Now().Before(until); asked.Add(1) {
		if _, err := conn.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		time.Sleep(wait)
	}
	return nil
}

// plausible tells whether a median agrees with what the client measured, within a bucket's width and the difference of
// the clocks. A server's time ends with its answer. It does not include waking the client, which takes a millisecond in
// an emulated guest.
func plausible(side string, got, measured, wait float64) bool {
	least := 0.9 * measured
	if side == "server" {
		least = wait
	}
	return got >= max(least, wait) && got <= 1.1*measured
}

// answer serves connections: a byte for so many, after a while.
func answer(l net.Listener, bytes int, wait time.Duration) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		for b := make([]byte, bytes); ; {
			if _, err := io.ReadFull(conn, b); err != nil {
				_ = conn.Close()
				break
			}
			time.Sleep(wait)
			_, _ = conn.Write(b[:1])
		}
	}
}

// askAll makes so many exchanges on one connection and returns how long each took, from its first part and from its
// last.
func askAll(address string, n, parts, batch int) (whole, rest []time.Duration, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	for b := make([]byte, batch); len(whole) < n; {
		var began []time.Time
		for part := range parts {
			if part > 0 {
				time.Sleep(100 * time.Microsecond)
			}
			began = append(began, time.Now())
			if _, err := conn.Write(b); err != nil {
				return nil, nil, err
			}
		}
		if _, err := io.ReadFull(conn, b[:1]); err != nil {
			return nil, nil, err
		}
		whole = append(whole, time.Since(began[0]))
		rest = append(rest, time.Since(began[parts-1]))
	}
	return whole, rest, nil
}

func middle(took []time.Duration) float64 {
	slices.Sort(took)
	return took[len(took)/2].Seconds()
}

// middleOf returns the bound of the bucket that has the median.
func middleOf(rec *recording.Recording, labels []string) float64 {
	counts, all := map[float64]float64{}, 0.0
	for _, s := range rec.Counter(metric.ExchangeDurations, labels...) {
		bound, _ := strconv.ParseFloat(s.Label("at_most"), 64)
		n := s.Points[len(s.Points)-1].Value
		counts[bound] += n
		all += n
	}
	var bounds []float64
	for bound := range counts {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	below := 0.0
	for _, bound := range bounds {
		if below += counts[bound]; below >= all/2 {
			return bound
		}
	}
	return 0
}

// TestExchangeBounds: each bucket begins where the one before ends, and is 6.25 % wide.
func TestExchangeBounds(t *testing.T) {
	last := 1024e-9
	const buckets = exchangeBuckets
	for i := range buckets {
		got, err := strconv.ParseFloat(exchangeBound(i), 64)
		check(t, err)
		switch {
		case i == 0 && got != last, i == buckets-1 && !math.IsInf(got, 1),
			i > 0 && i < buckets-1 && (got <= last || got > last*1.0626):
			t.Fatalf("bucket %d ends at %v, the one before at %v", i, got, last)
		}
		last = got
	}
}
