package load

import "bytes"

// comparer takes an answer's body piece by piece and compares it with the
// wanted one.
type comparer struct {
	want []byte
	at   int // bytes that came and were right

	mark    int    // when at has come so far …
	reached func() // … this is called once; nil = nobody wants to know
}

// take compares the next piece.
func (c *comparer) take(p []byte) error {
	rest := c.want[c.at:]
	if len(p) <= len(rest) && bytes.Equal(p, rest[:len(p)]) {
		c.at += len(p)
		c.tell()
		return nil
	}
	n := 0
	for n < len(p) && n < len(rest) && p[n] == rest[n] {
		n++
	}
	c.at += n
	if n == len(rest) {
		return fault(Altered, "%d bytes more than the wanted %d: %s", len(p)-n, len(c.want), excerpt(p[n:]))
	}
	return fault(Altered, "at byte %d of %d: %s, want %s", c.at, len(c.want), excerpt(p[n:]), excerpt(rest[n:]))
}

func (c *comparer) tell() {
	if c.reached != nil && c.at >= c.mark {
		c.reached()
		c.reached = nil
	}
}

// end says that the body is over; how is for the report.
func (c *comparer) end(how string) error {
	if c.at == len(c.want) {
		return nil
	}
	return fault(Cut, "%s after %d of %d bytes", how, c.at, len(c.want))
}

func excerpt(p []byte) string {
	const limit = 40
	if len(p) > limit {
		return quote(p[:limit]) + "…"
	}
	return quote(p)
}
