package turnpiketest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/script"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

var _ model.Model = (*Script)(nil)

// Script is a model that plays a story, one turn for each call. It is a
// [model.Model] and nothing else.
//
// A call beyond the last turn fails with an *[model.Error] of class Invalid
// that says so. A Script is safe for concurrent use; calls that come at the
// same time get the turns in the order of their arrival.
type Script struct {
	mu       sync.Mutex    // guards what follows
	turns    []script.Turn // those that are left
	played   int
	requests []model.Request
}

// ParseScript reads a story, in the format of the package comment. The error
// names the line that is wrong.
func ParseScript(story string) (*Script, error) {
	turns, err := script.Parse(story)
	if err != nil {
		return nil, err
	}
	return &Script{turns: turns}, nil
}

// NewScript reads a story for a test, which fails if the story is wrong.
func NewScript(t testing.TB, story string) *Script {
	t.Helper()
	s, err := ParseScript(story)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Stream implements [model.Model] by playing the next turn.
func (s *Script) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	number, t, err := s.Next(req)
	if err != nil {
		return nil, err
	}
	p := performance{number: number, model: req.Model, emit: emit}
	played, err := p.play(ctx, t)
	if played != nil {
		item.SetTurn(played.Items, item.LastTurn(req.Items)+1)
	}
	return played, err
}

// Requests returns what Stream was asked for, in order. The slices of a request
// are the script's own; the items in them are shared with the caller.
func (s *Script) Requests() []model.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Played returns how many turns have begun, over whichever way.
func (s *Script) Played() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.played
}

// Left returns how many turns of the story have not begun. A turn that answers
// all further calls is one of them until the first.
func (s *Script) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, t := range s.turns {
		switch {
		case t.Again != script.Forever:
			n += 1 + t.Again
		case !t.Begun:
			n++
		}
	}
	return n
}

// Next takes the next turn and records the request; nil = it is recorded elsewhere. Other packages have no use
// for it: fake providers play the turns over HTTP.
func (s *Script) Next(req *model.Request) (number int, t script.Turn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req != nil {
		kept := *req
		kept.Items, kept.Tools, kept.Params = slices.Clone(req.Items), slices.Clone(req.Tools), slices.Clone(req.Params)
		s.requests = append(s.requests, kept)
	}
	s.played++
	if len(s.turns) == 0 {
		return s.played, t, &model.Error{Class: model.Invalid, Message: fmt.Sprintf("the script has no turn %d", s.played)}
	}
	t = s.turns[0]
	switch s.turns[0].Begun = true; {
	case t.Again == script.Forever:
	case t.Again > 0:
		s.turns[0].Again--
	default:
		s.turns = s.turns[1:]
	}
	return s.played, t, nil
}
