package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// SessionPrefix begins the ids of sessions, and InputPrefix those of their inputs.
const (
	SessionPrefix = "sess_"
	InputPrefix   = "in_"
)

// Kinds of inputs. They are stored with them and must never change.
const (
	InputMessage   = "message"   // begins a turn
	InputSteer     = "steer"     // goes into the next model call of the turn in progress
	InputInterrupt = "interrupt" // ends the turn in progress
)

// Surface is the name of the surface of runs that are turns of sessions. It is stored with them and must
// never change.
const Surface = "agents"

// Limits of a session.
const (
	MaxTitle         = 200     // characters
	MaxMetadata      = 16      // entries
	MaxMetadataKey   = 64      // characters
	MaxMetadataValue = 512     // characters
	MaxMessage       = 1 << 20 // bytes of one message
)

// Session is a conversation of one agent and one principal, which goes on until it is deleted. Each turn of
// it is a durable run. It has one turn at a time.
type Session struct {
	Org, ID, Agent string
	Principal      string // whose session it is
	Pinned         bool   // it keeps its snapshot; otherwise it follows the agent
	Snapshot       Snapshot
	Title          string
	Metadata       map[string]string
	Turns          int    // that have begun
	RunID          string // of the latest turn; "" = there was none
	CreatedAt      time.Time
	UpdatedAt      time.Time // when the latest turn began, or the session was created

	Spent journal.SessionSpent // by the runs that have ended

	// State is that of the run: see [journal.Summary.State]; "" without a turn, or if its run was deleted.
	State string
}

// Status is what a session does.
type Status string

// The statuses.
const (
	Idle    Status = "idle"
	Running Status = "running" // or queued
	Waiting Status = "waiting" // for a person
)

// Status returns what the session does. That of a run which was set aside is running: it has not ended.
func (s Session) Status() Status {
	switch journal.Status(s.State) {
	case journal.Waiting, journal.Paused:
		return Waiting
	case journal.Running, journal.Queued, journal.IsAside:
		return Running
	}
	return Idle
}

// StopReason returns why the latest turn has ended; "" if there is none, or it has not ended.
func (s Session) StopReason() string {
	switch r := event.Reason(s.State); {
	case s.Status() != Idle || s.State == "":
		return ""
	case r == event.Complete || r == event.ClientCalls:
		return "answer"
	case r == event.MaxRounds || r == event.MaxCalls || r == event.Deadline || r == event.OutputCut:
		return "limit"
	case r == event.Tokens || r == event.Money || r == event.BudgetExceeded:
		return "budget"
	case r == event.Refused:
		return "refusal"
	case r == event.Cancelled || r == event.CallerGone:
		return "interrupted"
	case r == event.ModelError:
		return "retries_used_up"
	}
	return "error"
}

// CheckSession returns a [*FieldError] for a title or metadata that must not be stored.
func CheckSession(title string, metadata map[string]string) error {
	if utf8.RuneCountInString(title) > MaxTitle || !printable(title, "") {
		return wrong("title", "must have at most %d characters, and no control characters", MaxTitle)
	}
	if len(metadata) > MaxMetadata {
		return wrong("metadata", "has %d entries, and at most %d are allowed", len(metadata), MaxMetadata)
	}
	for k, v := range metadata {
		if k == "" || utf8.RuneCountInString(k) > MaxMetadataKey || utf8.RuneCountInString(v) > MaxMetadataValue || !printable(k, "") || !utf8.ValidString(v) {
			return wrong("metadata", "keys must have 1 to %d characters, and values at most %d", MaxMetadataKey, MaxMetadataValue)
		}
	}
	return nil
}

// CheckMessage returns a [*FieldError] for a message that a session must not get.
func CheckMessage(field, text string) error {
	if strings.TrimSpace(text) == "" {
		return wrong(field, "is required")
	}
	if len(text) > MaxMessage || !utf8.ValidString(text) {
		return wrong(field, "has %d bytes, and at most %d bytes of UTF-8 are allowed", len(text), MaxMessage)
	}
	return nil
}

// SessionTurn is a run of a session.
type SessionTurn struct {
	Session, RunID string
	Number         int  // from 1 on, in the session
	Version        int  // of the agent
	Rounds         int  // that it may have
	Reasoning      bool // the client has asked for the reasoning of the model
	CreatedAt      time.Time

	// Snapshot is that of a turn that was queued; nil = that of the session while the turn is the latest.
	Snapshot *Snapshot
}

// Input is an input of the inbox of a session.
type Input struct {
	journal.SessionInput
	RunID       string // that it was delivered to; "" = none yet
	CreatedAt   time.Time
	ProcessedAt time.Time // zero while it waits
}

// SessionQuery selects sessions of an org.
type SessionQuery struct {
	Agent         string    // id; "" = any
	Principal     string    // "" = any
	Search        string    // a part of the title, without regard to case; "" = any
	CreatedAfter  time.Time // zero = any
	CreatedBefore time.Time // zero = any
	MinTurns      int
	MaxTurns      int // 0 = any
	Limit, Offset int // Limit is at least 1
}

// Chooses reports whether the query selects s, apart from Limit and Offset.
func (q SessionQuery) Chooses(s Session) bool {
	return (q.Agent == "" || q.Agent == s.Agent) && (q.Principal == "" || q.Principal == s.Principal) &&
		(q.Search == "" || strings.Contains(strings.ToLower(s.Title), strings.ToLower(q.Search))) &&
		(q.CreatedAfter.IsZero() || s.CreatedAt.After(q.CreatedAfter)) && (q.CreatedBefore.IsZero() || s.CreatedAt.Before(q.CreatedBefore)) &&
		s.Turns >= q.MinTurns && (q.MaxTurns == 0 || s.Turns <= q.MaxTurns)
}

// Sessions stores sessions. Implemented by store/memory and store/database; store/storetest tests the contract, to which what
// [Store] says of ids, times and failures belongs, too. A session, its turns, its inputs and its
// conversation are deleted together, also with their agent and their org. The runs are not deleted.
type Sessions interface {
	// CreateSession adds a session without turns and its empty conversation. It returns org.ErrNotFound
	// without the org, or if the agent is stored and was deleted or archived, or an *org.CapError.
	CreateSession(ctx context.Context, s Session, declared bool) error
	// ForkSession is CreateSession for a session whose conversation is that of f. The errors are also those of
	// [journal.Branches].
	ForkSession(ctx context.Context, s Session, declared bool, f journal.Fork) error
	// Session returns a session, or org.ErrNotFound.
	Session(ctx context.Context, orgID, id string) (Session, error)
	// Sessions returns sessions, the latest updated first, and how many the query selects without Limit and
	// Offset.
	Sessions(ctx context.Context, orgID string, q SessionQuery) (found []Session, total int, err error)
	// SessionTurns returns turns of a session, the latest first, and how many there are.
	SessionTurns(ctx context.Context, orgID, id string, limit, offset int) (found []SessionTurn, total int, err error)
	// TurnOf returns the session and the turn of a run, or org.ErrNotFound.
	TurnOf(ctx context.Context, orgID, runID string) (Session, SessionTurn, error)
	// SessionInputs returns inputs of a session, the oldest first, and how many there are.
	SessionInputs(ctx context.Context, orgID, id string, limit, offset int) (found []Input, total int, err error)
	// InputsOf returns the inputs of a session that a run has got, in their order.
	InputsOf(ctx context.Context, orgID, id, runID string) ([]Input, error)
	// RemoveSession deletes a session, or returns org.ErrNotFound. With unused it does so only if no turn
	// has begun, and otherwise does nothing. It returns the runs of its turns that have not ended, in their order:
	// no turn begins afterwards, so the caller ends all there are.
	RemoveSession(ctx context.Context, orgID, id string, unused bool) (unfinished []string, err error)
}

// SessionRow encodes what stores keep of a snapshot and of metadata.
func SessionRow(s Session) (snapshot, metadata []byte, err error) {
	if snapshot, err = json.Marshal(s.Snapshot); err != nil {
		return nil, nil, fmt.Errorf("session %s: %w", s.ID, err)
	}
	if s.Metadata == nil {
		s.Metadata = map[string]string{}
	}
	if metadata, err = json.Marshal(s.Metadata); err != nil {
		return nil, nil, fmt.Errorf("session %s: %w", s.ID, err)
	}
	return snapshot, metadata, nil
}

// DecodeSession is the inverse of [SessionRow].
func DecodeSession(s *Session, snapshot, metadata []byte) error {
	if err := json.Unmarshal(snapshot, &s.Snapshot); err != nil {
		return fmt.Errorf("session %s: snapshot: %w", s.ID, err)
	}
	if err := json.Unmarshal(metadata, &s.Metadata); err != nil {
		return fmt.Errorf("session %s: metadata: %w", s.ID, err)
	}
	return nil
}

// DecodeSnapshot decodes the snapshot of a turn of a session; nil is none.
func DecodeSnapshot(session string, data []byte) (*Snapshot, error) {
	if data == nil {
		return nil, nil
	}
	s := new(Snapshot)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("session %s: snapshot of a turn: %w", session, err)
	}
	return s, nil
}

// Sees reports whether a session exists for a principal: for whose session it is, and for those that may read
// the runs of the org.
func (s Session) Sees(p org.Principal) bool { return p.Role.MayRead() || s.Principal == p.ID }

// Continues reports whether a principal may go on with a session and stop its runs: whose session it is, and
// those that manage the org.
func (s Session) Continues(p org.Principal) bool { return p.Role.MayManage() || s.Principal == p.ID }

// StopsWithClient reports whether the run of a client that has left stops. It goes on if the client can come
// back for it, because it has an Idempotency-Key or is detached, and if it waits for a person.
func StopsWithClient(keyed, detached bool, s Status) bool { return !keyed && !detached && s == Running }

// Check returns a [*FieldError] for the first setting that is wrong.
func (s Settings) Check() error { return s.check() }
