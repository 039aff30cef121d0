package load

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// maxConnecting is how many clients may be between connecting and their mark at a time.
const maxConnecting = 64

// Streams are answers that are in progress at the same time, each of another client.
// The owner must call [Streams.Finish] or [Streams.Disconnect].
type Streams struct {
	clients []client
	done    sync.WaitGroup
	cancel  context.CancelFunc
}

// client makes one exchange. Its goroutine alone writes it; net is written before
// OpenStreams returns.
type client struct {
	net net.Conn
	err error // of its answer
}

// OpenStreams makes each exchange from another client. It returns when each client
// has the body of its answer up to the mark, or has sent its request if the mark is 0.
// When one fails or ctx ends, all disconnect and the error is returned. Clients wait
// for answers for at most ten minutes, and no longer than ctx.
func OpenStreams(ctx context.Context, addr string, exchanges []Exchange) (*Streams, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &Streams{clients: make([]client, len(exchanges)), cancel: cancel}
	end := time.Now().Add(longest)
	connecting := make(chan struct{}, maxConnecting)
	started := make(chan error, len(exchanges)) // one from each
	for i := range exchanges {
		c.done.Go(func() {
			connecting <- struct{}{}
			connected := sync.OnceFunc(func() { <-connecting })
			defer connected()
			reached := false
			err := c.clients[i].exchange(ctx, &conn{addr: addr, end: end}, &exchanges[i], func() {
				reached = true
				connected()
				started <- nil
			})
			if !reached {
				started <- notStarted(err)
			}
		})
	}
	var errs error
	for range exchanges {
		if err := <-started; err != nil && errs == nil {
			errs = err
			cancel()
		}
	}
	if errs != nil {
		c.done.Wait()
		return nil, errs
	}
	return c, nil
}

// notStarted returns the error of an exchange that ended before its mark.
func notStarted(err error) error {
	if err == nil {
		return errors.New("the answer ended before its mark")
	}
	return err
}

func (c *client) exchange(ctx context.Context, via *conn, x *Exchange, reached func()) error {
	defer via.close()
	if err := via.dial(ctx); err != nil {
		return err
	}
	c.net = via.net
	_, c.err = via.exchange(x, &comparer{want: x.Want.Body, mark: x.Mark, reached: reached})
	return c.err
}

// Finish waits until all answers are complete, and counts the wrong ones.
func (c *Streams) Finish() Tally {
	c.done.Wait()
	c.cancel()
	t := Tally{Answers: len(c.clients)}
	for i := range c.clients {
		var f *Fault
		if errors.As(c.clients[i].err, &f) {
			t = t.Add(Tally{Faults: map[Kind]int{f.Kind: 1}, First: f})
		}
	}
	return t
}

// Disconnect ends all clients at once: every other connection is closed, the rest is
// reset, as when a client crashes. It returns when the clients have ended.
func (c *Streams) Disconnect() {
	for i := range c.clients {
		if tcp, isTCP := c.clients[i].net.(*net.TCPConn); isTCP && i%2 == 1 {
			_ = tcp.SetLinger(0) // fails if the connection has ended already
		}
		_ = c.clients[i].net.Close()
	}
	c.done.Wait()
	c.cancel()
}
