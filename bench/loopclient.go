package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
)

// loopClient makes the runs of the loop cases. It is safe for concurrent use. Its
// CPU time is small compared with that of a run.
type loopClient struct {
	key  string
	http http.Client

	responses bool // the runs are made over the Responses API
}

func newLoopClient(key string) *loopClient {
	return &loopClient{key: key, http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: 30 * time.Second}}
}

// statusError is an answer whose status is not 200.
type statusError struct {
	status int
	body   string // its first 500 bytes
}

func (e statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

func (c *loopClient) close() { c.http.CloseIdleConnections() }

// loopAnswer is a streamed chat completion or response, collected.
type loopAnswer struct {
	text   string
	finish string // the last finish reason; stop for a response that is completed
	calls  int    // tool call deltas or items: the client must get none
	done   bool   // [DONE] came
}

// check returns an error unless the answer is complete and its text is want.
func (a loopAnswer) check(want string) error {
	switch {
	case !a.done:
		return fmt.Errorf("the stream ended without [DONE] after %q", a.text)
	case a.calls > 0:
		return fmt.Errorf("the client got %d tool call deltas", a.calls)
	case a.finish != "stop":
		return fmt.Errorf("finish reason %q after %q", a.finish, a.text)
	case strings.TrimSpace(a.text) != want: // the gateway separates rounds by empty lines
		return fmt.Errorf("the answer is %q, want %q", a.text, want)
	}
	return nil
}

// runAll makes all runs, width at a time, and returns how many milliseconds each
// took. The first failure ends all.
func (c *loopClient) runAll(ctx context.Context, addr string, scripts []fake.Script, width int) ([]float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ms := make([]float64, len(scripts))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(width, len(scripts)) {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(scripts) {
					return
				}
				took, err := c.run(ctx, addr, scripts[i])
				if err != nil {
					cancel(fmt.Errorf("run %d: %w", scripts[i].Run, err))
				}
				ms[i] = took.Seconds() * 1000
			}
		})
	}
	all.Wait()
	return ms, context.Cause(ctx)
}

// run makes one run and checks its answer.
func (c *loopClient) run(ctx context.Context, addr string, s fake.Script) (time.Duration, error) {
	began := time.Now()
	answer, err := c.ask(ctx, addr, s.Text())
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	return took, answer.check(s.Final())
}

// ask sends one user message to the proxy at addr and reads the whole answer.
func (c *loopClient) ask(ctx context.Context, addr, text string) (loopAnswer, error) {
	path, input := fake.ChatPath, "messages"
	if c.responses {
		path, input = fake.ResponsesPath, "input"
	}
	body, err := json.Marshal(map[string]any{
		"model": fake.ModelName, "stream": true,
		input: []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return loopAnswer{}, err
	}
	resp, err := c.post(ctx, "http://"+addr+path, body)
	if err != nil {
		return loopAnswer{}, err
	}
	defer resp.Body.Close()
	return collect(resp.Body)
}

// post returns an answer of status 200; the caller closes its body.
func (c *loopClient) post(ctx context.Context, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		start, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // for the message only
		return nil, statusError{resp.StatusCode, string(start)}
	}
	return resp, nil
}

// collect reads a stream of chunks, or of the events of a response, to its end.
func collect(r io.Reader) (loopAnswer, error) {
	var a loopAnswer
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data:")
		if !isData {
			continue
		}
		data = strings.TrimSpace(data)
		if data == "[DONE]" {
			a.done = true
			continue
		}
		if err := a.add(data); err != nil {
			return a, err
		}
	}
	return a, lines.Err()
}

func (a *loopAnswer) add(data string) error {
	var chunk struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Delta struct {
				Content   string     `json:"content"`
				ToolCalls []struct{} `json:"tool_calls"`
			} `json:"delta"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Type  string `json:"type"` // of an event of a response
		Delta string `json:"delta"`
		Item  struct {
			Type string `json:"type"`
		} `json:"item"`
	}
	if err := json.Unmarshal([]byte(data), &chunk); err != nil {
		return fmt.Errorf("chunk %q: %w", data, err)
	}
	if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		return fmt.Errorf("error inside the stream: %s", chunk.Error)
	}
	for _, c := range chunk.Choices {
		a.text += c.Delta.Content
		a.calls += len(c.Delta.ToolCalls)
		if c.FinishReason != "" {
			a.finish = c.FinishReason
		}
	}
	switch {
	case chunk.Type == "response.output_text.delta":
		a.text += chunk.Delta
	case chunk.Type == "response.output_item.added" && chunk.Item.Type != "message":
		a.calls++
	case chunk.Type == "response.completed":
		a.finish = "stop"
	}
	return nil
}

// takeLedger empties the ledger of the fake server at addr.
func takeLedger[E any](ctx context.Context, c *loopClient, addr string) ([]E, error) {
	resp, err := c.post(ctx, "http://"+addr+"/ledger", nil)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer resp.Body.Close()
	var entries []E
	if err := json.NewDecoder(resp.Body).Decode(&entries); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return entries, nil
}

// verifyAll compares the runs of a pass with what the two ledgers show. It fails if
// a ledger has calls of other runs: an earlier run continued after its end.
func (l *loopResult) verifyAll(scripts []fake.Script, calls []fake.ToolCall, turns []fake.ModelCall) error {
	callsOf, turnsOf := map[int][]fake.ToolCall{}, map[int][]fake.ModelCall{}
	for _, c := range calls {
		callsOf[fake.RunOf(c.ID)] = append(callsOf[fake.RunOf(c.ID)], c)
	}
	for _, t := range turns {
		turnsOf[t.Run] = append(turnsOf[t.Run], t)
	}
	for _, s := range scripts {
		if err := l.verify(s, callsOf[s.Run], turnsOf[s.Run]); err != nil {
			return err
		}
		delete(callsOf, s.Run)
		delete(turnsOf, s.Run)
	}
	if len(callsOf)+len(turnsOf) > 0 {
		return fmt.Errorf("tool calls of %d and model calls of %d runs outside of this pass", len(callsOf), len(turnsOf))
	}
	return nil
}

// verify adds what the ledgers show of one run to l. It fails when the run differs
// from its script: its time must not be used.
func (l *loopResult) verify(s fake.Script, calls []fake.ToolCall, turns []fake.ModelCall) error {
	if err := checkCalls(s, calls, turns); err != nil {
		return fmt.Errorf("run %d: %w", s.Run, err)
	}
	peak, overlaps := overlap(calls)
	l.peak = max(l.peak, peak)
	l.overlaps += overlaps
	if why := wrongOrder(s, turns); why != "" {
		l.outOfOrder++
		if l.firstOutOfOrder == "" {
			l.firstOutOfOrder = fmt.Sprintf("run %d, %s. ", s.Run, why)
		}
	}
	return nil
}

// checkCalls fails unless each scripted tool call was made once, and the model was
// called once for each round and once for the answer.
func checkCalls(s fake.Script, calls []fake.ToolCall, turns []fake.ModelCall) error {
	var want, got []int
	for round, tools := range s.Rounds {
		for i := range tools {
			want = append(want, s.CallID(round, i))
		}
	}
	for _, c := range calls {
		got = append(got, c.ID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the tool was called for %v, want %v", got, want)
	}
	for i, t := range turns {
		if t.Run != s.Run || t.Round != i {
			return fmt.Errorf("model call %d was for run %d, round %d", i, t.Run, t.Round)
		}
	}
	if len(turns) != len(s.Rounds)+1 {
		return fmt.Errorf("%d model calls, want %d", len(turns), len(s.Rounds)+1)
	}
	return nil
}

// overlap returns the maximum number of calls at the same time, and how many calls
// started before an earlier one had ended.
func overlap(calls []fake.ToolCall) (peak, overlaps int) {
	byStart := slices.SortedFunc(slices.Values(calls), func(a, b fake.ToolCall) int {
		return cmp.Compare(a.Start, b.Start)
	})
	for i, c := range byStart {
		running := 1
		for _, earlier := range byStart[:i] {
			if earlier.End > c.Start {
				running++
			}
		}
		if running > 1 {
			overlaps++
		}
		peak = max(peak, running)
	}
	return peak, overlaps
}

// wrongOrder describes the first tool result of a model request that is not that of
// the call in the same place; "" if there is none.
func wrongOrder(s fake.Script, turns []fake.ModelCall) string {
	for _, t := range turns[1:] {
		round := t.Round - 1
		if len(t.Results) != len(s.Rounds[round]) {
			return fmt.Sprintf("round %d: %d tool results, want %d", round, len(t.Results), len(s.Rounds[round]))
		}
		for i, r := range t.Results {
			id := s.CallID(round, i)
			if want := (fake.ToolResult{CallID: fake.ProviderID(id), Text: fake.Result(id)}); r != want {
				return fmt.Sprintf("round %d: result %d is %q of %s, want %q of %s",
					round, i, r.Text, r.CallID, want.Text, want.CallID)
			}
		}
	}
	return ""
}
