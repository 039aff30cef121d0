package run

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// resultCache is the cache of results as one run uses it.
type resultCache struct {
	Cache // nil = results are not cached
	run   *runState
}

// used reports whether the run uses cached results.
func (c *resultCache) used() bool { return c.Cache != nil && c.run.policy().CacheTTLNS > 0 }

// remember puts a successful result into the result cache, if its tool may be cached. That of a
// run that is to be forgotten is not: the cache is stored.
func (c *resultCache) remember(p prepared, r toolexec.Done) {
	if !c.used() || c.run.policy().NoStore || r.Outcome != loop.OK {
		return
	}
	if name, cacheable := c.key(p); cacheable {
		if value, err := cacheValue(r); err == nil {
			c.Put(c.run.ctx, name, value, time.Duration(c.run.policy().CacheTTLNS))
		}
	}
}

// encodedValue begins a cached result that is more than one text. No text begins with it,
// because results have no control characters.
const encodedValue = "\x00"

// cacheValue returns a result as it is cached: one text unchanged, anything else as an
// item.List after encodedValue.
func cacheValue(r toolexec.Done) (string, error) {
	whole := r.Whole()
	if r.Structured == nil && r.Label == "" && len(whole) == 1 && whole[0].Kind == item.Text {
		return whole[0].Text, nil
	}
	raw, err := json.Marshal(item.List{{Kind: item.ToolResult, Parts: whole, Structured: r.Structured, Label: r.Label}})
	return encodedValue + string(raw), err
}

// find returns the cached result of a call, or false.
func (c *resultCache) find(p prepared) (tool.Result, bool) {
	name, cacheable := c.key(p)
	if !cacheable {
		return tool.Result{}, false
	}
	value, found := c.Get(c.run.ctx, name)
	if !found {
		return tool.Result{}, false
	}
	return fromValue(value)
}

// fromValue returns the result of a cacheValue, or false.
func fromValue(value string) (tool.Result, bool) {
	raw, encoded := strings.CutPrefix(value, encodedValue)
	if !encoded {
		return tool.Text(value), true
	}
	var items item.List
	if err := json.Unmarshal([]byte(raw), &items); err != nil || len(items) != 1 {
		return tool.Result{}, false // written by a later release
	}
	return tool.Result{Parts: items[0].Parts, Structured: items[0].Structured, Label: items[0].Label}, true
}

// key returns the key of a call, or false if its result must not be cached.
func (c *resultCache) key(p prepared) (CacheKey, bool) {
	if p.entry == nil || !p.entry.Cacheable || p.options != nil { // options are not in the key
		return CacheKey{}, false
	}
	arguments, ok := toolexec.Canonical(p.arguments)
	return CacheKey{
		Org: c.run.req.Org, Server: p.entry.Origin, Tool: p.entry.Definition.Name, Digest: p.entry.Digest, Arguments: arguments,
	}, ok
}
