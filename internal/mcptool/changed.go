package mcptool

import "time"

// methodListChanged is the notification that a server's tools have changed.
const methodListChanged = "notifications/tools/list_changed"

// quiet is the time between two calls of [Server.OnListChanged].
const quiet = time.Second

// changed notes that the tools of the server may be others. It never blocks.
func (c *Client) changed() {
	select {
	case c.changes <- struct{}{}:
	default: // one call will do for both
	}
}

// announce calls OnListChanged for what changed noted, until the client is
// retired or closed.
func (c *Client) announce() {
	for {
		select {
		case <-c.changes:
			c.server.OnListChanged()
		case <-c.hearing.Done():
			return
		}
		if sleep(c.hearing, quiet) != nil {
			return
		}
	}
}
