package run_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// gifOf returns a GIF of one pixel as n bytes of base64, n a multiple of 4.
func gifOf(n int) string {
	const pixel = "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
	return base64.StdEncoding.EncodeToString(append([]byte(pixel), make([]byte, n/4*3-len(pixel))...))
}

// shown is a result with content of every kind.
func shown() tool.Result {
	return tool.Result{
		Parts: []item.Part{
			{Kind: item.Text, Text: "a <b>"},
			{Kind: item.Image, MIMEType: "image/gif", Data: gifOf(64)},
			{Kind: item.Audio, MIMEType: "audio/wav", Data: "AAAA"},
			{Kind: item.Resource, URL: "file:///a", MIMEType: "text/plain", Text: "body"},
			{Kind: item.Resource, URL: "file:///b", MIMEType: "application/zip", Data: "UEsDBA=="},
			{Kind: item.Resource, URL: "http://x/c", Name: "c", Title: "C", Description: "a link", MIMEType: "text/html"},
		},
		Structured: json.RawMessage(`{"n":12345678901234567890}`),
	}
}

// toolItems returns the results in a transcript.
func toolItems(transcript []item.Item) []item.Item {
	var out []item.Item
	for _, it := range transcript {
		if it.Kind == item.ToolResult {
			out = append(out, it)
		}
	}
	return out
}

func checkShown(t *testing.T, transcript []item.Item) {
	t.Helper()
	got := toolItems(transcript)
	if len(got) != 1 {
		t.Fatalf("%d results", len(got))
	}
	if diff := cmp.Diff(shown(), tool.Result{Parts: got[0].Parts, Structured: got[0].Structured, IsError: got[0].IsError}); diff != "" {
		t.Error(diff)
	}
}

// The owner of a run is gone after the call; the next one sends the same
// content. // P01
func TestAnotherGatewaySendsTheContentOfResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked [][]item.Item
		w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"once_show": func(context.Context, tool.Call) (tool.Result, error) { return shown(), nil },
		}}
		w.think = func(ctx context.Context, transcript []item.Item) (*model.Turn, error) {
			if toolItems(transcript) == nil {
				return asks("once_show"), nil
			}
			mu.Lock()
			asked = append(asked, transcript)
			first := len(asked) == 1
			mu.Unlock()
			if first {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return says("seen"), nil
		}
		first, second := w.gateway(t), w.gateway(t)
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_ = first.Run(leaving, w.wants("p", "k", "h"), &diary{}) // it was never started: it renews nothing
		time.Sleep(journal.LeaseTTL)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		stream := w.wants("p", "k", "h")
		stream.Attach = true
		var d diary
		if err := second.Run(t.Context(), stream, &d); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if text, end := d.said(); text != "seen" || end.Reason != event.Complete || len(asked) != 2 || len(w.made()) != 1 {
			t.Fatalf("%q %+v, asked %d times, %d calls", text, end, len(asked), len(w.made()))
		}
		for _, transcript := range asked {
			checkShown(t, transcript)
		}
	})
}

// What a repeated request is told of a result is what the first was told. // P24
func TestARepeatedRequestIsToldTheSameOfAnImage(t *testing.T) {
	w := &town{think: script("once_show"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"once_show": func(context.Context, tool.Call) (tool.Result, error) { return shown(), nil },
	}}
	r := w.gateway(t)
	var told [2]string
	for i := range told {
		var d diary
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), &d); err != nil {
			t.Fatal(err)
		}
		for _, e := range d.events {
			if done, ok := e.(event.ToolDone); ok {
				told[i] = done.Text
			}
		}
	}
	const want = "a <b>\n[image; type: image/gif; 48 bytes, not shown]\n[audio; type: audio/wav; 3 bytes, not shown]\n[resource file:///a]\nbody\n" +
		"[resource file:///b; type: application/zip; 4 bytes, not shown]\n[resource http://x/c; name: c; title: C; type: text/html; description: a link]"
	if told[0] != want || told[1] != want {
		t.Errorf("told %q, then %q", told[0], told[1])
	}
}

// A caller of its own tool returns: the model gets what it had seen before.
func TestContentThatWasHandedOverComesBack(t *testing.T) { // A08
	w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"once_show": func(context.Context, tool.Call) (tool.Result, error) { return shown(), nil },
	}}
	var last []item.Item
	w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
		last = transcript
		switch len(toolItems(transcript)) {
		case 0:
			return asks("once_show"), nil
		case 1:
			return asks("mine"), nil
		}
		return says("seen"), nil
	}
	r := w.gateway(t)
	mine := []model.Tool{{Definition: tool.Definition{Name: "mine"}}}
	req := w.wants("p", "k", "h")
	req.ClientTools = mine
	var d diary
	if err := r.Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	_, end := d.said()
	if len(end.Calls) != 1 {
		t.Fatalf("%+v", end)
	}
	back := w.wants("p", "k2", "h2")
	back.ClientTools = mine
	call := item.NewCall(end.Calls[0].ID, "mine", "{}")
	call.Turn = 1
	back.Items = append(back.Items, call, item.NewResult(end.Calls[0].ID, "mine!", false))
	d = diary{}
	if err := r.Run(t.Context(), back, &d); err != nil {
		t.Fatal(err)
	}
	if text, _ := d.said(); text != "seen" || len(w.made()) != 1 {
		t.Fatalf("%q, %d calls", text, len(w.made()))
	}
	for i, it := range last {
		if it.Kind == item.ToolResult {
			checkShown(t, last[i:i+1])
			break
		}
	}
}

// shelf is a run.Cache that any call finds its value in.
type shelf struct {
	mu    sync.Mutex
	value string
	full  bool
}

func (s *shelf) Get(context.Context, run.CacheKey) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.full
}

func (s *shelf) Put(_ context.Context, _ run.CacheKey, value string, _ time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.full = value, true
}

// The cache is stored, and a run that is to be forgotten stores no results. // G17
func TestARunThatIsForgottenLeavesNothingInTheResultCache(t *testing.T) {
	w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"read_show": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("secret"), nil },
	}}
	w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
		if toolItems(transcript) == nil {
			return asks("read_show"), nil
		}
		return says("seen"), nil
	}
	cache := &shelf{}
	r := w.gatewayWith(t, func(o *run.Options) { o.Cache = cache })
	req := w.wants("p", "k", "h")
	req.Policy.CacheTTLNS, req.Policy.NoStore = int64(time.Minute), true
	if err := r.Run(t.Context(), req, &diary{}); err != nil {
		t.Fatal(err)
	}
	if len(w.made()) != 1 || cache.full {
		t.Errorf("%d calls, cached %q", len(w.made()), cache.value)
	}
}

func TestTheResultCacheKeepsContent(t *testing.T) { // F01
	var seen []item.Item
	var answer tool.Result
	w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"read_show": func(context.Context, tool.Call) (tool.Result, error) { return answer, nil },
	}}
	w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
		if toolItems(transcript) == nil {
			return asks("read_show"), nil
		}
		seen = toolItems(transcript)
		return says("seen"), nil
	}
	cache := &shelf{}
	r := w.gatewayWith(t, func(o *run.Options) { o.Cache = cache })
	runs := 0
	ask := func() item.Item {
		runs++
		req := w.wants("p", fmt.Sprint(runs), "h")
		req.Policy.CacheTTLNS, req.Policy.ResultMaxBytes = int64(time.Minute), 1024
		if err := r.Run(t.Context(), req, &diary{}); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 1 {
			t.Fatalf("%d results", len(seen))
		}
		return seen[0]
	}
	long := strings.Repeat("x", 2000)
	for name, result := range map[string]tool.Result{
		"text": tool.Text("hi"), "nothing": {}, "content of every kind": shown(),
		"a text that is cut": tool.Text(long), "a text that is cut, beside an image": {Parts: append([]item.Part{{Kind: item.Text, Text: long}}, shown().Parts[1])},
	} {
		answer = result
		cache.full = false
		before := len(w.made())
		first, second := ask(), ask()
		if made := len(w.made()) - before; made != 1 {
			t.Errorf("%s: %d calls", name, made)
		}
		if text := item.PlainText(first.Parts); strings.Contains(name, "cut") != strings.Contains(text, "truncated") {
			t.Errorf("%s: the model read %q", name, text)
		}
		norm := func(parts []item.Part) string { // each run has an id of its own for the rest
			return strings.NewReplacer(fmt.Sprintf("id %q", idIn(first)), "id", fmt.Sprintf("id %q", idIn(second)), "id").Replace(item.PlainText(parts))
		}
		if diff := cmp.Diff(norm(first.Parts), norm(second.Parts)); diff != "" {
			t.Errorf("%s, the second time:\n%s", name, diff)
		}
		if len(first.Parts) > 1 {
			if diff := cmp.Diff(first.Parts[1:], second.Parts[1:]); diff != "" || !bytes.Equal(first.Structured, second.Structured) {
				t.Errorf("%s, the second time:\n%s", name, diff)
			}
		}
	}
	for value, want := range map[string]string{"kept by release 0.1": "kept by release 0.1", `[{"role":"tool"}]`: `[{"role":"tool"}]`} {
		cache.value = value
		if got := ask(); item.PlainText(got.Parts) != want {
			t.Errorf("%q is read as %+v", value, got.Parts)
		}
	}
	answer = tool.Text("asked again")
	cache.value = "\x00{\"v\":99}"
	if got := ask(); got.Text() != "asked again" {
		t.Errorf("an unreadable entry is read as %+v", got.Parts)
	}
}

// idIn returns the id under which the rest of a result can be read.
func idIn(it item.Item) string {
	_, id, _ := strings.Cut(it.Text(), "read_result, id \"")
	id, _, _ = strings.Cut(id, `"`)
	return id
}

// A run keeps so much binary content and no more, however many images its
// servers send. // P40
func TestImagesThatTheRunHasNoMemoryForAreLeftOut(t *testing.T) {
	const size = 1 << 20
	var seen []item.Item
	w := &town{tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"read_show": func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Parts: []item.Part{{Kind: item.Image, Data: gifOf(size)}, {Kind: item.Text, Text: "end"}}}, nil
		},
	}}
	w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
		if seen = toolItems(transcript); len(seen) == 4 {
			return says("seen"), nil
		}
		return asks("read_show"), nil
	}
	l := memlimit.New(memlimit.Options{Run: 3*size + size/2})
	r := w.gatewayWith(t, func(o *run.Options) { o.Memory = l })
	req := w.wants("p", "k", "h")
	req.Policy.Guard.Mode = "off"
	var d diary
	if err := r.Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	if text, end := d.said(); text != "seen" || end.Reason != event.Complete {
		t.Fatalf("%q %+v", text, end)
	}
	kept := 0
	for _, it := range seen {
		switch text := item.PlainText(it.Parts); {
		case len(it.Parts) == 2 && len(it.Parts[0].Data) == size:
			kept++
		case text != "[image; type: image/gif; left out: the run has no memory left for it]\nend":
			t.Errorf("the model read %q", text)
		}
	}
	if kept < 2 || kept > 3 {
		t.Errorf("%d of %d images are kept", kept, len(seen))
	}
	story, err := w.journal.Load(t.Context(), "o", d.events[0].(event.Started).RunID)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range story.Facts {
		if b, ok := f.Body.(loop.CallDone); ok && (b.Bytes == 0 || b.Bytes > 20<<10) {
			t.Errorf("an image counts as %d bytes of the prompt", b.Bytes)
		}
	}
}
