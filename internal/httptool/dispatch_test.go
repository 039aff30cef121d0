package httptool

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/tool"
)

// An org has at most DispatchCalls calls of the dispatch URL at a time. Others wait, and a call that waits ends with its
// context. Another org does not wait for them. Nothing is kept of an org without calls. // E12
func TestTheCallsOfAnOrgAreBounded(t *testing.T) {
	arrived, release := make(chan struct{}, DispatchCalls+1), make(chan struct{})
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			_, _ = io.WriteString(w, `"sent"`)
			return
		}
		arrived <- struct{}{}
		<-release
		_, _ = io.WriteString(w, `"sent"`)
	})
	var d Dispatcher
	definitions := []tool.Definition{{Name: "a"}, {Name: "b"}}
	of := func(org, path string) tool.Tools {
		return d.Tools(org, Dispatch{URL: b.url + path, Timeout: time.Minute}, definitions, Options{Client: http.DefaultClient})
	}
	mine := of("o", "")
	var calls sync.WaitGroup
	for i := range DispatchCalls {
		calls.Go(func() {
			if r, err := mine[i%2].Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{}`)}); err != nil || r.Parts[0].Text != "sent" {
				t.Errorf("%v %v", r, err)
			}
		})
	}
	for range DispatchCalls {
		<-arrived
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := of("o", "")[0].Call(gone, tool.Call{}); !errors.Is(err, tool.ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("a call beyond the bound ends with %v", err)
	}
	if r, err := of("other", "/other")[0].Call(t.Context(), tool.Call{}); err != nil || r.Parts[0].Text != "sent" {
		t.Errorf("the call of another org: %v %v", r, err)
	}
	close(release)
	calls.Wait()
	if len(arrived) != 0 || len(d.orgs) != 0 {
		t.Errorf("%d calls were beyond the bound, and %d orgs are kept", len(arrived), len(d.orgs))
	}
	http.DefaultClient.CloseIdleConnections()
}

// The text of an answer is found in each of its forms, whatever the bytes are. // E12
func FuzzContentOf(f *testing.F) {
	for _, one := range []string{`"a"`, `{"content":"a"}`, `{"content":null}`, `null`, `7`, `a`, ``, `{"content":["a"]}`, "\xff", `"\ud800"`} {
		f.Add([]byte(one))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := string(contentOf(data))
		whole, _ := json.Marshal(string(data))
		if text := string(contentOf(whole)); utf8.Valid(data) && text != string(data) {
			t.Errorf("the string %s has the text %q", whole, text)
		}
		object, _ := json.Marshal(map[string]string{"content": got})
		if again := string(contentOf(object)); utf8.Valid(data) && again != got {
			t.Errorf("the object %s has the text %q", object, again)
		}
	})
}
