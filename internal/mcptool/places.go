package mcptool

import "context"

// enter waits for the caller's turn to call the server: at most
// [Server.MaxConcurrent] calls are under way, and the others wait in the order
// in which they came. The error is the cause of the end of ctx, or of the
// client's. Call leave when the call is over.
func (c *Client) enter(ctx context.Context) (leave func(), err error) {
	ctx, release := c.bound(ctx)
	defer release()
	if c.places.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	return func() { c.places.Release(1) }, nil
}
