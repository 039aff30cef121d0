package responses

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// A compaction makes a long conversation short: the model writes a summary of it, and the client
// gets the summary sealed in an item, which it sends in place of the conversation from then on.
// There are two forms of request: POST /v1/responses/compact, and an item compaction_trigger at
// the end of the input of a normal request. A run with one model call answers both.

// compactionPrefix begins the encrypted_content of an item that this gateway has sealed.
const compactionPrefix = "tpc1."

// The limits of a compaction, in bytes.
const (
	// maxSealed is how long the encrypted_content is at most.
	maxSealed = 256 << 10
	// maxKept is how much the texts of the client that are sealed word for word have together. It is
	// about the 20,000 tokens that Codex keeps.
	maxKept = 64 << 10
)

// summarize asks for the summary. It follows the conversation.
const summarize = "The conversation has become too long for your context window, and will go on without what is above. " +
	"Write what you need to continue it: what the user wants, with all constraints and preferences; what was done and decided; " +
	"names, paths, numbers and other facts that are needed again, exactly as they were; what is unfinished, and the next step. " +
	"Answer with this text only, and call no tool."

// summarized is put in front of the summary when it comes back.
const summarized = "Summary of the conversation until here, by the model that led it:\n"

// compacted is what an item of a compaction seals.
type compacted struct {
	Version int      `json:"v"` // 1
	Summary string   `json:"summary"`
	Kept    []string `json:"kept,omitempty"` // the latest texts of the client, word for word
	Model   string   `json:"model"`          // that wrote the summary
}

// compactionSeal seals compactions for an org, and opens them.
type compactionSeal struct {
	keys *secret.Keyring // nil = there is no master key
	org  string
	name string
}

// sealOf returns the seal of the caller's org. An org that is created again has another one.
func (h *requestReader) sealOf(caller caller.Caller) compactionSeal {
	return compactionSeal{h.seals, caller.Org.ID, "compaction/" + caller.Org.CreatedAt.UTC().Format(time.RFC3339Nano)}
}

// missing returns the error for a gateway that cannot seal.
func (s compactionSeal) missing() error {
	if s.keys != nil {
		return nil
	}
	return fault.New(fault.NotConfigured, "compaction_unavailable", "a compacted conversation is encrypted with the master key of the gateway, which is missing; "+
		"the operator restores the file master.key in the data directory, or sets master_key to its content")
}

// seal returns the encrypted_content of a compaction. The oldest texts are left out if it would be too long.
func (s compactionSeal) seal(c compacted) (string, error) {
	for {
		text, err := surface.Marshal(c)
		if err != nil {
			return "", err
		}
		sealed, err := s.keys.Seal(s.org, s.name, secret.NewValue(string(text)))
		if err != nil {
			return "", err
		}
		out := compactionPrefix + base64.RawURLEncoding.EncodeToString(sealed)
		switch {
		case len(out) <= maxSealed:
			return out, nil
		case len(c.Kept) == 0:
			return "", compactionFailed("the summary of the model has %d bytes sealed, and may have %d", len(out), maxSealed)
		}
		c.Kept = c.Kept[1:]
	}
}

// open returns what was sealed, or false for what this gateway has not sealed, or not for the org.
func (s compactionSeal) open(content string) (c compacted, ok bool, err error) {
	encoded, ours := strings.CutPrefix(content, compactionPrefix)
	if !ours {
		return c, false, nil
	}
	if err := s.missing(); err != nil {
		return c, true, err
	}
	if len(content) > maxSealed {
		return c, false, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return c, false, nil
	}
	text, err := s.keys.Open(s.org, s.name, sealed)
	if err != nil {
		return c, false, nil
	}
	if err := json.Unmarshal([]byte(text.Reveal()), &c); err != nil || c.Version != 1 {
		return c, false, nil
	}
	return c, true, nil
}

// addCompaction reads an item of a compaction.
func (in *inputReader) addCompaction(at string, raw json.RawMessage) error {
	var w struct {
		Content string `json:"encrypted_content"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return fault.New(fault.Invalid, "invalid_type", "%s.encrypted_content must be a string", at).In(at + ".encrypted_content")
	}
	c, ok, err := in.seal.open(w.Content)
	switch {
	case err != nil:
		return err
	case ok:
		for _, text := range c.Kept {
			in.append(item.NewText(item.User, text), nil)
		}
		in.append(item.NewText(item.User, summarized+c.Summary), nil)
		return nil
	case (in.relays() || len(in.req.Targets) == 0) && !strings.HasPrefix(w.Content, compactionPrefix): // the provider's own, or of one that is not known yet
		in.append(item.Item{Kind: item.Other, Turn: in.said()}, raw)
		return nil
	}
	return fault.New(fault.Invalid, "invalid_value", "%s: the compaction is not one of this gateway and org, or it was changed; "+
		"send the item as it was answered, or start a new conversation", at).In(at + ".encrypted_content")
}

// checkCompaction completes a request for a compaction, when all members are read.
func (d *decoder) checkCompaction() error {
	if err := d.seal.missing(); err != nil {
		return err
	}
	switch {
	case len(d.approvals.answers) > 0:
		return fault.New(fault.Invalid, "invalid_value", "input: approvals cannot be decided by a request that compacts; decide them first").In("input")
	case len(d.req.Items) == 0 && d.req.Continues.ID == "":
		return fault.New(fault.Invalid, "missing_required_parameter", "the input has nothing to compact").In("input")
	}
	d.echo.Store = false // its output is all that a client needs, and the answer says so
	d.kept = keptTexts(d.req.Items)
	d.req.Items = append(d.req.Items, item.NewText(item.User, summarize))
	if len(d.req.Places) > 0 {
		d.req.Places = append(d.req.Places, "input")
	}
	d.req.ToolChoice = model.ToolChoice{Mode: model.ChooseNone} // the tools stay: they begin the prompt, which the provider has cached
	d.req.Options.Format = model.Format{}
	return nil
}

// keptTexts returns the latest texts of the client, the oldest first.
func keptTexts(items []item.Item) (out []string) {
	size := 0
	for i := len(items) - 1; i >= 0; i-- {
		it := items[i]
		if it.Kind != item.Message || it.Role != item.User {
			continue
		}
		text := it.Text()
		if text == "" || strings.HasPrefix(text, summarized) {
			continue
		}
		if size += len(text); size > maxKept {
			break
		}
		out = append([]string{text}, out...)
	}
	return out
}

// compactionItem is the item of the answer.
type compactionItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Content string `json:"encrypted_content"`
}

// compactedResponse is the answer of POST /v1/responses/compact.
type compactedResponse struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	CreatedAt int64  `json:"created_at"` // in seconds since 1970
	Output    []any  `json:"output"`
	Usage     *usage `json:"usage"`
	surface.Extra
}

// compactor makes the answer to a request that compacts. It implements surface.Object and
// surface.Encoder. Nothing is sent before the summary is there, so that a failure has its status.
type compactor struct {
	*encoder
	seal  compactionSeal
	kept  []string
	alone bool // the answer is that of POST /v1/responses/compact

	text    surface.Text
	item    *compactionItem // nil = there is none yet
	failure error           // why not, if the model has answered
}

// Event implements surface.Encoder and surface.Object.
func (c *compactor) Event(ev event.Event) error {
	switch ev := ev.(type) {
	case event.RoundStarted: // a repeated one is void
		c.Release(c.text.Size())
		c.text, c.item, c.failure = surface.Text{}, nil, nil
	case event.TextDelta:
		return c.Keep(&c.text, ev.Text)
	case event.RoundDone:
		c.item, c.failure = c.finishSummary(ev.Stop)
	case event.ApprovalDecided, event.CallDelta, event.Citation, event.Finished, event.ItemDone, event.Compacted, event.HookRan, event.LimitsRaised, event.ModelFallback, event.NativeItem,
		event.NativeProgress, event.Paused, event.ReasoningDelta, event.RefusalDelta, event.RelayBody, event.RelayHead, event.Started, event.ToolDone, event.ToolStarted, event.ToolsListed,
		event.Waiting: // no part of a summary
	}
	return nil
}

// finishSummary seals what the model has written. Anything but a whole text is a failure: a client
// that went on with less would have lost its conversation.
func (c *compactor) finishSummary(stop model.Stop) (*compactionItem, error) {
	summary := strings.TrimSpace(c.text.String())
	switch {
	case stop == model.StopLength:
		return nil, compactionFailed("the summary was cut off by the limit on output; allow more output tokens")
	case stop != model.StopEnd && stop != model.StopUnknown:
		return nil, compactionFailed("the model has stopped with %q instead of a summary", stop)
	case summary == "":
		return nil, compactionFailed("the model has answered without a text")
	}
	content, err := c.seal.seal(compacted{Version: 1, Summary: summary, Kept: c.kept, Model: c.Started.Model})
	if err != nil {
		return nil, err
	}
	if err := c.Charge(len(content)); err != nil {
		return nil, err
	}
	return &compactionItem{"cmp_" + c.suffix(), "compaction", content}, nil
}

func compactionFailed(format string, args ...any) error {
	return fault.New(fault.Upstream, "compaction_failed", "the conversation was not compacted: %s; send it again, or use another model", fmt.Sprintf(format, args...))
}

// Complete implements surface.Completer: a limit of the org may end the run before the summary.
func (c *compactor) Complete() error {
	switch {
	case c.item == nil && c.failure == nil && c.End.Reason == "":
		return compactionFailed("the run is paused at a limit")
	case c.item == nil && c.failure == nil:
		return compactionFailed("the run has ended before the summary (%s)", c.End.Reason)
	}
	return c.failure
}

// Value implements surface.Object.
func (c *compactor) Value() any {
	c.output = []any{c.item}
	r := c.ended()
	if !c.alone {
		return r
	}
	return &compactedResponse{ID: r.ID, Object: "response.compaction", CreatedAt: r.CreatedAt, Output: r.Output, Usage: r.Usage, Extra: r.Extra}
}

// Finish implements surface.Encoder.
func (c *compactor) Finish() {
	c.doneItem(c.addItem(c.item), c.item)
	r := c.ended()
	c.send("response."+r.Status, &responseEvent{Response: r})
	c.stream.Send("", []byte("[DONE]"))
}

// Compact answers POST /v1/responses/compact.
func (h *Handler) Compact(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	return h.compacting.Serve(w, r, caller)
}

// decodeCompact implements surface.Surface.Decode for POST /v1/responses/compact.
func (h *requestReader) decodeCompact(
	ctx context.Context, caller caller.Caller, req *run.Request, members []surface.Member,
) (surface.Reply, error) {
	d := h.newDecoder(ctx, caller, req)
	d.compacts, d.alone = true, true
	asked := members[:0:0]
	for _, m := range members {
		switch {
		case m.Name == "store": // nothing is stored, whatever it says
			continue
		case m.Name == "stream" && !bytes.Equal(m.Value, []byte("false")) && !surface.IsNothing(m.Value):
			return surface.Reply{}, fault.New(fault.Invalid, "unsupported_value", "stream: a compaction is answered as one object; leave stream out").In("stream")
		}
		asked = append(asked, m)
	}
	err := d.decode(append(asked, surface.Member{Name: "store", Value: json.RawMessage("false")}))
	return d.reply(), err
}
