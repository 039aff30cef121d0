package run

import (
	"context"
	"time"
)

// Cache keeps what tools have answered. Implemented by *toolcache.Cache.
type Cache interface {
	// Get returns the whole text of an earlier result, or false. An entry that
	// is not what was put there is none.
	Get(ctx context.Context, k CacheKey) (text string, ok bool)

	// Put keeps a result for ttl. Failures are logged, not returned: a cache
	// may forget.
	Put(ctx context.Context, k CacheKey, text string, ttl time.Duration)
}

// CacheKey names a result: the same call of the same tool by the same org.
type CacheKey struct {
	Org       string
	Server    string // what it is connected to: another address or credential is another server
	Tool      string // the server's own name for it
	Digest    string // of the tool's definition: a tool that changed is another one
	Arguments string // canonical, with integers digit by digit
}
