package loop

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestFactsRoundTrip(t *testing.T) {
	bodies := []Body{
		accepted(answerLast, tokens(5), priced), prepared("0.1", paid), catalogued(Server{Label: "s", Tools: 2}), Blocked{Reason: "loopback", Address: "127.0.0.1", Server: "s"},
		InputAdded{"i", ByHook, "h", true, 7}, asked(1, 2), failed(1, model.Transient), turn(0, model.StopCalls, "a", "b…"),
		prepared("0.0", reads), started("0.0"), done("0.0"), CallWaiting{"0.0", "w", OnChild, 7, 1, "n", "s", "t", "td", "args:0.0", "ad", "pl", "example.com", AskedByServer, "pd", "gw", "h", "why"}, CallResolved{"w", true, "me", "ok", true, false},
		CancelRequested{"me", event.Memory, "c", "why"}, Expired{"w", true}, Parked{5}, Paused{"w", event.Tokens, "org/total", 7, 8, 9, "gw", "no"}, Resumed{"w", true}, Reserved{1, 2, []string{"run"}, budget.Amount{Tokens: 3}, 4},
		Routed{1, 2, []int{1}, []SkippedTarget{{0, SkipOpen}}, new(0)}, ReserveRefused{1, 2, "org/total", budget.Amount{Tokens: 3}, event.Tokens, budget.Amount{Tokens: 5}, budget.Amount{Tokens: 4}, 7}, Finished{event.Complete, "c", "why", []HandedOverCall{{"0.0", "call_1"}}},
		HookRan{PreToolUse, "h", "0.0", HookModify, "patch", true, "why", 7, true}, Compacted{3, []string{"input", "sum"}, 900, 80, 320, 1, true, model.Usage{Input: 9, Output: 1}, -5, true, true, true, []window.Share{{Name: "summary", Tokens: 3}}},
		LimitsRaised{"me", budget.Raise{Rounds: 1, Calls: 2, Tokens: 3, NanoUSD: 4, ActiveMS: 5}, "w", []budget.Shared{{Scope: "org", Limit: budget.Amount{Tokens: 1}}}, true},
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
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, Kinds()) {
		t.Errorf("the kinds %q were tested, want all: %q", got, Kinds())
	}
}

// Each type that is a Body can be decoded: who writes a new fact and forgets the table is told here.
func TestEveryBodyIsDecoded(t *testing.T) {
	decoded := map[string]bool{}
	for _, kind := range Kinds() {
		b, err := Decode(Version, kind, []byte(`{"by":"client","on":"approval","point":"run_start","verdict":"allow"}`)) // what must not be empty
		if err != nil || b.Kind() != kind {
			t.Fatalf("%s: %T, %v", kind, b, err)
		}
		decoded[reflect.TypeOf(b).Name()] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	bodies := 0
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "body" {
				continue
			}
			bodies++
			if receiver, ok := f.Recv.List[0].Type.(*ast.Ident); !ok || !decoded[receiver.Name] {
				t.Errorf("%s: the fact %v has no row in decoders", file, f.Recv.List[0].Type)
			}
		}
	}
	if bodies != len(decoded) {
		t.Errorf("%d types are facts, and %d can be decoded", bodies, len(decoded))
	}
}

// What is withheld of a fact, and nothing else of it, comes back.
func TestTextsAreTakenOutAndPutBack(t *testing.T) { // G17
	answer := prepared("0.0", reads).(CallPrepared)
	answer.Verdict, answer.Answer = Answer, "no such tool"
	for _, b := range []Body{turn(0, model.StopCalls, "a", "b…"), turn(1, model.StopEnd), answer, prepared("0.1", reads), done("0.0")} {
		before, _ := Encode(b)
		bare, texts := WithoutTexts(b)
		for _, secret := range []string{`{\"n\":`, "no such tool"} {
			if data, _ := Encode(bare); strings.Contains(string(data), secret) {
				t.Errorf("%s has %s", data, secret)
			}
		}
		if after, _ := Encode(WithTexts(bare, texts)); string(after) != string(before) {
			t.Errorf("%s was %s", after, before)
		}
		if unchanged, _ := Encode(b); string(unchanged) != string(before) {
			t.Errorf("the body itself is %s now, and was %s", unchanged, before)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	for kind, body := range map[Kind]string{
		KindCallWaiting: `{"call_key":"0.0","wait_id":"w","on":"the stars"}`, KindInputAdded: `{"items_ref":"i","by":"nobody"}`, KindHookRan: `{"point":"pre_tool_use","verdict":"maybe"}`,
	} {
		if _, err := Decode(Version, kind, []byte(body)); !errors.Is(err, ErrUnknownValue) || errors.Is(err, ErrUnknownKind) {
			t.Errorf("%s: err = %v", kind, err)
		}
		if err := CanDecode(Version, kind); err != nil {
			t.Errorf("%s: err = %v", kind, err)
		}
	}
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
