package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// lastWait is how long the end of the HTTP answer may follow the end of the
// turn. The connection can be used again only when it has been seen.
const lastWait = 50 * time.Millisecond

// Stream implements model.Model.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	if p.err != nil {
		return nil, p.err
	}
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(p.o.Silence, func() { cancel(errSilent) })
	defer watch.Stop()

	resp, err := p.send(call, p.chat, streamHeader(), p.encode(req))
	if err != nil {
		return nil, callError(ctx, call, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, p.failed(ctx, statusError(resp))
	}
	if err := encoded(resp); err != nil {
		return nil, err
	}
	src := &source{src: resp.Body, left: maxAnswer, watch: watch, silence: p.o.Silence}
	turn, err := decode(src, req.Memory, emit)
	if turn != nil {
		item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	}
	if err != nil {
		return turn, p.broken(ctx, call, resp, err)
	}
	src.finish()
	if turn.Usage == (model.Usage{}) {
		p.o.Log.LogAttrs(ctx, slog.LevelDebug, "provider reported no usage", slog.String("model", req.Model))
	}
	return turn, nil
}

// encoded refuses an answer with a content encoding: no request asks for one.
func encoded(resp *http.Response) error {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return brokenAnswer(fmt.Sprintf("answered with the content encoding %.40q", enc), nil)
	}
	return nil
}

func streamHeader() http.Header {
	return http.Header{
		"Content-Type":    {"application/json"},
		"Accept":          {"text/event-stream, application/json"},
		"Accept-Encoding": {"identity"}, // a compressed stream comes in lumps
	}
}

// failed returns the error of an error answer, unless the caller has left
// while it was read.
func (p *Provider) failed(ctx context.Context, err *model.Error) error {
	if ctx.Err() != nil {
		return &model.Error{Class: model.Gone, Err: ctx.Err()}
	}
	return err
}

// broken returns the error of an answer that did not come to its end.
func (p *Provider) broken(ctx, call context.Context, resp *http.Response, err error) error {
	var mine emitError
	if errors.As(err, &mine) {
		return mine.error
	}
	var answer *model.Error
	if errors.As(callError(ctx, call, err), &answer) && answer.Class != model.Gone {
		answer.Status, answer.Header = resp.StatusCode, callerHeader(resp.Header)
	}
	return answer
}

// source reads an answer's body, within its size, and tells the watch.
type source struct {
	src     io.Reader
	left    int64
	watch   *time.Timer
	silence time.Duration
}

func (s *source) Read(p []byte) (int, error) {
	if s.left <= 0 {
		var one [1]byte
		if n, err := s.src.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, brokenAnswer("sent an answer that is too large", errTooMuch)
	}
	n, err := s.src.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if n > 0 {
		s.watch.Reset(s.silence)
	}
	return n, err
}

// finish reads to the end of the HTTP answer, where that comes soon.
func (s *source) finish() {
	s.watch.Reset(lastWait)
	_, _ = io.CopyN(io.Discard, s.src, 4<<10) // the turn is complete whatever comes
}
