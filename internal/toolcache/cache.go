package toolcache

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// patience is how long a run waits for the store. A tool that is called for
// nothing costs less than a store that does not answer.
const patience = 250 * time.Millisecond

// Options configure a Cache. The zero value is useful.
type Options struct {
	// Pepper is the key of the seals: entries that were sealed with another are
	// none. Empty = one is drawn, and what is kept ends with the process.
	Pepper string

	Log *slog.Logger     // nil = discard
	Now func() time.Time // the wall clock; nil = clock.Wall
}

// Cache is a run.Cache. It is safe for concurrent use.
type Cache struct {
	store   Store
	pepper  []byte
	log     *slog.Logger
	now     func() time.Time
	waiting waiting
}

// New returns a Cache over the store.
func New(store Store, o Options) *Cache {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = clock.Wall
	}
	if o.Pepper == "" {
		o.Pepper = rand.Text()
	}
	return &Cache{store: store, pepper: []byte(o.Pepper), log: o.Log, now: o.Now}
}

// Get implements run.Cache.
func (c *Cache) Get(ctx context.Context, k run.CacheKey) (string, bool) {
	now := c.now().UnixMilli()
	if e := c.waiting.find(k); e != nil {
		if !e.fresh(now) {
			return "", false
		}
		return e.Value, true
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := c.store.CachedResult(soon, k.Org, nameOf(k))
	switch {
	case err != nil:
		if ctx.Err() == nil {
			c.logger(k).Warn("tool_cache_unreadable", "error", err)
		}
	case e == nil:
	case !c.genuine(k, *e):
		c.logger(k).Info("tool_cache_entry_dropped", "reason", "its seal is not ours: it was changed, or sealed with another pepper")
		c.store.DropResult(k.Org, *e)
	case !e.fresh(now):
		c.store.DropResult(k.Org, *e)
	default:
		return e.Value, true
	}
	return "", false
}

// Put implements run.Cache. It does not wait for the store. A result that is
// longer than MaxValue is not kept, nor is one for which a store that is busy
// has no time.
func (c *Cache) Put(_ context.Context, k run.CacheKey, text string, ttl time.Duration) {
	if ttl <= 0 || len(text) > MaxValue {
		return
	}
	now := c.now()
	e := &Entry{Name: nameOf(k), Value: text, KeptAt: now.UnixMilli(), ExpiresAt: now.Add(ttl).UnixMilli()}
	e.MAC = c.seal(k, *e)
	if !c.waiting.add(k, e) {
		return
	}
	c.store.KeepResult(k.Org, *e, Bounds{Entries: MaxEntries, Bytes: MaxBytes}, func(err error) {
		c.waiting.remove(k, e)
		if err != nil {
			c.logger(k).Warn("tool_cache_not_kept", "error", err)
		}
	})
}

func (c *Cache) logger(k run.CacheKey) *slog.Logger {
	return c.log.With("org", k.Org, "server", k.Server, "tool", k.Tool)
}
