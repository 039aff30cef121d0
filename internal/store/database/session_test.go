package database

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestIsLost(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{io.ErrUnexpectedEOF, true},
		{context.DeadlineExceeded, true},
		{&pgconn.PgError{Code: "57P01"}, true},
		{&pgconn.PgError{Code: "25006"}, true},
		{&pgconn.PgError{Code: "25P03"}, true}, // it was paused within a transaction
		{&pgconn.PgError{Code: "53300"}, true},
		{&pgconn.PgError{Code: "23505"}, false},
		{&pgconn.PgError{Code: "40001"}, false},
		{fmt.Errorf("%w: %w", errUnknown, io.EOF), false},
		{&lostError{io.EOF}, true},
	} {
		if got := isLost(tt.err); got != tt.want {
			t.Errorf("isLost(%v) = %t", tt.err, got)
		}
	}
}
