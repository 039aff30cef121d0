package journal

import (
	"context"
	"errors"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// BatchBytes is how much of facts, rows or events is taken at a time. One that is
// larger is taken alone.
const BatchBytes = 64 << 10

// ReadBatch reads a batch. A fact or row that is larger than a batch is charged before
// it is read, twice, because it is decoded too.
func ReadBatch(memory interface{ Acquire(n int) error }, read func(limit int) error) error {
	err := read(BatchBytes)
	var large *TooLarge
	if !errors.As(err, &large) {
		return err
	}
	if err := memory.Acquire(2 * large.Bytes); err != nil {
		return err
	}
	return read(large.Bytes)
}

// Fold folds the facts of a run that follow s, which it reads in batches. The error
// wraps [loop.ErrUnsafe] if the journal is not safe, and is an *[Unreadable] if a fact cannot
// be decoded. account is charged with a fact that is larger than a batch while it is folded.
//
// each is called with every fact, and the state before it; nil = nothing is.
func Fold(
	ctx context.Context, archive Archive, account *memlimit.Account, orgID, runID string, s loop.State, each func(loop.State, loop.Fact),
) (loop.State, error) {
	for {
		next, err := foldBatch(ctx, archive, account, orgID, runID, s, each)
		if err != nil || next.Seq == s.Seq {
			return next, err
		}
		s = next
	}
}

// foldBatch is Fold for one batch.
func foldBatch(
	ctx context.Context, archive Archive, account *memlimit.Account, orgID, runID string, s loop.State, each func(loop.State, loop.Fact),
) (loop.State, error) {
	memory := account.Share()
	defer memory.Close()
	var facts []loop.Fact
	err := ReadBatch(memory, func(limit int) (err error) {
		facts, err = archive.Facts(ctx, orgID, runID, s.Seq, limit)
		return err
	})
	if err != nil {
		return s, err
	}
	for _, f := range facts {
		if err := loop.CheckSafety(s, f); err != nil {
			return s, err
		}
		if each != nil {
			each(s, f)
		}
		s = loop.Apply(s, f)
	}
	return s, nil
}
