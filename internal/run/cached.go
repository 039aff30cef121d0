package run

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// fromCache appends the results of the calls that are in the result cache, and returns the
// other calls.
func (t *toolCaller) fromCache(keys []loop.CallKey) ([]loop.CallKey, error) {
	if t.cache == nil || t.run.policy().CacheTTLNS <= 0 {
		return keys, nil
	}
	var rest []loop.CallKey
	var rows []journal.Row
	var bodies []loop.Body
	var texts []string
	var found []loop.Call
	for _, key := range keys {
		c, _ := t.run.state().Call(key)
		name, cacheable := t.cacheKey(c)
		var earlier tool.Result
		ok := false
		if cacheable {
			earlier, ok = t.earlierResult(name)
		}
		if !ok {
			rest = append(rest, key)
			continue
		}
		result := t.affordable(toolexec.Again(earlier, toolexec.Cap{Bytes: t.run.policy().ResultMaxBytes, Hint: t.tools.rereadHint(key), HeadOnly: t.run.policy().HeadOnly}))
		body, more := t.ended(c, 0, result, 0)
		bodies, rows = append(bodies, body), append(rows, more...)
		found, texts = append(found, c), append(texts, result.Text())
	}
	if len(bodies) == 0 {
		return rest, nil
	}
	if err := t.run.append(rows, bodies...); err != nil {
		return nil, err
	}
	for i, c := range found {
		t.answered(c, loop.Cached, texts[i])
	}
	return rest, nil
}

// remember puts a successful result into the result cache, if its tool may be cached. That of a
// run that is to be forgotten is not: the cache is stored.
func (t *toolCaller) remember(c loop.Call, r toolexec.Done) {
	if t.cache == nil || t.run.policy().CacheTTLNS <= 0 || t.run.policy().Forget || r.Outcome != loop.OK {
		return
	}
	if name, cacheable := t.cacheKey(c); cacheable {
		if value, err := cacheValue(r); err == nil {
			t.cache.Put(t.run.ctx, name, value, time.Duration(t.run.policy().CacheTTLNS))
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
	if r.Structured == nil && len(whole) == 1 && whole[0].Kind == item.Text {
		return whole[0].Text, nil
	}
	raw, err := json.Marshal(item.List{{Kind: item.ToolResult, Parts: whole, Structured: r.Structured}})
	return encodedValue + string(raw), err
}

// earlierResult returns the cached result of a call, or false.
func (t *toolCaller) earlierResult(name CacheKey) (tool.Result, bool) {
	value, found := t.cache.Get(t.run.ctx, name)
	if !found {
		return tool.Result{}, false
	}
	raw, encoded := strings.CutPrefix(value, encodedValue)
	if !encoded {
		return tool.Text(value), true
	}
	var items item.List
	if err := json.Unmarshal([]byte(raw), &items); err != nil || len(items) != 1 {
		return tool.Result{}, false // written by a later release
	}
	return tool.Result{Parts: items[0].Parts, Structured: items[0].Structured}, true
}

// cacheKey returns the key of a call, or false if its result must not be cached.
func (t *toolCaller) cacheKey(c loop.Call) (CacheKey, bool) {
	p := t.prepared(c.Key)
	if p.entry == nil || !p.entry.Cacheable {
		return CacheKey{}, false
	}
	arguments, ok := toolexec.Canonical(p.arguments)
	return CacheKey{
		Org: t.run.req.Org, Server: p.entry.Origin, Tool: p.entry.Definition.Name, Digest: p.entry.Digest, Arguments: arguments,
	}, ok
}
