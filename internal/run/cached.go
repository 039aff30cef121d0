package run

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
)

// fromCache gives the calls their results of which an earlier one is still good,
// and returns the others.
func (d *drive) fromCache(keys []loop.CallKey) ([]loop.CallKey, error) {
	if d.o.Cache == nil || d.req.CacheTTL <= 0 {
		return keys, nil
	}
	var rest []loop.CallKey
	var rows []Row
	var bodies []loop.Body
	var told []event.ToolDone
	var which []loop.Call
	for _, key := range keys {
		c, _ := d.state.Call(key)
		name, cacheable := d.cacheKey(c)
		text, found := "", false
		if cacheable {
			text, found = d.o.Cache.Get(d.ctx, name)
		}
		if !found {
			rest = append(rest, key)
			continue
		}
		result := toolexec.Again(text, toolexec.Cap{Bytes: d.req.ResultMaxBytes, Hint: d.rereadHint(key)})
		body, more := d.ended(c, 0, result, 0)
		bodies, rows = append(bodies, body), append(rows, more...)
		told, which = append(told, d.toolDone(c, loop.Cached, result.Text, 0)), append(which, c)
	}
	if len(bodies) == 0 {
		return rest, nil
	}
	if err := d.append(rows, bodies...); err != nil {
		return nil, err
	}
	for i, e := range told {
		d.toolAnswered(which[i], loop.Cached, e.Text)
		d.emit(e)
	}
	return rest, nil
}

// remember keeps a result that may be used again.
func (d *drive) remember(c loop.Call, r toolexec.Done) {
	if d.o.Cache == nil || d.req.CacheTTL <= 0 || r.Outcome != loop.OK {
		return
	}
	if name, cacheable := d.cacheKey(c); cacheable {
		d.o.Cache.Put(d.ctx, name, r.Whole(), d.req.CacheTTL)
	}
}

func (d *drive) cacheKey(c loop.Call) (CacheKey, bool) {
	p := d.args[c.Key]
	if p.entry == nil || !p.entry.Cacheable {
		return CacheKey{}, false
	}
	arguments, ok := toolexec.Canonical(p.arguments)
	return CacheKey{
		Org: d.req.Org, Server: p.entry.Origin, Tool: p.entry.Definition.Name, Digest: p.entry.Digest, Arguments: arguments,
	}, ok
}
