package main

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

	"github.com/turnpike-gateway/turnpike/bench/wire"
)

// loopClient is the client of the loop cases: what runs cost is far more than
// what it costs itself. It is safe for concurrent use.
type loopClient struct {
	key  string
	http http.Client
}

func newLoopClient(key string) *loopClient {
	return &loopClient{key, http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: 30 * time.Second}}
}

// refused is an answer of another status than 200.
type refused struct {
	status int
	words  string // the beginning of its body
}

func (r refused) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.words) }

func (c *loopClient) close() { c.http.CloseIdleConnections() }

// loopAnswer is a streamed chat completion, collected.
type loopAnswer struct {
	text   string
	finish string // the last finish reason
	calls  int    // tool call deltas: the gateway's own calls are not the client's
	done   bool   // [DONE] came
}

// check says what is wrong with an answer whose text should be want.
func (a loopAnswer) check(want string) error {
	switch {
	case !a.done:
		return fmt.Errorf("the stream ended without [DONE] after %q", a.text)
	case a.calls > 0:
		return fmt.Errorf("the client got %d tool call deltas", a.calls)
	case a.finish != "stop":
		return fmt.Errorf("finish reason %q after %q", a.finish, a.text)
	case strings.TrimSpace(a.text) != want: // the parting of rounds may stand around it
		return fmt.Errorf("the answer is %q, want %q", a.text, want)
	}
	return nil
}

// chat sends one user message to the proxy at addr and reads the whole answer.
func (c *loopClient) chat(ctx context.Context, addr, text string) (loopAnswer, error) {
	body, err := json.Marshal(map[string]any{
		"model": wire.Model, "stream": true,
		"messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return loopAnswer{}, err
	}
	resp, err := c.post(ctx, "http://"+addr+wire.Path, body)
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
		words, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // for the message only
		return nil, refused{resp.StatusCode, string(words)}
	}
	return resp, nil
}

// collect reads a stream of chat completion chunks to its end.
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
	return nil
}

// take empties the ledger of the fake server at addr.
func take[E any](ctx context.Context, c *loopClient, addr string) ([]E, error) {
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
