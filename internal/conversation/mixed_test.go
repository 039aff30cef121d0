package conversation_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/item"
)

// handedOver says that each run has ended with calls of its client.
type handedOver struct{}

func (handedOver) Reasons(_ context.Context, _ string, runs []string) (map[string]event.Reason, error) {
	return map[string]event.Reason{runs[0]: event.ClientCalls}, nil
}

// A turn that calls a tool of the client first and then one of the gateway: what the client answers is the request's own,
// and the result that is stored already stays in front.
func TestTheResultOfTheClientIsTheRequestsOwn(t *testing.T) {
	store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	mine, echo := item.NewCall("c_mine", "mine", "{}"), item.NewCall("c_echo", "echo", "{}")
	mine.Turn, echo.Turn = 1, 1
	asked := journal.Conversation{
		RunID: "run_1", Part: 1, CallIDs: map[string]string{},
		Items: item.List{item.NewText(item.User, "go"), mine, echo, item.NewResult("c_echo", "echoed", false)},
	}
	if err := conversation.SaveSegment(t.Context(), store, "o", "resp_1", asked, time.Hour); err != nil {
		t.Fatal(err)
	}
	account := memlimit.New(memlimit.Options{}).Open("o")
	defer account.Close()
	read, err := conversation.Begin(t.Context(), store, handedOver{}, conversation.Request{
		Org: "o", Items: []item.Item{item.NewResult("c_mine", "done", false)}, Continues: conversation.Ref{ID: "resp_1"},
	}, account.Share())
	if err != nil {
		t.Fatal(err)
	}
	if own := read.Items[read.Before:]; len(own) != 1 || own[0].CallID != "c_mine" || read.Items[read.Before-1].CallID != "c_echo" {
		t.Errorf("the items of the request are %+v, behind %+v", own, read.Items[:read.Before])
	}
}
