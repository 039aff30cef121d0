package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// queue is where messages wait for their receivers, and what is done with one.
type queue[M any] interface {
	// due returns the receivers that have messages, in their order.
	due(ctx context.Context, now time.Time) ([]receiver, error)

	// claim takes messages for an attempt, at most as many of each receiver as was reserved.
	claim(ctx context.Context, now time.Time, asks []reserved) ([]M, error)

	receiverOf(message M) receiver

	// attempt sends a message and stores the outcome.
	attempt(ctx context.Context, message M)
}

// pump makes attempts for the messages of a queue, between start and end, as many at a time as its slots allow.
type pump[M any] struct {
	queue queue[M]
	slots *slots
	now   func() time.Time // wall clock
	grace time.Duration    // for which end waits for attempts before it cuts them

	// unusable is told why the queue cannot be used, once until it can.
	unusable func(error)

	stop   context.CancelFunc // starts no more attempts; nil = not started
	cut    context.CancelFunc // ends the attempts
	done   sync.WaitGroup
	wake   chan struct{} // has room for one: an attempt has ended
	failed bool          // owned by the goroutine of run
}

func newPump[M any](q queue[M], s *slots, now func() time.Time, grace time.Duration, log *slog.Logger, unusable string) *pump[M] {
	return &pump[M]{
		queue: q, slots: s, now: now, grace: grace, wake: make(chan struct{}, 1),
		unusable: func(err error) { log.Error(unusable, "error", err) },
	}
}

func (p *pump[M]) start() {
	polls, stop := context.WithCancel(context.Background())
	attempts, cut := context.WithCancel(context.Background())
	p.stop, p.cut = stop, cut
	p.done.Go(func() { p.run(polls, attempts) })
}

// end waits until no attempt is in progress. It may be called without start, and more than once.
func (p *pump[M]) end() {
	if p.stop == nil {
		return
	}
	p.stop()
	if p.grace > 0 {
		late := time.AfterFunc(p.grace, p.cut)
		p.done.Wait()
		late.Stop()
	}
	p.cut()
	p.done.Wait()
}

func (p *pump[M]) run(polls, attempts context.Context) {
	ticks := time.NewTicker(pollEvery)
	defer ticks.Stop()
	for {
		err := p.poll(polls, attempts)
		if polls.Err() != nil {
			return
		}
		if err != nil && !p.failed {
			p.unusable(err)
		}
		p.failed = err != nil
		select {
		case <-polls.Done():
			return
		case <-ticks.C:
		case <-p.wake:
		}
	}
}

// poll starts an attempt for each message that is due and for which there is room.
func (p *pump[M]) poll(ctx, attempts context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	now := p.now()
	due, err := p.queue.due(bounded, now)
	if err != nil || len(due) == 0 {
		return err
	}
	room := p.slots.reserve(due)
	if len(room) == 0 {
		return nil
	}
	claimed, err := p.queue.claim(bounded, now, room)
	if err != nil {
		claimed = nil
	}
	begun := make([]receiver, len(claimed))
	for i, m := range claimed {
		begun[i] = p.queue.receiverOf(m)
	}
	p.slots.release(room, begun)
	for i, m := range claimed {
		p.done.Go(func() {
			defer p.ended(begun[i])
			p.queue.attempt(attempts, m)
		})
	}
	return err
}

// ended gives the slot of an attempt back, so that the next message has it at once.
func (p *pump[M]) ended(r receiver) {
	p.slots.end(r)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
