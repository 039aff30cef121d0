package run

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/header"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/model"
)

// relayed is what a relay has returned to its caller.
type relayed struct {
	attempts int // model calls

	status int   // HTTP status of the provider; 0 = it has not answered
	bytes  int64 // of the answer of a raw relay
}

// relay sends the request unchanged, and returns the answer unchanged.
func (m *modelCaller) relay(a loop.CallModel) error {
	target := m.run.req.Targets[a.Target].Client
	relayer, ok := target.(relay.Model)
	if !ok || !relayer.Relays(m.run.req.Relay.Raw.Dialect) {
		return m.fail(a, nil, &model.Error{Class: model.Target, Message: "this provider does not speak the caller's dialect"})
	}
	raw := m.rawRequest(a)
	answer, err := relayer.Relay(m.run.ctx, raw)
	if err != nil {
		m.targetOpen = m.answeredBy(a.Target, err)
		return m.fail(a, nil, err)
	}
	defer answer.Body.Close()
	from := io.Reader(answer.Body)
	if raw.FailsOver { // an answer without a byte is none: another target may have one
		begun := bufio.NewReaderSize(from, smallRead)
		if _, err := begun.Peek(1); err != nil && !errors.Is(err, io.EOF) {
			err = &model.Error{Class: model.Transient, Err: err}
			m.targetOpen = m.answeredBy(a.Target, err)
			return m.fail(a, nil, err)
		}
		from = begun
	}
	m.freeBody()
	m.relayed.status = answer.Status
	m.warnOfRelay(a, answer)
	m.run.events.Relay(event.RelayHead{Target: m.servedBy(a.Target), Status: answer.Status, Header: answer.Header, Length: answer.Length})
	m.forwarded = true
	err = m.pump(from)
	m.answeredBy(a.Target, cmp.Or(err, refusal(answer.Status)))
	got := &model.Turn{Usage: m.usageOf(answer)}
	refused := answer.Status >= http.StatusBadRequest
	if !refused {
		m.billTime(a, got, time.Since(m.timing.sent))
	}
	if !got.Usage.Estimated { // what the answer counts, it counts at its end
		got.Stop = model.StopEnd
	}
	if err != nil {
		return m.fail(a, got, err)
	}
	turn := loop.Turn{Purpose: loop.PurposeRaw, Stop: model.StopEnd, Usage: got.Usage, Refused: refused, Uncounted: !refused && uncounted(m.run.state(), got, nil)}
	return m.run.commit(journal.Batch{Settled: m.reserver.settled(turn)}, turn)
}

// rawRequest returns the request of an attempt. What one target gets of its header, another one does
// not get.
func (m *modelCaller) rawRequest(a loop.CallModel) *relay.Request {
	raw := m.run.req.Relay.Raw
	if m.run.req.Relay.Content != nil {
		again := *raw
		again.Header = maps.Clone(raw.Header)
		again.Open, again.Length = m.run.req.Relay.Content(m.run.req.Targets[a.Target].Model)
		again.FailsOver = len(m.run.req.Targets) > 1
		raw = &again
	}
	m.dropHeaders(a, raw.Header)
	raw.Ask = m.run.state().Reserved != nil
	raw.Meter = raw.Ask || m.run.req.Relay.Content != nil
	return raw
}

// refusal returns the error of a status that speaks against the provider, and not against the
// request; nil for any other.
func refusal(status int) error {
	if status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
		return &model.Error{Class: model.Transient, Status: status}
	}
	return nil
}

// usageOf returns what an answer that was relayed has used, if the relay spends from budgets. What
// the provider does not say is estimated: the input by the size of the request, as for its
// reservation.
func (m *modelCaller) usageOf(answer *relay.Response) model.Usage {
	if answer.Usage == nil {
		return model.Usage{}
	}
	u := answer.Usage()
	if u.Estimated && u.Input == 0 {
		per := m.run.state().Accepted.Rules.Estimate.BytesPerToken
		u.Input = (m.run.state().Accepted.RawBytes + per - 1) / per
		u.Total = u.Input + u.Output
	}
	return u
}

// freeBody frees the body of the request, because the answer may take much longer.
func (m *modelCaller) freeBody() {
	m.run.account.Release(cap(m.run.req.Relay.Raw.Body))
	m.run.req.Relay.Raw.Body, m.run.req.Relay.Raw.Release = nil, nil
}

// pump emits the bytes of the answer as they arrive, one event for each read.
func (m *modelCaller) pump(body io.Reader) error {
	lent := relayBuffer{account: m.run.account}
	defer lent.done()
	for n := 0; ; {
		var err error
		buf := lent.next(n)
		n, err = body.Read(buf)
		if n > 0 {
			if m.relayed.bytes == 0 {
				m.timing.received(time.Now())
			}
			m.relayed.bytes += int64(n)
			m.run.events.Relay(event.RelayBody{Data: buf[:n]})
			if cause := context.Cause(m.run.ctx); cause != nil {
				return cause
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &model.Error{Class: model.Transient, Err: err}
		}
	}
}

// warnOfRelay logs a warning for the operator if the answer to a relayed request is typical
// of a wrong setting. The caller gets the answer unchanged.
func (m *modelCaller) warnOfRelay(a loop.CallModel, answer *relay.Response) {
	page := strings.HasPrefix(strings.ToLower(http.Header(answer.Header).Get("Content-Type")), "text/html")
	switch {
	case answer.Status == http.StatusUnauthorized, answer.Status == http.StatusForbidden:
		warnOfCredential(m.providerLog(a), answer.Status)
	case page && (answer.Status < 300 || answer.Status == http.StatusNotFound):
		m.providerLog(a).Warn("a provider answered a relayed request with a web page: check its base_url", "status", answer.Status)
	}
}

// The sizes of the buffers into which a relay reads. A slow stream, which may be open for
// minutes, keeps a small one. A fast answer is read into a large one from a pool.
const (
	smallRead = 1 << 10
	largeRead = 32 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallRead); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, largeRead); return &b }}
)

// relayBuffer is the buffer of one relay. A large one is charged to the account. The zero
// value can be used and charges nothing. Call done at the end.
type relayBuffer struct {
	account *memlimit.Account
	data    *[]byte
	pool    *sync.Pool
}

// next returns the buffer for the next read, after a read of n bytes. It is a small one if
// the account has no room for a large one.
func (b *relayBuffer) next(n int) []byte {
	switch {
	case b.pool == nil:
		b.take(&smallBuffers)
	case n < smallRead && b.pool == &largeBuffers:
		b.done()
		b.take(&smallBuffers)
	case n >= smallRead && b.pool == &smallBuffers && b.account.Acquire(largeRead) == nil:
		b.done()
		b.take(&largeBuffers)
	}
	return *b.data
}

func (b *relayBuffer) take(pool *sync.Pool) {
	b.data, b.pool = pool.Get().(*[]byte), pool
}

// done returns the buffer to its pool.
func (b *relayBuffer) done() {
	if b.data == nil {
		return
	}
	if b.pool == &largeBuffers {
		b.account.Release(largeRead)
	}
	b.pool.Put(b.data)
	b.data, b.pool = nil, nil
}

// dropHeaders removes the fields of the client's header that the target does not get. The
// log names each once for each key, without its value.
func (m *modelCaller) dropHeaders(a loop.CallModel, fields map[string][]string) {
	allowed, key := m.run.req.Targets[a.Target].RelayHeaders, m.run.req.Principal
	for name := range fields {
		if header.Usual(name) || slices.Contains(allowed, name) {
			continue
		}
		delete(fields, name)
		shown := name[:min(len(name), longestDropped)]
		switch first, last := m.dropped.note(key, shown); {
		case last:
			m.providerLog(a).Warn("relay_headers_unreported", "principal", key, "limit", maxDropped, "limit_per_key", maxDroppedOfKey)
		case first:
			m.providerLog(a).Warn("relay_header_dropped", "header", shown, "principal", key,
				"remedy", "if the provider needs it, add it to relay_headers of the provider")
		}
	}
}
