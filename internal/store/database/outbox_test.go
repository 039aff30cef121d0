package database

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// L10. Of the messages about one run only the first one that waits can be claimed, also when it is
// tried again.
func TestAMessageWaitsForTheOneBeforeIt(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}))
	ok(s.CreateWebhook(t.Context(), org.Webhook{Org: "a", Name: "w", Events: []string{"*"}, Sealed: []byte("x")}, org.Author{}))
	now := time.UnixMilli(1_000_000)
	b := journal.Batch{Sync: true, Facts: []loop.Fact{
		{Seq: 1, Epoch: 1, Version: loop.Version, Body: loop.Accepted{Org: "a", RunID: "r"}}, {Seq: 2, Epoch: 1, Version: loop.Version, Body: loop.Finished{Reason: event.Complete}},
	}}
	for _, e := range []string{org.RunWaiting, org.ResponseCompleted} {
		b.Notices = append(b.Notices, journal.Notice{Event: e, Object: "r", Subject: "r", At: now.UnixMilli()})
	}
	ok(s.Append(t.Context(), journal.Lease{Org: "a", RunID: "r", Epoch: 1, Owner: "x"}, 0, b))
	claim := func(at time.Time) []journal.ClaimedDelivery {
		t.Helper()
		claimed, err := s.ClaimDeliveries(t.Context(), at, at.Add(time.Second), []journal.ClaimAsk{{WebhookKey: journal.WebhookKey{Org: "a", Name: "w"}, Max: 10}})
		ok(err)
		return claimed
	}
	for _, delay := range []time.Duration{5 * time.Second, 10 * time.Second} {
		claimed := claim(now)
		if len(claimed) != 1 || claimed[0].Event != org.RunWaiting {
			t.Fatalf("claimed %+v, want the first message", claimed)
		}
		now = now.Add(delay)
		d := claimed[0].Delivery
		d.Attempts, d.NextAt = d.Attempts+1, now.UnixMilli()
		_, err := s.SettleDelivery(t.Context(), d)
		ok(err)
	}
	claimed := claim(now)
	_, err := s.SettleDelivery(t.Context(), claimed[0].End(journal.MessageDelivered, "", now.UnixMilli()))
	ok(err)
	if claimed = claim(now); len(claimed) != 1 || claimed[0].Event != org.ResponseCompleted {
		t.Errorf("claimed %+v, want the second message", claimed)
	}
}
