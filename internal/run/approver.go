package run

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// What a person who decides sees beside the approval: what the user has said, and whether somebody
// is there for the answer.

// MaxUserMessage is how many bytes of a user's message are stored with an approval.
const MaxUserMessage = 2 << 10

// UserMessage is the text of the last message of a user before a call was asked for.
type UserMessage struct {
	Text string `json:"text"`
	Cut  bool   `json:"cut,omitempty"` // the message is longer

	// Asks is the text of the hook that asks; "" = no hook asks, or it has no text.
	Asks string `json:"asks,omitempty"`
}

// userMessageRef is the ref of the row with the UserMessage of an approval. No fact has it.
func userMessageRef(approval string) string { return "said:" + approval }

// UserMessageOf returns the message that is stored with an approval; nil = none is: the user's last
// message has no text, the request does not want its texts to be stored, or the run is deleted.
func UserMessageOf(ctx context.Context, archive journal.Archive, a journal.Approval) (*UserMessage, error) {
	const escaped = 6 // bytes of a character in JSON, at most
	rows, err := archive.Rows(ctx, a.Org, a.RunID, []string{userMessageRef(a.ID)}, escaped*(MaxUserMessage+maxHookMessage)+64)
	if errors.Is(err, org.ErrNotFound) || err == nil && len(rows) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m UserMessage
	if err := json.Unmarshal(rows[0], &m); err != nil {
		return nil, journal.Damaged(userMessageRef(a.ID), err)
	}
	return &m, nil
}

// lastUserMessage returns the text of the transcript's last message of a user, or false if it has
// none.
func lastUserMessage(w *eventlog.Writer) (UserMessage, bool) {
	for _, seg := range slices.Backward(w.State().Transcript) {
		for _, it := range slices.Backward(w.Items(seg.Ref)) {
			if it.Kind == item.Message && it.Role == item.User {
				return newUserMessage(it.Parts)
			}
		}
	}
	return UserMessage{}, false
}

// newUserMessage returns the texts of a message, one per line, as far as they are stored.
func newUserMessage(parts []item.Part) (m UserMessage, ok bool) {
	var text strings.Builder
	for _, part := range parts {
		if part.Kind != item.Text || part.Text == "" {
			continue
		}
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(part.Text[:min(len(part.Text), MaxUserMessage+1)])
		if text.Len() > MaxUserMessage {
			break
		}
	}
	m.Text = text.String()
	if n := MaxUserMessage; len(m.Text) > n {
		for !utf8.RuneStart(m.Text[n]) && n > MaxUserMessage-utf8.UTFMax {
			n--
		}
		m.Text, m.Cut = m.Text[:n], true
	}
	return m, m.Text != ""
}

// Client says whether somebody is there for the answer of a run that waits for approval.
type Client string

// The places where the client of a run can be.
const (
	ClientConnected Client = "connected" // its request is open
	ClientAway      Client = "away"      // it can come back for the answer, with its key or its response
	ClientLeft      Client = "gone"      // nobody can have the answer: the call is not executed, whatever is decided
)

// clients counts the requests of this process that stay open while their run waits for approval. The
// zero value is ready to use.
type clients struct {
	mu sync.Mutex
	of map[journal.RunKey]int
}

// enter counts a request until leave is called.
func (c *clients) enter(key journal.RunKey) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[journal.RunKey]int{}
	}
	c.of[key]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.of[key]--; c.of[key] == 0 {
			delete(c.of, key)
		}
	}
}

func (c *clients) has(key journal.RunKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[key] > 0
}
