package turnpike

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxSessionID is the longest id of a session, in bytes.
const maxSessionID = 256

// memoryTurns is how many turns of a session in memory are in front of its next run.
const memoryTurns = 200

// Session is a conversation of several runs: what the earlier ones said and did is in front of the
// input of the next. It is safe for concurrent use, and its runs come one after the other: see [Session.Run].
type Session struct {
	agent  *Agent
	id     string
	caller Caller
	memory memorySessions // of this value and its forks, for an agent that keeps conversations nowhere else
}

// Session returns the session with an id that the program chooses, such as that of a chat window; it begins
// with its first run. An id has up to 256 bytes. It is a session of the program itself; [Session.As] returns that of another
// caller, which is another session.
//
// The turns are kept by Agent.Conversation if it implements [SessionStore], such as
// sqlite.NewSessions returns, or else by Agent.Store. Without both they live in the value that
// Session returns and its forks, up to 4,096 of them, and the next run gets the newest 200: another value with the
// same id begins anew.
func (a *Agent) Session(id string) *Session {
	return &Session{a, id, everything(), memorySessions{conversation.NewChains(&memory.Conversations{}, orgID, clock.Wall)}}
}

// As returns the session of a caller with the same id. Its runs are on behalf of the caller.
func (s *Session) As(c Caller) *Session {
	of := *s
	of.caller = copied(c)
	return &of
}

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// Run runs the agent with the earlier turns of the session in front of the input, until it answers. A session
// has one run at a time: while another one is in progress or waits for approvals, the error is a
// [*SessionError]. A run that fails after its model has answered stays in the session with what its tools
// did, because that is not undone. One whose model has never answered is left out of later prompts. With [As] it is
// a run of the session of that caller, as of [Session.As].
func (s *Session) Run(ctx context.Context, in Input, opts ...Option) (*Result, error) {
	return s.Stream(ctx, in, opts...).Result()
}

// Stream returns a run of the session that has not begun, as [Agent.Stream] does. The earlier turns are read when
// it begins.
func (s *Session) Stream(ctx context.Context, in Input, opts ...Option) *Stream {
	return s.agent.Stream(ctx, in, s.option(opts)...)
}

// Start begins a run of the session that goes on without its caller, and returns its id once it is stored: see
// [Agent.Start]. The session has no other run until it has ended.
func (s *Session) Start(ctx context.Context, in Input, opts ...Option) (string, error) {
	return s.agent.Start(ctx, in, s.option(opts)...)
}

// option returns the options with the one that makes a run part of the session.
func (s *Session) option(opts []Option) []Option {
	return append([]Option{func(o *options) { o.caller, o.session = s.caller, s }}, opts...)
}

// Resume goes on with a run of the session, as [Agent.Resume] does, which has the same effect if the session is
// kept in a store.
func (s *Session) Resume(ctx context.Context, runID string, decisions ...Decision) *Stream {
	return s.agent.resume(ctx, s, runID, decisions)
}

// Cancel ends a run of the session that waits, or is in progress, as [Agent.Cancel] does.
func (s *Session) Cancel(ctx context.Context, runID string) error {
	return s.agent.cancel(ctx, s, runID)
}

// Past is what is in front of a run of a session.
type Past struct {
	Summary string // of turns before Turns; "" = none
	Turns   []Turn // the oldest first; a run is there from its first turn on

	Rewound []string // runs that [Session.Rewind] has taken out, which cannot be resumed
}

// ErrBusy is wrapped by the error of [SessionStore] for a session that has another run in progress.
var ErrBusy = conversation.ErrReserved

// SessionError says that a session has another run, which is in progress or waits for approvals. Wait for it,
// [Session.Resume] it, or [Session.Cancel] it.
type SessionError struct {
	Session string
	RunID   string // the other run; "" = one that has only begun
	Message string
	Partial
}

func (e *SessionError) Error() string { return e.Message }

// Status implements [Failure].
func (e *SessionError) Status() int { return http.StatusConflict }

// keptSessions returns what keeps the session; nil if nothing does.
func (e *engine) keptSessions(s *Session) SessionStore {
	if kept, ok := e.agent.Conversation.(SessionStore); ok {
		return kept
	}
	if e.agent.Store != nil {
		if kept := e.agent.Store.Sessions(); kept != nil {
			return kept
		}
	}
	if s != nil {
		return s.memory
	}
	return nil
}

// sessionsOf returns what gets the turns of the session and keeps it; nil if nothing keeps it.
func (e *engine) sessionsOf(s *Session) SessionStore {
	kept, also := e.keptSessions(s), e.agent.Conversation
	if _, same := also.(SessionStore); kept == nil || also == nil || same {
		return kept
	}
	return bothSessions{kept, also}
}

// bothSessions are sessions whose turns another conversation gets too.
type bothSessions struct {
	SessionStore
	also Conversation
}

// Append implements Conversation.
func (b bothSessions) Append(ctx context.Context, turn Turn) error {
	if err := b.SessionStore.Append(ctx, turn); err != nil {
		return err
	}
	return b.also.Append(ctx, turn)
}

// checkSession returns what is wrong with the id of a session.
func checkSession(id string) error {
	if id == "" || len(id) > maxSessionID || !utf8.ValidString(id) {
		return invalid("the id of a session has 1 to %d bytes of UTF-8, and not %d", maxSessionID, len(id))
	}
	return nil
}

// enterSession reserves the session for the run.
func (c *call) enterSession(ctx context.Context) (past Past, leave func(), err error) {
	past, leave, err = c.sessions.Enter(ctx, SessionKey{c.caller.Key(), c.session}, c.id)
	switch {
	case errors.Is(err, ErrBusy):
		return past, nil, c.busy()
	case err != nil:
		return past, nil, &LostError{Message: "the turns of session " + c.session + " cannot be read", Cause: err}
	}
	return past, leave, nil
}

// busy returns the error of a session that another run has reserved.
func (c *call) busy() error {
	message := fmt.Sprintf("session %s has another run in progress; wait for it", c.session)
	return &SessionError{Session: c.session, Message: message}
}

// continueSession reserves the session for a new run, and puts its turns in front of the input.
func (c *call) continueSession(ctx context.Context) (leave func(), err error) {
	past, leave, err := c.enterSession(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.mayFollow(ctx, past); err != nil {
		leave()
		return nil, err
	}
	history := past.items()
	c.history, c.input = len(history), append(history, c.input...)
	c.lastTurn = item.LastTurn(c.input)
	return leave, nil
}

// mayFollow returns an error if the last run of the session has not ended: one that waits for approvals, and one that
// a crash has broken off, are resumed or cancelled first.
func (c *call) mayFollow(ctx context.Context, past Past) error {
	if len(past.Turns) == 0 {
		return nil
	}
	last := past.Turns[len(past.Turns)-1].RunID
	head, err := c.engine.archive.Head(ctx, orgID, last)
	if errors.Is(err, org.ErrNotFound) { // it was in memory, or was never stored, or is deleted
		return nil
	} else if err != nil {
		return errorOf(ctx, err, Partial{})
	}
	refuse := func(format string) error {
		return &SessionError{Session: c.session, RunID: last, Message: fmt.Sprintf(format, c.session, last)}
	}
	switch head.Summary.Status {
	case journal.Waiting:
		return refuse("session %s has run %s, which waits for approvals; resume it with decisions, or cancel it")
	case journal.Running:
		return refuse("session %s has run %s, which has not ended; wait for it, or resume it after a crash")
	case journal.Done, journal.IsAside:
	}
	return nil
}

// items returns the turns as a prompt. Answers of the model are numbered anew. A call without a result, of a run
// that has ended before it, gets one that says so.
func (p Past) items() []item.Item {
	var out []item.Item
	if p.Summary != "" {
		out = append(out, item.NewText(item.System, "Summary of the conversation before:\n"+p.Summary))
	}
	number := 0
	for turns := p.Turns; len(turns) > 0; {
		end := slices.IndexFunc(turns, func(t Turn) bool { return t.RunID != turns[0].RunID })
		if end < 0 {
			end = len(turns)
		}
		out = append(out, runItems(turns[:end], &number)...)
		turns = turns[end:]
	}
	return out
}

// noResult is the result of a call whose run has ended before it had one.
const noResult = "There is no result: the run ended before. The call may have been carried out."

// runItems returns the items of the turns of one run; none if its model has never answered.
func runItems(turns []Turn, number *int) (out []item.Item) {
	if !slices.ContainsFunc(turns, func(t Turn) bool { return t.Role == AssistantTurn }) {
		return nil
	}
	var open []string // ids of calls without a result
	answer := func() {
		for _, id := range open {
			out = append(out, item.NewResult(id, noResult, true))
		}
		open = nil
	}
	for _, t := range turns {
		if t.Role != ToolTurn {
			answer()
		}
		items := slices.Clone(t.Items)
		if t.Role == AssistantTurn {
			*number++
			item.SetTurn(items, *number)
		} else {
			numberAnswers(items, number)
		}
		for _, it := range items {
			switch it.Kind {
			case item.ToolCall:
				open = append(open, it.CallID)
			case item.ToolResult:
				if at := slices.Index(open, it.CallID); at >= 0 {
					open = slices.Delete(open, at, at+1)
				}
			case item.Message, item.Reasoning, item.Other:
			}
		}
		out = append(out, items...)
	}
	answer()
	return out
}

// numberAnswers numbers the answers of a model that are part of an input.
func numberAnswers(items []item.Item, number *int) {
	for start := 0; start < len(items); {
		end := item.TurnEnd(items, start)
		if items[start].Turn != 0 {
			*number++
			item.SetTurn(items[start:end], *number)
		}
		start = end
	}
}

// memorySessions are sessions in memory.
type memorySessions struct{ chains *conversation.Chains }

// Append implements Conversation.
func (m memorySessions) Append(ctx context.Context, turn Turn) error {
	one := journal.Conversation{RunID: turn.RunID, Part: turn.Number + 1, Role: string(turn.Role), Items: turn.Items}
	return m.chains.Append(ctx, conversation.ChainName{Caller: turn.Caller.Key(), ID: turn.Session}, one, 0)
}

// Enter implements SessionStore.
func (m memorySessions) Enter(ctx context.Context, key SessionKey, _ string) (Past, func(), error) {
	leave, err := m.chains.Reserve(conversation.ChainName(key))
	if err != nil {
		return Past{}, nil, err
	}
	past, err := m.past(ctx, key)
	if err != nil && !errors.Is(err, ErrNoSession) {
		leave()
		return Past{}, nil, err
	}
	return past, leave, nil
}

// past reads what is in front of the next run.
func (m memorySessions) past(ctx context.Context, key SessionKey) (Past, error) {
	turns, info, err := m.chains.Turns(ctx, conversation.ChainName(key), memoryTurns)
	past := Past{Rewound: info.Rewound}
	for _, t := range turns {
		past.Turns = append(past.Turns, Turn{
			Session: key.ID, RunID: t.RunID, Caller: key.Caller.Caller(), Number: t.Part - 1, Role: TurnRole(t.Role), Items: t.Items,
		})
	}
	return past, err
}

// Get implements SessionStore.
func (m memorySessions) Get(ctx context.Context, key SessionKey) (SessionInfo, error) {
	info, err := m.chains.Info(ctx, conversation.ChainName(key))
	return SessionInfo(info.ChainShown), err
}

// Turns implements SessionStore.
func (m memorySessions) Turns(ctx context.Context, key SessionKey) ([]Turn, error) {
	past, err := m.past(ctx, key)
	return past.Turns, err
}

// Delete implements SessionStore.
func (m memorySessions) Delete(ctx context.Context, key SessionKey) error {
	return m.chains.Delete(ctx, conversation.ChainName(key))
}

// List implements SessionStore.
func (m memorySessions) List(ctx context.Context, caller tool.CallerKey, before string, limit int) ([]SessionInfo, error) {
	found, err := m.chains.List(ctx, caller, before, limit)
	var out []SessionInfo
	for _, one := range found {
		out = append(out, SessionInfo(one.ChainShown))
	}
	return out, err
}

// Rewind implements SessionRewinder.
func (m memorySessions) Rewind(ctx context.Context, key SessionKey, beforeRun string) error {
	return m.chains.Rewind(ctx, conversation.ChainName(key), beforeRun)
}

// Fork implements SessionRewinder.
func (m memorySessions) Fork(ctx context.Context, key SessionKey, fork string) error {
	return m.chains.Fork(ctx, conversation.ChainName(key), fork, 0)
}
