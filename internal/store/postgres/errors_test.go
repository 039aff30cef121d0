package postgres_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

func TestErrorsOfTheServerHaveAClass(t *testing.T) {
	for code, want := range map[string]postgres.Class{
		"23505": postgres.Unique, "40001": postgres.Retry, "40P01": postgres.Retry, "55P03": postgres.Retry,
		"25006": postgres.ReadOnly, "53100": postgres.Full, "53300": postgres.Unreachable, "57P03": postgres.Unreachable,
		"57P01": postgres.Lost, "57P02": postgres.Lost, "08006": postgres.Lost, "42601": postgres.Other, "57014": postgres.Other,
	} {
		err := fmt.Errorf("append: %w", &pgconn.PgError{Code: code})
		if got := postgres.Classify(err); got != want {
			t.Errorf("%s: class %d, want %d", code, got, want)
		}
	}
	for _, c := range []struct {
		err  error
		want postgres.Class
	}{
		{nil, postgres.Other},
		{sql.ErrNoRows, postgres.Other},
		{errors.New("something"), postgres.Other},
		{driver.ErrBadConn, postgres.Unreachable},
		{io.ErrUnexpectedEOF, postgres.Lost},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, postgres.Lost},
		{context.DeadlineExceeded, postgres.Lost},
		{context.Canceled, postgres.Lost},
	} {
		if got := postgres.Classify(c.err); got != c.want {
			t.Errorf("%v: class %d, want %d", c.err, got, c.want)
		}
	}
}

// What a driver returns is known only from a server.
func TestErrorsOfConnectionsHaveAClass(t *testing.T) {
	t.Parallel()
	o, db := migrated(t)
	insert := `INSERT INTO schema_oldest VALUES (1); INSERT INTO duties (name, owner, until) VALUES ('a', '', 0)`
	do(t, db, insert)
	_, err := db.ExecContext(t.Context(), insert)
	if got := postgres.Classify(err); got != postgres.Unique {
		t.Errorf("twice the same key: class %d of %v", got, err)
	}

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`); postgres.Classify(err) != postgres.Lost {
		t.Errorf("the session was ended: class %d of %v", postgres.Classify(err), err)
	}

	reader, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.ExecContext(t.Context(), `SET default_transaction_read_only = on`); err != nil {
		t.Fatal(err)
	}
	if _, err = reader.ExecContext(t.Context(), insert); postgres.Classify(err) != postgres.ReadOnly {
		t.Errorf("a server that became a standby: class %d of %v", postgres.Classify(err), err)
	}
	if _, err = reader.ExecContext(t.Context(), `SELECT 1`); err == nil {
		t.Error("the connection to a standby goes on")
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	o.URL = "postgres://u:secret@" + address + "/d?sslmode=disable"
	err = open(t, o).PingContext(t.Context())
	if got := postgres.Classify(err); got != postgres.Unreachable {
		t.Errorf("nobody listens: class %d of %v", got, err)
	}
}
