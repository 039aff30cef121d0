package eventlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// leaving is an archive whose caller leaves while it reads the head of a run.
type leaving struct {
	journal.Archive
	leave func()
}

func (l leaving) Head(ctx context.Context, _, _ string) (journal.Head, error) {
	l.leave()
	return journal.Head{}, ctx.Err()
}

type ignored struct{}

func (ignored) Emit(event.Position, event.Event) error { return nil }

// A follower that is ended while it reads the store is told why it ends, and not that the
// store has failed. // L05
func TestAFollowerThatIsEndedIsToldWhy(t *testing.T) {
	store := detailed(t, nil, loop.TurnStarted{Attempt: 1, Purpose: loop.PurposeTurn})
	ctx, end := context.WithCancelCause(t.Context())
	gone := errors.New("the org was deleted")
	archive := leaving{store, func() { end(gone) }}
	account := memlimit.New(memlimit.Options{}).Open("o")
	defer account.Close()
	if err := eventlog.FollowStored(ctx, archive, eventlog.Follow{Org: "o", RunID: "run_1", Account: account}, ignored{}); !errors.Is(err, gone) {
		t.Errorf("the follower ends with %v", err)
	}
}
