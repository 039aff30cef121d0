package postgres

import (
	"bytes"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The log says once that the mean wait for a connection is long, and once that it is not any more.
func TestLongWaitsAreLogged(t *testing.T) {
	var log bytes.Buffer
	w := waits{log: slog.New(slog.NewTextHandler(&log, nil))}
	total := sql.DBStats{MaxOpenConnections: 8}
	for i, step := range []struct {
		waits  int64
		waited time.Duration
		want   string
	}{
		{0, 0, ""},
		{100, 10 * time.Second, ""},
		{100, 10*time.Second + 100*time.Millisecond, "waits=100 mean=101ms connections=8"},
		{1, time.Minute, ""},
		{1000, time.Second, "any more"},
		{0, 0, ""},
		{0, time.Second, "level=WARN"}, // of one that had begun to wait before
	} {
		log.Reset()
		total.WaitCount, total.WaitDuration = total.WaitCount+step.waits, total.WaitDuration+step.waited
		w.look(t.Context(), total)
		if got := log.String(); !strings.Contains(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("look %d: the log says %q, want %q", i, got, step.want)
		}
	}
}
