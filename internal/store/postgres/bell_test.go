package postgres_test

import (
	"database/sql"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

// hearing returns a bell that hears, and what its subscriber of the kind hears from then on.
func hearing(t *testing.T, o postgres.Options, db *sql.DB, kind string) (*postgres.Bell, <-chan postgres.Key) {
	t.Helper()
	b := postgres.NewBell(o, o.Schema, db)
	heard := make(chan postgres.Key, 1000)
	everything := make(chan bool, 1000)
	b.Subscribe(kind, func(k postgres.Key) {
		if k.Org == "" {
			everything <- true
			return
		}
		heard <- k
	})
	t.Cleanup(b.Close)
	for !b.Hears() {
		wait(t, everything)
	}
	return b, heard
}

func wait[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-t.Context().Done():
		t.Fatal("the test ended first")
		panic("unreachable")
	}
}

func TestABellIsHeardByTheOthers(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	db := open(t, o)
	one, atOne := hearing(t, o, db, postgres.RingRun)
	two, atTwo := hearing(t, o, db, postgres.RingRun)
	odd := postgres.Key{Kind: postgres.RingRun, Org: "a b\n%", ID: "é \xff"}
	one.Ring(odd, odd, postgres.Key{Kind: postgres.RingCancel, Org: "acme", ID: "x"})
	if got := wait(t, atTwo); got != odd {
		t.Errorf("heard %+v, want %+v", got, odd)
	}
	one.Quiet(true)
	one.Ring(postgres.Key{Kind: postgres.RingRun, Org: "acme", ID: "unheard"})
	one.Quiet(false)
	last := postgres.Key{Kind: postgres.RingRun, Org: "acme", ID: "last"}
	one.Ring(last)
	if got := wait(t, atTwo); got != last {
		t.Errorf("heard %+v, want %+v", got, last)
	}
	two.Ring(last)
	if got := wait(t, atOne); got != last || len(atOne) > 0 {
		t.Errorf("heard %+v, want %+v and nothing of its own", got, last)
	}
}

func TestManyKeysAreHeardOnce(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	db := open(t, o)
	one, _ := hearing(t, o, db, postgres.RingRun)
	_, heard := hearing(t, o, db, postgres.RingRun)
	const orgs, each = 8, 100
	var all sync.WaitGroup
	for i := range orgs {
		all.Go(func() {
			for n := range each {
				one.Ring(postgres.Key{Kind: postgres.RingRun, Org: string(rune('a' + i)), ID: strings.Repeat("x", n+1)})
			}
		})
	}
	all.Wait()
	seen := map[postgres.Key]bool{}
	for len(seen) < orgs*each {
		seen[wait(t, heard)] = true
	}
}

func TestWhatWasRungBeforeCloseIsSent(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	db := open(t, o)
	one, _ := hearing(t, o, db, postgres.RingQueue)
	_, heard := hearing(t, o, db, postgres.RingRun)
	last := postgres.Key{Kind: postgres.RingRun, Org: "acme", ID: "last"}
	one.Ring(last)
	one.Close()
	if got := wait(t, heard); got != last {
		t.Errorf("heard %+v, want %+v", got, last)
	}
}

func TestASubscriberThatLeavesHearsNothing(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	db := open(t, o)
	one, _ := hearing(t, o, db, postgres.RingQueue)
	two, heard := hearing(t, o, db, postgres.RingRun)
	left := make(chan postgres.Key, 10)
	two.Subscribe(postgres.RingRun, func(k postgres.Key) { left <- k })()
	one.Ring(postgres.Key{Kind: postgres.RingRun, Org: "acme", ID: "1"})
	wait(t, heard)
	if len(left) > 0 {
		t.Errorf("heard %+v after leaving", <-left)
	}
}

// After a connection nobody knows what was missed.
func TestAfterALostConnectionEverythingIsRead(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	db := open(t, o)
	log := &firstLines{lines: make(chan string, 100)}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	o.URL = withName(t, o.URL, o.Schema)
	b := postgres.NewBell(o, o.Schema, db)
	t.Cleanup(b.Close)
	everything := make(chan bool, 1000)
	b.Subscribe(postgres.RingSettings, func(postgres.Key) { everything <- b.Hears() })
	for !b.Hears() {
		wait(t, everything)
	}
	for len(everything) > 0 {
		<-everything
	}
	want(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '`+o.Schema+`'`, "true")
	for !wait(t, everything) {
	}
	if line := wait(t, log.lines); !strings.Contains(line, "doorbells are not heard") {
		t.Errorf("log %q", line)
	}
}

// Behind a transaction pooler LISTEN succeeds, and nothing is heard: as here, where messages go nowhere.
func TestADeafBellReadsEverythingNowAndThen(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	postgrestest.Exec(t, o, `CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE sql AS ''`)
	c, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	c.RuntimeParams["search_path"] = o.Schema + ", pg_catalog"
	nowhere := stdlib.OpenDB(*c)
	t.Cleanup(func() { nowhere.Close() })
	log := &firstLines{lines: make(chan string, 100)}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	b := postgres.NewBell(o, o.Schema, nowhere)
	t.Cleanup(b.Close)
	everything := make(chan bool, 1000)
	b.Subscribe(postgres.RingSettings, func(postgres.Key) { everything <- b.Hears() })
	if line := wait(t, log.lines); !strings.Contains(line, "the connection hears nothing") {
		t.Errorf("log %q", line)
	}
	for range 2 {
		if wait(t, everything) {
			t.Error("it hears")
		}
	}
}

func TestABellWithoutAWayAroundThePoolerSaysSo(t *testing.T) {
	t.Parallel()
	o := postgrestest.New(t)
	log := &firstLines{lines: make(chan string, 100)}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	o.Pooler = postgres.PoolerTransaction
	b := postgres.NewBell(o, o.Schema, open(t, o))
	t.Cleanup(b.Close)
	if line := wait(t, log.lines); !strings.Contains(line, "set postgres.listen_url") {
		t.Errorf("log %q", line)
	}
}

// firstLines is a log.
type firstLines struct{ lines chan string }

func (l *firstLines) Write(p []byte) (int, error) {
	select {
	case l.lines <- string(p):
	default:
	}
	return len(p), nil
}

// withName returns the URL with an application name.
func withName(t *testing.T, text, name string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String()
}
