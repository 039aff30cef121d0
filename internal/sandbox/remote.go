package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// remote is the driver Remote: a service that runs code, in sandboxes of its own.
//
// It gets POST URL with {"language", "code", "timeout", "session"} and "Authorization: Bearer KEY". It
// answers 200 with {"stdout", "stderr", "result", "exit", "error", "state_lost"}: error says why its session has
// ended. The service keeps the sessions.
type remote struct {
	url    string
	key    string
	client http.RoundTripper // nil = nothing can be sent
	shared []byte            // see Options.Shared
}

// remoteGrace is how much longer than the code the answer of a service may take.
const remoteGrace = 10 * time.Second

// maxRemote bounds the answer of a service, in bytes.
const maxRemote = 2*maxOutput + MaxResult + 64<<10

// Name implements [Driver].
func (d remote) Name() string { return Remote }

// Languages implements [Driver].
func (d remote) Languages() []Language { return []Language{Python, JavaScript} }

// Check implements [Driver]. It sends nothing.
func (d remote) Check(context.Context) error {
	u, err := url.Parse(d.url)
	switch {
	case d.url == "":
		return errors.New("no service is configured; set TURNPIKE_CODE_SANDBOX_URL")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("TURNPIKE_CODE_SANDBOX_URL is not an http or https URL")
	case d.client == nil:
		return errors.New("this program sends no requests")
	}
	return nil
}

// Start implements [Driver]. The directory names the session: its path says nothing about the org.
func (d remote) Start(ctx context.Context, l Language, dir string) (Interpreter, error) {
	if err := d.Check(ctx); err != nil {
		return nil, err
	}
	return &remoteSession{remote: d, language: l, session: d.named(dir)}, nil
}

// named returns the name of a session at the service. With a shared secret it is that of the session in all processes.
func (d remote) named(dir string) string {
	if len(d.shared) == 0 {
		return hashed(dir)
	}
	mac := hmac.New(sha256.New, d.shared)
	mac.Write([]byte("code session " + filepath.Base(filepath.Dir(dir)) + "/" + filepath.Base(dir)))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// keepsState says that an interpreter that starts may have variables of earlier ones.
func (d remote) keepsState() {}

// remoteSession is a session of a service.
type remoteSession struct {
	remote
	language Language
	session  string
}

type remoteRequest struct {
	Language Language `json:"language"`
	Code     string   `json:"code"`
	Timeout  float64  `json:"timeout"` // seconds
	Session  string   `json:"session"`
}

type remoteAnswer struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Result    string `json:"result"`
	Exit      int    `json:"exit"`
	Error     string `json:"error"`
	StateLost bool   `json:"state_lost"`
}

// Run implements [Interpreter]. The service gets the time that ctx has left, and its answer may take a
// little longer.
func (s *remoteSession) Run(ctx context.Context, code string) (Outcome, error) {
	o := Outcome{Driver: Remote}
	limit := DefaultTimeout
	if at, ok := ctx.Deadline(); ok {
		limit = time.Until(at)
	}
	body, err := json.Marshal(remoteRequest{s.language, code, limit.Seconds(), s.session})
	if err != nil {
		return o, err
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit+remoteGrace)
	defer cancel()
	stop := context.AfterFunc(parent, func() {
		if !errors.Is(context.Cause(parent), context.DeadlineExceeded) {
			cancel() // the caller has gone
		}
	})
	defer stop()
	a, err := s.send(ctx, body)
	switch {
	case err == nil:
	case parent.Err() != nil && !errors.Is(context.Cause(parent), context.DeadlineExceeded):
		return o, context.Cause(parent)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		o.Ended = "the time limit was reached"
		return o, nil
	default:
		return o, &UnavailableError{Remote, err}
	}
	o.Stdout, o.StdoutDropped = kept(a.Stdout)
	o.Stderr, o.StderrDropped = kept(a.Stderr)
	o.Result, o.Exit, o.Ended, o.StateLost = lastOf(a.Result), a.Exit, lastOf(a.Error), a.StateLost
	if len(a.Result) <= MaxResult {
		o.Result = a.Result
	}
	return o, nil
}

// kept returns the beginning of an output.
func kept(text string) (string, int64) {
	if len(text) <= maxOutput {
		return text, 0
	}
	dropped := int64(len(text) - maxOutput)
	return joined(text[:maxOutput/2], text[len(text)-maxOutput/2:], dropped), dropped
}

// send sends one request. Its errors name no address: they are logged and shown to operators.
func (s *remoteSession) send(ctx context.Context, body []byte) (remoteAnswer, error) {
	var a remoteAnswer
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return a, errors.New("its URL is invalid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	resp, err := s.client.RoundTrip(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxRemote+1))
	switch {
	case err != nil:
		return a, fmt.Errorf("its answer broke off: %w", err)
	case resp.StatusCode != http.StatusOK:
		return a, fmt.Errorf("it answered with status %d: %s", resp.StatusCode, strings.TrimSpace(cmp.Or(lastOf(string(data[:min(len(data), 200)])), "no text")))
	case len(data) > maxRemote:
		return a, fmt.Errorf("its answer has more than %d bytes", maxRemote)
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("its answer is not the JSON of a result: %w", err)
	}
	return a, nil
}

// Close implements [Interpreter].
func (s *remoteSession) Close() {}
