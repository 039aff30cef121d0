//go:build unix

package crash_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// question is one chat request. With a key it is one run, however often it is
// sent; with an empty one, a run for each time.
type question struct {
	text   string
	stream bool
	key    string
	effort string // reasoning_effort; empty = none is asked for
}

// answer is what one request got.
type answer struct {
	status int    // 0 where no answer came
	code   string // of an error, also of one in a stream; "broken" for an answer that stopped in the middle
	retry  string // the header Retry-After
	after  int    // retry_after_secs
	runID  string
	text   string // all that was said; in a stream, that is the texts of all rounds
	reason string // why it ended
	tokens int
}

// final reports whether there is nothing to be repeated: the run is over.
func (a answer) final() bool {
	switch a.code {
	case "broken", "run_in_progress", "run_handed_over", "stopping", "store_unavailable", "replica_out", "overloaded":
		return false
	}
	return true
}

// last is the text of the last round, which is all that a JSON answer has.
func (a answer) last() string {
	if at := strings.LastIndex(a.text, "\n\n"); at >= 0 {
		return a.text[at+2:]
	}
	return a.text
}

// tail makes a request longer than what a connection holds back: it has left when
// the transport says that it was written.
const tail = 16 << 10

// ask sends the question once. What is said of a stream is also sent to heard,
// unless that is nil.
func (w *world) ask(ctx context.Context, q question, heard func(answer)) answer {
	members := map[string]any{
		"model": w.model, "stream": q.stream, "stream_options": map[string]any{"include_usage": q.stream},
		"messages": []any{map[string]any{"role": "user", "content": q.text}}, "user": strings.Repeat("x", tail),
	}
	if q.effort != "" {
		members["reasoning_effort"] = q.effort
	}
	body, _ := json.Marshal(members) // strings and booleans
	return w.post(ctx, body, q.key, heard)
}

// post sends a chat request once, with a key unless that is empty.
func (w *world) post(ctx context.Context, body []byte, key string, heard func(answer)) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return answer{code: err.Error()}
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return answer{code: "broken"}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, runID: resp.Header.Get("Turnpike-Run-Id"), retry: resp.Header.Get("Retry-After")}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.readStream(resp.Body, heard)
		return a
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil || a.read(data) != nil {
		a.code = "broken"
	}
	return a
}

// wire is an answer, a chunk or an error of the dialect.
type wire struct {
	Choices []struct {
		Message, Delta struct{ Content string }
		FinishReason   string `json:"finish_reason"`
	}
	Usage struct {
		Total int `json:"total_tokens"`
	}
	Error struct {
		Message string
		Code    string
		After   int `json:"retry_after_secs"`
	}
}

// read adds an object to the answer.
func (a *answer) read(data []byte) error {
	var o wire
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	for _, c := range o.Choices {
		a.text += c.Message.Content + c.Delta.Content
		a.reason += c.FinishReason
	}
	a.tokens += o.Usage.Total
	a.after = o.Error.After
	if a.code = o.Error.Code; a.code == "" && o.Error.Message != "" {
		a.code = o.Error.Message
	}
	return nil
}

// readStream adds the frames of a stream. One without an end mark is broken.
func (a *answer) readStream(body io.Reader, heard func(answer)) {
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, isData := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case string(data) == "[DONE]":
			return
		case !isData || a.code != "": // nothing, or nothing more than the error
		case a.read(data) != nil:
			a.code = fmt.Sprintf("no JSON: %q", data)
		case heard != nil:
			heard(*a)
		}
	}
	a.code = "broken"
}

// insistence is what a client heard that repeated its request until the run was
// over.
type insistence struct {
	answer
	before []answer // what it heard until then
	err    error
}

// insist sends the question again and again, in a goroutine, until it is
// answered.
func (w *world) insist(q question, heard func(answer)) <-chan insistence {
	got := make(chan insistence, 1)
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	go func() {
		defer cancel()
		var all insistence
		for {
			all.answer = w.ask(ctx, q, heard)
			if all.final() {
				break
			}
			all.before = append(all.before, all.answer)
			if all.err = pause(ctx, 25*time.Millisecond); all.err != nil {
				break
			}
		}
		got <- all
	}()
	return got
}

// pause is how long a client waits before it repeats its request.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answered waits for the answer of a client that insists. What it heard before
// must be how the answer begins: nobody is told anything that does not hold.
func (w *world) answered(got <-chan insistence) insistence {
	w.Helper()
	in := await(w.T, "an answer", got)
	if in.err != nil {
		w.Fatalf("no answer: %v after %d attempts, the last of which got %+v", in.err, len(in.before), in.answer)
	}
	for _, b := range in.before {
		if in.status == http.StatusOK && !strings.HasPrefix(in.text, b.text) {
			w.Errorf("a broken stream said %q, the answer is %q", b.text, in.text)
		}
		if b.runID != "" && in.runID != "" && b.runID != in.runID {
			w.Errorf("one key stands for the runs %s and %s", b.runID, in.runID)
		}
	}
	return in
}

// broken counts how many of the attempts were cut off.
func (in insistence) broken() int {
	n := 0
	for _, a := range in.before {
		if a.code == "broken" && a.status != 0 {
			n++
		}
	}
	return n
}
