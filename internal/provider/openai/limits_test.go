//go:build !race

// These tests read answers of up to 64 MiB. The race detector makes them ten times
// slower and finds nothing in them: they run without it.

package openai

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
)

// sends answers with a body that is made while it is sent, of a length that is
// known from its header or not.
func sends(length int64, known bool, body io.Reader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if known {
			w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
		} else {
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.Copy(w, body)
	}
}

// filler is n bytes of the letter x.
func filler(n int64) io.Reader { return io.LimitReader(xs{}, n) }

type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Each limit of an answer lets through what is exactly as large, and says what
// was too large beyond it, whether or not the answer told its length.
func TestAnAnswerIsAsLargeAsItsLimits(t *testing.T) { // P06
	around := func(before, after string) func(n int64) io.Reader {
		return func(n int64) io.Reader {
			return io.MultiReader(strings.NewReader(before), filler(n-int64(len(before)+len(after))), strings.NewReader(after))
		}
	}
	stream := func(event io.Reader) io.Reader {
		return io.MultiReader(event, strings.NewReader("\n\n"+end("stop")+done))
	}
	for _, tt := range []struct {
		name  string
		limit int64
		well  string // the error at the limit, "" for none
		body  func(n int64) io.Reader
		over  string // the error beyond it
	}{
		{"an object", wire.MaxAnswer, "", around(`{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"x":"`, `"}`), "sent an answer that is too large"},
		{"a stream", wire.MaxAnswer, "ended the stream before the answer was complete", func(n int64) io.Reader {
			comment := ": " + strings.Repeat("x", 1<<16) + "\n"
			last := delta(`"content":"a"`) + ":"
			return io.MultiReader(strings.NewReader(strings.Repeat(comment, wire.MaxAnswer/len(comment)-1)+last),
				filler(n-int64(len(comment))*(wire.MaxAnswer/int64(len(comment))-1)-int64(len(last))))
		}, "sent an answer that is too large"},
		{"a line", sse.DefaultMaxLine, "", func(n int64) io.Reader {
			return stream(around(`data: {"choices":[{"delta":{"content":"`, `"}}]}`)(n))
		}, "sent a stream that is too large"},
		{"an event", sse.DefaultMaxEvent, "", func(n int64) io.Reader {
			const before, after = `{"choices":[{"delta":{"content":"a"}}]`, `}`
			line := strings.Repeat(" ", 1<<19) + "\n"
			data := before + strings.Repeat(line, int(n)/len(line)-1)
			data += strings.Repeat(" ", int(n)-len(data)-len(after)) + after
			return stream(strings.NewReader("data: " + strings.ReplaceAll(data, "\n", "\ndata: ")))
		}, "sent a stream that is too large"},
	} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, length known %t", tt.name, known), func(t *testing.T) {
				for n, want := range map[int64]string{tt.limit: tt.well, tt.limit + 1: tt.over} {
					length, _ := io.Copy(io.Discard, tt.body(n))
					p := serve(t, sends(length, known, tt.body(n)))
					_, err := p.Stream(t.Context(), &model.Request{}, func(model.Delta) error { return nil })
					var e *model.Error
					if (want == "") != (err == nil) || err != nil && (!errors.As(err, &e) || e.Class != model.Transient || e.Message != want) {
						t.Errorf("%d bytes: %v, want %q", n, err, want)
					}
				}
			})
		}
	}
}

// P06
func TestATurnIsAsLargeAsItsLimit(t *testing.T) {
	const half = wire.MaxTurn/2 - 1000
	most := func(pieces ...string) string { return strings.Join(pieces, "") + end("stop") + done }
	words := func(n int) string {
		var b strings.Builder
		for ; n > 0; n -= 1 << 19 {
			b.WriteString(delta(`"content":"` + strings.Repeat("x", min(n, 1<<19)) + `"`))
		}
		return b.String()
	}
	arguments := func(n int) string {
		b := callPiece(`{"index":0,"id":"c","function":{"name":"f","arguments":""}}`)
		for ; n > 0; n -= 1 << 19 {
			b += callPiece(`{"index":0,"function":{"arguments":"` + strings.Repeat("x", min(n, 1<<19)) + `"}}`)
		}
		return b
	}
	for name, row := range map[string]struct {
		in   string
		fits bool
	}{
		"text at the limit":               {most(words(wire.MaxTurn)), true},
		"text over it":                    {most(words(wire.MaxTurn + 1)), false},
		"text and arguments near it":      {most(words(half), arguments(half)), true},
		"text and arguments over it":      {most(words(half), arguments(half+3000)), false},
		"one object at the limit":         {`{"choices":[{"message":{"content":"` + strings.Repeat("x", wire.MaxTurn) + `"}}]}`, true},
		"one object over it":              {`{"choices":[{"message":{"content":"` + strings.Repeat("x", wire.MaxTurn+1) + `"}}]}`, false},
		"what is no word of the model is": {`{"choices":[{"message":{"content":"a","images":["` + strings.Repeat("x", wire.MaxTurn+1) + `"]}}]}`, true},
	} {
		got := decodeAll(strings.NewReader(row.in))
		if row.fits != (got.Err == fmt.Sprint(error(nil))) || !row.fits && !strings.Contains(got.Err, "sent a turn larger than 8 MiB") {
			t.Errorf("%s: %v", name, got.Err)
		}
	}
}

// What a turn keeps beside its text is charged, too: a provider may send as much of it
// as an answer can hold.
func TestOtherMembersOfATurnAreCharged(t *testing.T) {
	large := strings.Repeat("xy", 300_000)
	for name, piece := range map[string]string{
		"a member":       `"signature_delta":"` + large + `"`,
		"reasoning":      `"reasoning_content":"a","reasoning":"` + large + `"`,
		"a list":         `"reasoning_details":[{"type":"reasoning.encrypted","data":"` + large + `"}]`,
		"a part":         `"content":[{"type":"image","image":"` + large + `"}]`,
		"part of a call": `"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"},"extra":"` + large + `"}]`,
	} {
		account := memlimit.New(memlimit.Options{Run: 8 << 20}).Open("")
		memory := account.Share()
		_, err := decode(strings.NewReader(strings.Repeat(delta(piece), 12)+end("stop")+done), memory, func(model.Delta) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "needs more memory than the run may retain") {
			t.Errorf("%s: %v", name, err)
		}
		memory.Close()
		account.Close()
	}
}

// A list that is sent in pieces is put together in time that grows with its length.
func TestALongListIsPutTogetherSoon(t *testing.T) {
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, "data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"index\":%d,\"data\":\"x\"}]}}]}\n\n", i)
	}
	start := time.Now()
	turn, err := decode(strings.NewReader(b.String()+end("stop")+done), nil, func(model.Delta) error { return nil })
	if took := time.Since(start); err != nil || took > 15*time.Second || strings.Count(string(turn.Items[0].Native.JSON), `"index"`) != 100_000 {
		t.Errorf("%v, %v", took, err)
	}
}
