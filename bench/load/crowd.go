package load

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// arriving is how many clients of a crowd may be on their way in at a time.
const arriving = 64

// Crowd is clients that are all inside of an answer at the same time. Its owner
// ends it with [Crowd.Rest] or [Crowd.Leave].
type Crowd struct {
	clients []client
	done    sync.WaitGroup
	cancel  context.CancelFunc
}

// client is one of a crowd. Only its goroutine touches it, but for line, which
// is written before the client has begun.
type client struct {
	line net.Conn
	err  error // of its answer
}

// Gather makes each exchange from a client of its own and returns when all
// clients have their answers' bodies up to the mark, or have sent their
// requests, where it is 0. When one of them does not get so far, or ctx
// ends, the others leave, and the error says why. Clients wait for answers for
// at most ten minutes, and no longer than ctx.
func Gather(ctx context.Context, addr string, exchanges []Exchange) (*Crowd, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &Crowd{clients: make([]client, len(exchanges)), cancel: cancel}
	end := time.Now().Add(longest)
	door := make(chan struct{}, arriving)
	begun := make(chan error, len(exchanges)) // one from each
	for i := range exchanges {
		c.done.Go(func() {
			door <- struct{}{}
			in := sync.OnceFunc(func() { <-door })
			defer in()
			told := false
			err := c.clients[i].be(ctx, &conn{addr: addr, end: end}, &exchanges[i], func() {
				told = true
				in()
				begun <- nil
			})
			if !told {
				begun <- unbegun(err)
			}
		})
	}
	var errs error
	for range exchanges {
		if err := <-begun; err != nil && errs == nil {
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

// unbegun is the error of an answer that never came to its mark: one that was
// shorter is none of its own.
func unbegun(err error) error {
	if err == nil {
		return errors.New("the answer ended before its mark")
	}
	return err
}

func (c *client) be(ctx context.Context, via *conn, x *Exchange, reached func()) error {
	defer via.close()
	if err := via.dial(ctx); err != nil {
		return err
	}
	c.line = via.net
	_, c.err = via.exchange(x, &comparer{want: x.Want.Body, mark: x.Mark, reached: reached})
	return c.err
}

// Rest waits until all answers are complete, and counts the wrong ones.
func (c *Crowd) Rest() Tally {
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

// Leave lets all clients go at once, every other one politely (the connection
// is closed) and the rest as clients do that die (it is reset). It returns when
// they are gone.
func (c *Crowd) Leave() {
	for i := range c.clients {
		if tcp, isTCP := c.clients[i].line.(*net.TCPConn); isTCP && i%2 == 1 {
			_ = tcp.SetLinger(0) // a connection that has ended already is gone, too
		}
		_ = c.clients[i].line.Close()
	}
	c.done.Wait()
	c.cancel()
}
