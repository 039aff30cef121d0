package toolcache

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// readTimeout is how long Get waits for the store. A slow store must not delay a run for
// longer: the run calls the tool instead.
const readTimeout = 250 * time.Millisecond

// Options configure a Cache. The zero value is valid.
type Options struct {
	// Pepper is the key of the MACs. Entries written under another pepper are
	// ignored. "" means a random one: stored entries are then lost at a restart.
	Pepper string

	Log *slog.Logger     // nil = discard
	Now func() time.Time // the wall clock; nil = clock.Wall
}

// Cache implements run.Cache. It is safe for concurrent use.
type Cache struct {
	store   Store
	pepper  []byte
	log     *slog.Logger
	now     func() time.Time
	pending pending
}

// New returns a Cache over store.
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

// Get implements run.Cache. It returns false after 250 ms without an answer of the
// store, and for an entry that is expired or whose MAC does not match; such an entry is
// deleted.
func (c *Cache) Get(ctx context.Context, k run.CacheKey) (string, bool) {
	now := c.now().UnixMilli()
	if e := c.pending.find(k); e != nil {
		if !e.fresh(now) {
			return "", false
		}
		return e.Value, true
	}
	soon, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	e, err := c.store.CachedResult(soon, k.Org, nameOf(k))
	switch {
	case err != nil:
		if ctx.Err() == nil {
			c.logger(k).Warn("tool_cache_read_failed", "error", err)
		}
	case e == nil:
	case !c.sealValid(k, *e):
		c.logger(k).Info("tool_cache_entry_dropped", "reason", "the MAC does not match: the entry was modified, or written under another pepper")
		c.store.DropResult(k.Org, *e)
	case !e.fresh(now):
		c.store.DropResult(k.Org, *e)
	default:
		return e.Value, true
	}
	return "", false
}

// Put implements run.Cache. It does not wait for the store. A result longer than
// MaxValue is not cached. Nor is any result while too many writes are pending (64
// entries or 16 MiB).
func (c *Cache) Put(_ context.Context, k run.CacheKey, text string, ttl time.Duration) {
	if ttl <= 0 || len(text) > MaxValue {
		return
	}
	now := c.now()
	e := &Entry{Name: nameOf(k), Value: text, KeptAt: now.UnixMilli(), ExpiresAt: now.Add(ttl).UnixMilli()}
	e.MAC = c.seal(k, *e)
	if !c.pending.add(k, e) {
		return
	}
	c.store.KeepResult(k.Org, *e, Bounds{Entries: MaxEntries, Bytes: MaxBytes}, func(err error) {
		c.pending.remove(k, e)
		if err != nil {
			c.logger(k).Warn("tool_cache_write_failed", "error", err)
		}
	})
}

func (c *Cache) logger(k run.CacheKey) *slog.Logger {
	return c.log.With("org", k.Org, "server", k.Server, "tool", k.Tool)
}
