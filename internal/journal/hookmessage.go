package journal

import (
	"context"
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// HookMessagePrefix begins the ids of messages for hooks.
const HookMessagePrefix = "msg_"

// HookMessage tells an http hook at OnRunComplete that its run is complete. A store keeps it with the run: it is
// added in the transaction of the end, and deleted with the run and with its org. The hook is asked once, and again
// only if the process dies before the outcome is stored.
type HookMessage struct {
	ID       string // unique; the same each time that it is sent
	Org      string
	RunID    string
	Hook     string // the id of the hook
	Agent    bool   // the hook belongs to the agent of the run, and not to the org
	Position int    // of the hook, as its settings have it

	AnswerRef string // the row of the answer, in the run; "" = the texts of the run are not stored
	At        int64  // when the run ended; Unix milliseconds

	Outcome HookOutcome
	EndedAt int64 // when it was sent; Unix milliseconds, 0 = it waits
	Micros  int64 // from the request to the answer, in microseconds; 0 = not sent

	Principal, Model, Surface string // of the run, when the message is read: what is stored of the run has them
}

// HookOutcome says what became of a message for a hook.
type HookOutcome string

// The outcomes.
const (
	HookWaiting   HookOutcome = "waiting"
	HookSucceeded             = HookOutcome(event.HookSucceeded) // the hook has accepted it
	HookFailed                = HookOutcome(event.HookFailed)
	HookTimedOut              = HookOutcome(event.HookTimedOut)
	HookGivenUp   HookOutcome = "given_up" // it was not sent: the org had too many that wait
)

// End returns the message after its end.
func (m HookMessage) End(o HookOutcome, at time.Time, took time.Duration) HookMessage {
	m.Outcome, m.EndedAt, m.Micros = o, at.UnixMilli(), took.Microseconds()
	return m
}

// Entry returns the entry for the audit log of a message that has ended. It has no texts.
func (m HookMessage) Entry() audit.Entry {
	return audit.Entry{Kind: audit.KindHook, At: m.EndedAt, Principal: m.Principal, RunID: m.RunID, RequestID: m.RunID, Body: audit.Hook{
		RunID: m.RunID, Hook: m.Hook, Event: "OnRunComplete", Type: "http", Action: "allow", Status: string(m.Outcome), LatencyMS: audit.Milliseconds(m.Micros),
	}}
}

// ErrNotSent reports a message that could not be sent now because of the gateway: it still waits.
var ErrNotSent = errors.New("the message is not sent yet")

// HookKey identifies a hook for whose runs messages wait. Two hooks of an org may have one.
type HookKey struct{ Org, Hook string }

// HookAsk asks for messages of a hook.
type HookAsk struct {
	HookKey
	Max int // messages
}

// HookMessages stores the messages for hooks after runs. Append adds to it: see [Batch]. If an org has as many
// that wait as its caps allow messages for webhooks, the oldest that nobody has claimed is given up for each new one.
// Implemented by store/database; store/storetest tests it.
type HookMessages interface {
	// DueHooks returns the hooks of which Claim would return a message, ordered by org and hook. The time is
	// the wall clock's.
	DueHooks(ctx context.Context, now time.Time) ([]HookKey, error)

	// ClaimHookMessages returns messages that wait and that nobody has claimed, the oldest first. Nobody else
	// gets them before until, unless Settle ends the claim, or the process has ended. When it returns, that is on disk.
	ClaimHookMessages(ctx context.Context, now, until time.Time, asks []HookAsk) ([]HookMessage, error)

	// SettleHookMessage stores Outcome, EndedAt and Micros of a claimed message, and the entries in the audit
	// log of its org. It returns false, and stores nothing, if the message does not wait any more.
	SettleHookMessage(ctx context.Context, m HookMessage, entries ...audit.Entry) (bool, error)

	// DropHookMessage deletes a message that waits: its hook is not there any more.
	DropHookMessage(ctx context.Context, org, id string) error

	HookMessagesOfRun
}

// HookMessagesOfRun shows what was told after a run.
type HookMessagesOfRun interface {
	// HookMessages returns the messages of a run, as they were added; none if the org has no such run.
	HookMessages(ctx context.Context, org, runID string) ([]HookMessage, error)
}
