package load

import "bytes"

// comparer takes an answer's body piece by piece and compares it with the
// wanted one.
type comparer struct {
	want []byte
	at   int // bytes that came and were right
}

// take compares the next piece.
func (c *comparer) take(p []byte) error {
	rest := c.want[c.at:]
	if len(p) <= len(rest) && bytes.Equal(p, rest[:len(p)]) {
		c.at += len(p)
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
