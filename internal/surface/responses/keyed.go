package responses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// keyed is what is stored of a request with an Idempotency-Key that changes a conversation: the
// ids of what it makes, and none of its texts. It is stored before they are. A request with the
// same key and body makes the same, as far as the first one has not, and gets the same answer.
type keyed struct {
	Hash      string `json:"hash"`       // of the request
	Suffix    string `json:"suffix"`     // of the ids of what is made
	CreatedAt int64  `json:"created_at"` // in seconds since 1970
	Done      bool   `json:"done"`       // all of it was made

	key   *journal.SubmitKey    // nil = the request has none: nothing is stored
	found *journal.Conversation // the stored form; nil = it is new
}

// keyedRequests stores requests with an Idempotency-Key.
type keyedRequests struct {
	store journal.Conversations
	log   *slog.Logger
}

func requestKey(key *journal.SubmitKey) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.RequestKey, ID: key.Key}
}

// keyOf reads the Idempotency-Key of a request whose body has these members; nil = it has none.
// what says what the request changes.
func keyOf(r *http.Request, caller caller.Caller, what string, members map[string]json.RawMessage) (*journal.SubmitKey, error) {
	body, err := surface.Marshal(members)
	if err != nil {
		return nil, err
	}
	return surface.SubmitKey(r.Header, caller.Principal.ID, what, body)
}

// begin returns what was stored for the key. If nothing was, it calls check, which refuses a request
// that cannot be performed, and stores a new one for journal.SubmitKeyTTL.
func (h *keyedRequests) begin(ctx context.Context, caller caller.Caller, key *journal.SubmitKey, check func() error) (*keyed, error) {
	k := &keyed{Suffix: id.NewOrdered(""), CreatedAt: clock.Wall().Unix(), key: key}
	if key == nil {
		return k, check()
	}
	k.Hash = key.Hash
	for {
		found, err := h.store.Find(ctx, caller.Org.ID, key.Principal, requestKey(key))
		if err != nil {
			return nil, surface.Failed(h.log, err)
		}
		if found != nil {
			k.found = found
			if err := json.Unmarshal(found.RequestJSON, k); err != nil {
				return nil, fmt.Errorf("stored %s: %w", requestKey(key), err)
			}
			if k.Hash != key.Hash {
				return nil, run.KeyReused()
			}
			return k, nil
		}
		if err := check(); err != nil {
			return nil, err
		}
		err = h.saveKeyed(ctx, caller, k, journal.Conversation{})
		if !errors.Is(err, org.ErrExists) { // else another request with the key was faster
			return k, surface.Failed(h.log, err)
		}
	}
}

func (h *keyedRequests) saveKeyed(ctx context.Context, caller caller.Caller, k *keyed, c journal.Conversation) (err error) {
	if c.RequestJSON, err = surface.Marshal(k); err != nil {
		return err
	}
	return h.store.Save(ctx, caller.Org.ID, k.key.Principal, c, journal.SubmitKeyTTL, requestKey(k.key))
}

// finish notes that everything was made.
func (h *keyedRequests) finish(ctx context.Context, caller caller.Caller, k *keyed) error {
	if k.key == nil || k.Done {
		return nil
	}
	c := journal.Conversation{Version: 1}
	if k.found != nil {
		c = *k.found
	}
	k.Done = true
	err := h.saveKeyed(ctx, caller, k, c)
	if errors.Is(err, journal.ErrChanged) { // another request with the key has noted it
		return nil
	}
	return surface.Failed(h.log, err)
}

// made returns the error of a Save of something that k makes. Another request with the key may have
// made it.
func (k *keyed) made(err error) error {
	if k.key != nil && errors.Is(err, org.ErrExists) {
		return nil
	}
	return err
}
