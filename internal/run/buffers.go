package run

import "sync"

// relayBuffers lends what a relay reads into. A stream that is open for minutes
// holds one, so they are small; a burst fills one after the other.
var relayBuffers = sync.Pool{New: func() any {
	b := make([]byte, 16<<10)
	return &b
}}
