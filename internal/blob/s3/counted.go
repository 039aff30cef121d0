package s3

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
)

// countedFor is how long a count is used. Others may write to the service, too.
const countedFor = time.Hour

// counted counts what a bucket with a quota has.
type counted struct {
	meter blob.Meter
	turns [64]chan struct{} // by path: changes of one file follow each other
	load  chan struct{}     // guards until
	until time.Time         // when the count must be made anew; zero = now
}

func newCounted() *counted {
	c := &counted{load: make(chan struct{}, 1)}
	for i := range c.turns {
		c.turns[i] = make(chan struct{}, 1)
	}
	return c
}

// enter waits for a turn, until leave is called.
func enter(ctx context.Context, turn chan struct{}) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// change calls do with what the file with the path is now. Other changes of the file wait.
func (c *counted) change(ctx context.Context, b *Bucket, path string, do func(old blob.Usage) error) error {
	if err := c.ready(ctx, b); err != nil {
		return err
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	leave, err := enter(ctx, c.turns[int(h.Sum32())%len(c.turns)])
	if err != nil {
		return err
	}
	defer leave()
	old := blob.Usage{Files: 1}
	switch info, err := b.Stat(ctx, path); {
	case errors.Is(err, blob.ErrNotFound):
		old = blob.Usage{}
	case err != nil:
		return err
	default:
		old.Bytes = info.Size
	}
	return do(old)
}

// ready counts what the bucket has, unless that is known.
func (c *counted) ready(ctx context.Context, b *Bucket) error {
	leave, err := enter(ctx, c.load)
	if err != nil {
		return err
	}
	defer leave()
	if b.now().Before(c.until) {
		return nil
	}
	used, err := b.Usage(ctx)
	if err != nil {
		return err
	}
	c.meter.Set(used)
	c.until = b.now().Add(countedFor)
	return nil
}

// forget has the count made anew.
func (c *counted) forget() {
	c.load <- struct{}{}
	c.until = time.Time{}
	<-c.load
}
