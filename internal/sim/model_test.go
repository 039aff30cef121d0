package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// bytesPerToken is the worst that the gateway is prepared for.
const bytesPerToken = 3

// speaker is the model of one client, as a process reaches it. What it says
// follows from the transcript, but for a word that is new in every answer.
type speaker struct {
	p *process
	c *client
}

// answer is what the provider does with a request.
type answer struct {
	chunks []string
	turn   *model.Turn
	err    error // after the chunks
	hangs  bool
}

// Stream implements model.Model.
func (s speaker) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	swarm := s.p.w.swarm
	a, err := ask(ctx, s.p, "asks the model for", s.c.id, swarm.dying(faults{lost: swarm.modelLost}), func(r *rand.Rand) (answer, error) {
		return s.hear(req, r), nil
	})
	if err != nil {
		return nil, &model.Error{Class: model.Transient, Err: err}
	}
	if a.hangs {
		return nil, s.hang(ctx)
	}
	for _, chunk := range a.chunks {
		if _, err := ask(ctx, s.p, "hears the model for", s.c.id, faults{}, func(*rand.Rand) (none, error) { return none{}, nil }); err != nil {
			return nil, &model.Error{Class: model.Transient, Err: err}
		}
		if err := emit(model.Delta{Text: chunk}); err != nil {
			return nil, err
		}
	}
	return a.turn, a.err
}

// hang waits until the caller gives up.
func (s speaker) hang(ctx context.Context) error {
	s.p.w.saw("a model did not answer")
	c := s.p.call(ctx, "waits for the model of", s.c.id, faults{})
	c.at, c.do = time.Time{}, func() error { return nil }
	return &model.Error{Class: model.Transient, Err: s.p.w.bus.park(c)}
}

// hear bills a request and says what comes of it.
func (s speaker) hear(req *model.Request, r *rand.Rand) answer {
	w := s.p.w
	w.book.checkTranscript(s.c, req)
	w.book.checkPrompt(s.p, s.c, req)
	if s.c.talk != nil {
		w.book.checkSessionPrompt(s.c, req)
	}
	fault := r.Float64()
	hit := func(rate float64) bool {
		fault -= rate
		return fault < 0 && !w.calm()
	}
	if hit(w.swarm.modelRefused) {
		status := []int{429, 500}[r.IntN(2)]
		return answer{err: &model.Error{Class: model.Transient, Status: status, Message: "try again"}}
	}
	if most := s.c.window; most > 0 && size(req)/bytesPerToken > most {
		w.saw("a prompt was refused as too long")
		return answer{err: &model.Error{Class: model.TooLong, Status: 400, Message: fmt.Sprintf("This model's maximum context length is %d tokens", most)}}
	}
	a := s.say(req, r)
	switch {
	case hit(w.swarm.modelHangs):
		a.hangs = true
	case hit(w.swarm.modelCut):
		a.turn.Stop = model.StopUnknown
		a.err = &model.Error{Class: model.Transient, Err: errors.New("unexpected EOF")}
		if len(a.turn.Calls) > 1 {
			w.saw("a stream broke after a complete call")
			a.turn.Calls, a.turn.Items = a.turn.Calls[:1], a.turn.Items[:2]
		} else {
			a.turn.Calls, a.turn.Items = nil, a.turn.Items[:1]
		}
	}
	silent := r.Float64() < w.swarm.modelSilent && !w.calm()
	told := a.err == nil && !silent
	a.turn.Usage = model.Usage{Input: int64(size(req)) / bytesPerToken, Output: s.output(req, a.turn, told, r)}
	w.book.billed(s.c, req, a.turn.Usage.Input+a.turn.Usage.Output)
	if silent {
		a.turn.Usage = model.Usage{}
	}
	return a
}

// say is the next turn of the script.
func (s speaker) say(req *model.Request, r *rand.Rand) answer {
	round := 0
	for _, it := range req.Items {
		if _, text, ok := strings.Cut(it.Text(), " rounds="); ok && it.Kind == item.Message && it.Role == item.User {
			_, _ = fmt.Sscan(text, &round)
		}
		if it.Kind == item.Message && it.Role == item.Assistant {
			round++
		}
	}
	script := s.c.script
	if s.c.talk != nil {
		var m *message
		if m, round = s.c.talk.latest(req.Items); m != nil {
			script = m.script
		}
	}
	if s.c.remark != nil {
		round = s.p.w.book.checkTalk(s.c.remark, req)
	}
	continues := asksForRest(req)
	if continues {
		round--
	}
	text := fmt.Sprintf("org=%s client=%s round=%d word=%08x ", s.c.org, s.c.id, round, r.Uint32())
	summarizes := isOrder(req)
	if summarizes {
		text = fmt.Sprintf("org=%s client=%s rounds=%d word=%08x ", s.c.org, s.c.id, round, r.Uint32())
	}
	if s.c.remark != nil {
		text = s.p.w.book.saysInTalk(s.c.remark, req, text)
	}
	turn := &model.Turn{Stop: model.StopEnd}
	if room := req.MaxTokens * bytesPerToken; room > 0 && len(text) > room {
		text, turn.Stop = text[:room], model.StopLength
	}
	turn.Items = []item.Item{item.NewText(item.Assistant, text)}
	if turn.Stop == model.StopEnd && !summarizes && round < len(script) && len(req.Tools) > 0 {
		turn.Stop = model.StopCalls
		for i, name := range script[round] {
			c := model.Call{ID: fmt.Sprintf("p%d", i), Name: name, Arguments: fmt.Sprintf(`{"n":%d}`, 10*round+i), Complete: true}
			turn.Calls = append(turn.Calls, c)
			turn.Items = append(turn.Items, c.Item())
		}
	}
	if room := req.MaxTokens * bytesPerToken; room > 0 && sizeOf(turn.Items...) > room {
		turn.Calls, turn.Items, turn.Stop = nil, turn.Items[:1], model.StopLength
	}
	item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	if s.c.like.Policy.Continuations > 0 && !summarizes && len(turn.Calls) == 0 && r.IntN(3) == 0 {
		text, turn.Stop = text[:len(text)/2], model.StopLength
		turn.Items[0].Parts[0].Text = text
	}
	if continues && turn.Stop == model.StopEnd {
		s.p.w.saw("an answer that was cut off was continued to its end")
	}
	half := len(text) / 2
	return answer{chunks: []string{text[:half], text[half:]}, turn: turn}
}

// isOrder reports whether the request is for a summary.
func isOrder(req *model.Request) bool {
	return strings.Contains(req.Items[len(req.Items)-1].Text(), "Write a summary")
}

// asksForRest reports whether the request is for the rest of an answer that was cut off.
func asksForRest(req *model.Request) bool {
	return req.Items[len(req.Items)-1].Text() == loop.ContinueMessage
}

// output is how many tokens the provider counts for a turn: at most what it was
// allowed. If it tells the count, that is sometimes all of it, for thoughts that nobody sees:
// without the count the gateway can only estimate what it has seen.
func (s speaker) output(req *model.Request, turn *model.Turn, told bool, r *rand.Rand) int64 {
	n := (sizeOf(turn.Items...) + bytesPerToken - 1) / bytesPerToken
	if r.IntN(4) == 0 && told {
		n = max(n, req.MaxTokens)
	}
	if req.MaxTokens > 0 {
		n = min(n, req.MaxTokens)
	}
	return int64(n)
}

func size(req *model.Request) int {
	n := sizeOf(req.Items...)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.InputSchema)
	}
	return n
}

func sizeOf(items ...item.Item) int {
	n := 0
	for _, it := range items {
		n += len(it.Text())
		if it.Kind == item.ToolCall {
			n += len(it.Name) + len(it.Arguments)
		}
	}
	return n
}
