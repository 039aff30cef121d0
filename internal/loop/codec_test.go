package loop

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestFactsRoundTrip(t *testing.T) {
	bodies := []Body{
		accepted(answerLast, tokens(5)), catalogued(Server{Label: "s", Tools: 2}), Blocked{Reason: "loopback", Address: "127.0.0.1", Server: "s"},
		InputAdded{"i", "client", true, 7}, asked(1, 2), failed(1, model.Transient), turn(0, model.StopCalls, "a", "b…"),
		prepared("0.0", reads), started("0.0"), done("0.0"), CallWaiting{"0.0", "w", 7, 1, "n", "s", "t", "td", "args:0.0", "ad", AskedByServer, "pd", "gw"}, CallResolved{"w", true, "me", "ok"},
		CancelRequested{"me", event.Memory, "c", "why"}, Expired{"w"}, Parked{5}, Resumed{"w", true}, Reserved{1, 2, []string{"run"}, budget.Amount{Tokens: 3}},
		ReserveRefused{1, 2, "org", budget.Amount{Tokens: 3}, event.Tokens}, Finished{event.Complete, "c", "why", []HandedOverCall{{"0.0", "call_1"}}},
	}
	seen := map[Kind]bool{}
	for _, b := range bodies {
		data, err := Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(Version, b.Kind(), data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Errorf("%s changed (-want +got):\n%s", b.Kind(), diff)
		}
		seen[b.Kind()] = true
	}
	if len(seen) != 19 {
		t.Errorf("%d kinds tested, want 19", len(seen))
	}
}

func TestDecodeErrors(t *testing.T) {
	if _, err := Decode(Version, "no_such_kind", []byte("{}")); !errors.Is(err, ErrUnknownKind) {
		t.Errorf("err = %v", err)
	}
	if _, err := Decode(Version, KindTurn, []byte("{")); err == nil {
		t.Error("broken JSON was decoded")
	}
	if _, err := Decode(Version+1, KindTurn, []byte("{}")); !errors.Is(err, ErrUnknownVersion) { // C07
		t.Errorf("err = %v", err)
	}
}
