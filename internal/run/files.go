package run

import (
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// filesOf returns the files of a conversation that tools of the run get; nil = none gets any. The error is a *fault.Error that
// names a limit: then there are more files than a run may begin with.
func (r *Request) filesOf(p *loop.Policy, items []item.Item) (*file.Set, error) {
	if r.ToolChoice.Mode == model.ChooseNone {
		return nil, nil //nolint:nilnil // a nil set has no files
	}
	for _, h := range p.Hosted {
		for i := range r.Servers {
			if s := &r.Servers[i]; s.Name == h.Server && s.GivesFiles != nil && s.GivesFiles(h.Type) {
				return file.NewSet(file.InputsIn(h.Options), items)
			}
		}
	}
	return nil, nil //nolint:nilnil // a nil set has no files
}

// files returns the files of the conversation that tools of the run get; nil = none gets any. Those of messages that came later than
// the run began may be more than the limits allow.
func (s *runState) files() *file.Set {
	set, _ := s.req.filesOf(s.policy(), s.events.Transcript(s.state().Refs()))
	return set
}

// withFiles returns what the execution of a call needs, with the files of the conversation if the tool gets them.
func (s *runState) withFiles(p prepared) prepared {
	if _, is := p.entry.Tool.(toolexec.Receiver); is {
		with := *p.entry
		with.Tool = toolexec.WithFiles(with.Tool, s.files())
		p.entry = &with
	}
	return p
}
