package postgres

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect/collecttest"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestFunctions: sessions of a real server are in a trigger, in a function that another one calls, and in none.
func TestFunctions(t *testing.T) { eachServer(t, testFunctions) }

func testFunctions(t *testing.T, server db) {
	first := server.connect(t)
	first.ask(t, `CREATE TABLE seats (id int);
		CREATE FUNCTION audit_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_sleep(60); RETURN NEW; END $$;
		CREATE TRIGGER audit BEFORE INSERT ON seats FOR EACH ROW EXECUTE FUNCTION audit_row();
		CREATE FUNCTION inner_one(n int, name text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_sleep(60); RETURN n; END $$;
		CREATE FUNCTION outer_one() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
			RETURN inner_one(1, 'a'); END $$; SELECT 1;`)
	for _, statement := range []string{
		"INSERT INTO seats VALUES (1);", "SELECT outer_one();", "SELECT outer_one();", "SELECT pg_sleep(60);",
	} {
		server.connect(t).say(t, statement)
	}
	for range 100 {
		if first.ask(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep';") == "4" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	const window = time.Second
	got := map[string]float64{}
	for _, s := range collecttest.Once(t, open, server.pid, window).Gauge(metric.DatabaseFunctionTime) {
		got[s.Label("function")] = math.Round(s.Last() / window.Seconds())
	}
	want := map[string]float64{"audit_row()": 1, "inner_one(integer,text)": 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sessions by the function they are in (-want +got):\n%s", diff)
	}
}
