package openairesponses

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// strict starts an upstream that refuses what the API refuses, and returns it with
// a Provider that talks to it.
func strict(t *testing.T, story string, o upstreamtest.Options) (*upstreamtest.Upstream, *Provider) {
	t.Helper()
	o.Strict = true
	u := upstreamtest.New(turnpiketest.NewScript(t, story), o)
	t.Cleanup(u.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return u, New(wire.Endpoint{BaseURL: u.URL, Transport: transport})
}

// stored returns items as a journal gives them back.
func stored(t *testing.T, items []item.Item) []item.Item {
	t.Helper()
	for i := range items {
		if items[i].Native.Dialect == model.DialectResponses {
			items[i].Native.Provider = "p"
		}
	}
	return providertest.Stored(t, items)
}

// Ten rounds with reasoning, parallel calls and results with images: the API takes
// back every item as it sent it.
func TestTenRounds(t *testing.T) { // M05 M08 P08
	var story strings.Builder
	for round := range 10 {
		fmt.Fprintf(&story, "reasoning Step \"%d\" <&>é.\n", round)
		if round%3 == 0 {
			story.WriteString("text I look it up.\n")
		}
		fmt.Fprintf(&story, "call c%d search {\"q\":%d}\ncall d%d draw {}\n\n", round, round, round)
	}
	story.WriteString("reasoning Enough.\ntext Done.\nusage 12 5\n")
	for _, piece := range []int{0, 7} {
		u, p := strict(t, story.String(), upstreamtest.Options{Piece: piece})
		req := &model.Request{
			Model: "gpt-5", Options: model.Options{Effort: "high"}, MaxTokens: 1000,
			Items: []item.Item{item.NewText(item.System, "Be brief."), item.NewText(item.User, "Draw.")},
			Tools: []model.Tool{{Definition: tool.Definition{Name: "search", InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"integer"}}}`)}}, {Definition: tool.Definition{Name: "draw"}}},
		}
		h := heard{}
		for round := range 11 {
			turn, err := p.Stream(t.Context(), req, h.emit)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			req.Items = stored(t, append(req.Items, turn.Items...))
			if turn.Stop != model.StopCalls {
				if round != 10 || turn.Text() != "Done." || turn.Usage != (model.Usage{Input: 12, Output: 5, Total: 17}) {
					t.Fatalf("round %d: %+v", round, turn)
				}
				break
			}
			if len(turn.Calls) != 2 || !turn.Calls[1].Complete {
				t.Fatalf("round %d: %+v", round, turn.Calls)
			}
			req.Items = append(req.Items, item.NewResult(turn.Calls[0].ID, "found", false), item.Item{
				Kind: item.ToolResult, CallID: turn.Calls[1].ID,
				Parts: []item.Part{{Kind: item.Text, Text: "drawn"}, {Kind: item.Image, Data: "iVBORw0KGgo=", MIMEType: "image/png"}},
			})
		}
		if sent := u.Requests(); len(sent) != 11 || !strings.Contains(string(sent[10].Body), `"image_url":"data:image/png;base64,iVBORw0KGgo="`) {
			t.Errorf("%d requests", len(sent))
		}
		if h[model.TextDelta] != "I look it up.I look it up.I look it up.I look it up.Done." || !strings.HasPrefix(h[model.ReasoningDelta], `Step "0" <&>é.Step "1"`) {
			t.Errorf("%v", h)
		}
	}
}

// The API accepts what the adapter makes of transcripts that it did not write.
func TestTranscriptsThatTheAPITakes(t *testing.T) { // M02 M05
	user := item.NewText(item.User, "Hi. Answer in JSON.")
	file := func(p item.Part) item.Item {
		return item.Item{Kind: item.Message, Role: item.User, Parts: []item.Part{p}}
	}
	for name, items := range map[string][]item.Item{
		"calls without ids, and with ids that repeat or are too long": {
			user, of(1, item.NewCall("", "f", "{}")), of(1, item.NewCall("", "f", "")), item.NewResult("", "1", false), item.NewResult("", "2", true),
			of(2, item.NewCall("c", "f", "{bad")), item.NewResult("c", "3", false), of(3, item.NewCall("c", "f", "{}")), of(3, item.NewCall(strings.Repeat("x", 99), "f", "{}")), item.NewResult("c", "4", false), item.NewResult(strings.Repeat("x", 99), "5", false),
		},
		"an answer of another dialect":            {user, of(1, item.Item{Kind: item.Reasoning, Parts: []item.Part{{Kind: item.Text, Text: "r"}}}), of(1, item.NewText(item.Assistant, "a")), user},
		"a name of a role that is not known":      {file(item.Part{Kind: item.Text, Text: "JSON"}), {Kind: item.Message, Role: "function", Parts: []item.Part{{Kind: item.Text, Text: "x"}}}},
		"files in every form":                     {user, file(item.Part{Kind: item.File, Data: "AAAA"}), file(item.Part{Kind: item.File, Data: "data:application/pdf;base64,AAAA"}), file(item.Part{Kind: item.File, FileID: "file_1"}), file(item.Part{Kind: item.File, URL: "https://x/a.pdf"})},
		"images in every form":                    {user, file(item.Part{Kind: item.Image, Data: "AAAA", MIMEType: "image/webp"}), file(item.Part{Kind: item.Image, URL: "https://x/a", Detail: "low"}), file(item.Part{Kind: item.Image, FileID: "file_1"})},
		"what is no image to the API, and sounds": {user, file(item.Part{Kind: item.Image, Data: "AAAA", MIMEType: "image/svg+xml"}), file(item.Part{Kind: item.Audio, Data: "AAAA", MIMEType: "audio/wav"}), file(item.Part{Kind: item.Resource, URL: "file:///a"})},
		"nothing that was said":                   {user, item.NewText(item.User, ""), of(1, item.NewText(item.Assistant, "")), {Kind: item.Message, Role: item.User}},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := strict(t, "text {}", upstreamtest.Options{})
			req := &model.Request{
				Model: "gpt-4o", Items: items, MaxTokens: 1, ToolChoice: model.ToolChoice{Mode: "auto", Only: []string{"f"}}, Dialect: model.DialectChat,
				Tools:   []model.Tool{{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`)}, Strict: ptr(true)}, {Definition: tool.Definition{Name: "g", InputSchema: json.RawMessage(`{"anyOf":[{}]}`)}}},
				Options: model.Options{Temperature: ptr(0.5), TopP: ptr(1.0), Format: model.Format{Type: "json_object"}, Verbosity: "low", Metadata: map[string]string{"a": "b"}, User: "u", ParallelCalls: ptr(false)},
				Params:  []model.Param{{Name: "service_tier", Value: json.RawMessage(`"flex"`)}, {Name: "safety_identifier", Value: json.RawMessage(`"s"`)}, {Name: "prompt_cache_key", Value: json.RawMessage(`"k"`)}, {Name: "stream_options", Value: json.RawMessage(`{"include_obfuscation":false}`)}},
			}
			if _, err := p.Stream(t.Context(), req, heard{}.emit); err != nil {
				t.Error(err)
			}
		})
	}
}

// A turn that ended while the model was reasoning leaves reasoning after which
// nothing was said. The API refuses it, so it is left out.
func TestReasoningAfterWhichNothingWasSaid(t *testing.T) { // P08
	u, p := strict(t, "reasoning Hm.\nstop length\n\nreasoning So.\ntext Yes.\n\ntext Bye.", upstreamtest.Options{})
	req := &model.Request{Model: "gpt-5", Items: []item.Item{item.NewText(item.User, "Hi")}}
	for _, next := range []string{"Go on.", "And?", ""} {
		turn, err := p.Stream(t.Context(), req, heard{}.emit)
		if err != nil {
			t.Fatal(err)
		}
		req.Items = append(stored(t, append(req.Items, turn.Items...)), item.NewText(item.User, next))
	}
	sent := u.Requests()
	if n := strings.Count(string(sent[1].Body), `"reasoning"`); n != 0 {
		t.Errorf("%d items of reasoning in %s", n, sent[1].Body)
	}
	if n := strings.Count(string(sent[2].Body), `"type":"reasoning"`); n != 1 {
		t.Errorf("%d items of reasoning in %s", n, sent[2].Body)
	}
}

// Changed encrypted content is refused: the tests above would fail on it.
func TestTheAPIRefusesOtherBytes(t *testing.T) { // P08
	_, p := strict(t, "reasoning Hm.\ntext Yes.\n\ntext Bye.", upstreamtest.Options{})
	req := &model.Request{Model: "gpt-5", Items: []item.Item{item.NewText(item.User, "Hi")}}
	turn, err := p.Stream(t.Context(), req, heard{}.emit)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(turn.Items, func(it item.Item) bool { return it.Kind == item.Reasoning })
	raw := string(turn.Items[at].Native.JSON)
	turn.Items[at].Native.JSON = json.RawMessage(strings.Replace(raw, `"encrypted_content":"`, `"encrypted_content":"x`, 1))
	req.Items = append(append(req.Items, turn.Items...), item.NewText(item.User, "And?"))
	var e *model.Error
	if _, err := p.Stream(t.Context(), req, heard{}.emit); !errors.As(err, &e) || e.Class != model.Invalid || !strings.Contains(e.Message, "could not be verified") {
		t.Errorf("%v", err)
	}
}

// Each end of a story comes out as its normalised stop, and failures as their class.
func TestStoriesOfTheStrictUpstream(t *testing.T) { // M06 G07
	for _, tt := range []struct {
		story string
		stop  model.Stop
		class model.ErrorClass
	}{
		{"text a", model.StopEnd, ""},
		{"refusal No.", model.StopEnd, ""},
		{"text a\nstop length", model.StopLength, ""},
		{"text a\nstop content_filter", model.StopFilter, ""},
		{"call c f {}\nstop length", model.StopLength, ""},
		{"fail 429 retry-after 2 Slow down", "", model.Transient},
		{"fail 401 No", "", model.Target},
		{"text a\nfail 500 Oops", "", model.Transient},
		{"text a\ncut", "", model.Transient},
	} {
		t.Run(tt.story, func(t *testing.T) {
			_, p := strict(t, tt.story, upstreamtest.Options{})
			turn, err := p.Stream(t.Context(), &model.Request{Model: "gpt-5", Items: []item.Item{item.NewText(item.User, "Hi")}, Tools: []model.Tool{{Definition: tool.Definition{Name: "f"}}}}, heard{}.emit)
			var e *model.Error
			if errors.As(err, &e); (err == nil) != (tt.class == "") || e != nil && e.Class != tt.class {
				t.Fatalf("%v", err)
			}
			if turn != nil && turn.Stop != tt.stop || err == nil && turn == nil {
				t.Errorf("%+v", turn)
			}
			if turn != nil && len(providertest.OfKind(turn.Items, item.ToolCall)) > 0 {
				t.Error("a call that was cut off is an item")
			}
		})
	}
}
