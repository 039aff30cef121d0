package bedrock

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// frame writes an event of a stream.
func frame(name, data string) []byte {
	return framed(data, ":event-type", name, ":content-type", "application/json", ":message-type", "event")
}

// exception writes an event that is an error.
func exception(name, data string) []byte {
	return framed(data, ":exception-type", name, ":content-type", "application/json", ":message-type", "exception")
}

func framed(data string, header ...string) []byte {
	var headers []byte
	for i := 0; i < len(header); i += 2 {
		headers = append(append(headers, byte(len(header[i]))), header[i]...)
		headers = append(headers, 7)
		headers = append(binary.BigEndian.AppendUint16(headers, uint16(len(header[i+1]))), header[i+1]...)
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(data)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(headers)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	out = append(append(out, headers...), data...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
}

func concat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// answered is a stream with a text and what comes after it.
func answered(after ...[]byte) []byte {
	return append(concat(
		frame("messageStart", `{"role":"assistant","p":"ab"}`),
		frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"So"},"p":"a"}`),
	), concat(after...)...)
}

func TestHowAnAnswerEnds(t *testing.T) { // M04
	stop := func(reason string) []byte { return frame("messageStop", `{"stopReason":"`+reason+`"}`) }
	ended := frame("contentBlockStop", `{"contentBlockIndex":0}`)
	for name, tt := range map[string]struct {
		body []byte
		stop model.Stop
		err  string // a part of the error; "" = none
	}{
		"end_turn":                       {answered(ended, stop("end_turn")), model.StopEnd, ""},
		"stop_sequence":                  {answered(ended, stop("stop_sequence")), model.StopEnd, ""},
		"max_tokens":                     {answered(ended, stop("max_tokens")), model.StopLength, ""},
		"model_context_window_exceeded":  {answered(ended, stop("model_context_window_exceeded")), model.StopLength, ""},
		"guardrail_intervened":           {answered(ended, stop("guardrail_intervened")), model.StopFilter, ""},
		"content_filtered":               {answered(ended, stop("content_filtered")), model.StopFilter, ""},
		"tool_use without a call":        {answered(ended, stop("tool_use")), "", "none that can be read"},
		"a reason of a later version":    {answered(ended, stop("bored")), model.StopEnd, ""},
		"an event of a later version":    {answered(frame("somethingNew", `{"x":1}`), ended, stop("end_turn")), model.StopEnd, ""},
		"malformed_tool_use":             {answered(ended, stop("malformed_tool_use")), "", "malformed_tool_use"},
		"no messageStop":                 {answered(ended), "", "before the answer was complete"},
		"usage and no messageStop":       {answered(ended, frame("metadata", `{"usage":{"inputTokens":1,"outputTokens":2}}`)), "", "before the answer was complete"},
		"cut inside of a frame":          {append(answered(), stop("end_turn")[:20]...), "", "before the answer was complete"},
		"a changed byte of the payload":  {changed(answered(stop("end_turn")), "So", "so"), "", "damaged"},
		"a changed byte of the length":   {append([]byte{0, 1}, answered(stop("end_turn"))[2:]...), "", "damaged"},
		"an event that is not an object": {answered(frame("contentBlockDelta", `7`)), "", "not valid"},
		"a piece after the end":          {answered(ended, frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"x"}}`)), "", "that has ended"},
		"a piece of another kind":        {answered(frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{}"}}}`)), "", "a piece of toolUse in a block of text"},
		"a start that says nothing":      {answered(frame("contentBlockStart", `{"contentBlockIndex":1,"start":{}}`), stop("end_turn")), model.StopEnd, ""},
		"a start of a later version":     {answered(frame("contentBlockStart", `{"contentBlockIndex":1,"start":{"later":{"a":1}}}`), frame("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"reasoningContent":{"text":"x"}}}`), stop("end_turn")), model.StopEnd, ""},
		"a start without a value":        {answered(frame("contentBlockStart", `{"contentBlockIndex":1}`), stop("end_turn")), model.StopEnd, ""},
		"an event of another shape":      {answered(frame("somethingNew", `{"contentBlockIndex":"x"}`), frame("another", `7`), ended, stop("end_turn")), model.StopEnd, ""},
		"redacted bytes that are none":   {answered(frame("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"reasoningContent":{"redactedContent":"*"}}}`)), "", "not valid"},
		"a web page":                     {[]byte("<html>"), "", "text/html"},
		"nothing":                        {nil, "", "before the answer was complete"},
		"another object":                 {[]byte(`{"a":1}`), "", "not a message"},
	} {
		t.Run(name, func(t *testing.T) {
			got := decoding().Run(bytes.NewReader(tt.body))
			if tt.err != "" && !strings.Contains(got.Err, tt.err) || tt.err == "" && got.Err != fmt.Sprint(error(nil)) {
				t.Fatalf("error %s, want %q", got.Err, tt.err)
			}
			if got.Turn != nil && got.Turn.Stop != tt.stop {
				t.Errorf("%+v", got.Turn)
			}
			if tt.err == "" && got.Turn.Text() != "So" {
				t.Errorf("%+v", got.Turn)
			}
		})
	}
}

// changed replaces a text that a stream has once. Its checksums are wrong then.
func changed(stream []byte, old, with string) []byte {
	return bytes.Replace(stream, []byte(old), []byte(with), 1)
}

// An exception inside of a stream with status 200 says what can be done.
func TestExceptions(t *testing.T) { // M04 G03
	for name, class := range map[string]model.ErrorClass{
		"throttlingException":         model.Transient,
		"internalServerException":     model.Transient,
		"modelStreamErrorException":   model.Transient,
		"modelTimeoutException":       model.Transient,
		"serviceUnavailableException": model.Transient,
		"validationException":         model.Invalid,
		"accessDeniedException":       model.Transient, // not known to come in a stream
	} {
		turn, err := decode(bytes.NewReader(answered(exception(name, `{"message":"no"}`))), nil, func(model.Delta) error { return nil })
		var got *model.Error
		if !errors.As(err, &got) || got.Class != class || got.Code != name || got.Message != "no" || got.Status != 200 || turn.Text() != "So" || turn.Stop != "" {
			t.Errorf("%s: %+v with %+v, want %s", name, got, turn, class)
		}
	}
	for name, body := range map[string][]byte{
		"an error of the framing":        framed("", ":message-type", "error", ":error-code", "InternalFailure", ":error-message", "broken"),
		"an exception without a payload": framed("", ":message-type", "exception", ":exception-type", "throttlingException"),
		"an input that is too long":      exception("validationException", `{"message":"Input is too long for requested model."}`),
	} {
		want := map[string]model.ErrorClass{"an input that is too long": model.TooLong}[name]
		if want == "" {
			want = model.Transient
		}
		_, err := decode(bytes.NewReader(body), nil, func(model.Delta) error { return nil })
		var got *model.Error
		if !errors.As(err, &got) || got.Class != want || got.Code == "" {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

func TestLimits(t *testing.T) {
	var calls, blocks bytes.Buffer
	for i := range wire.MaxCalls + 1 {
		calls.Write(frame("contentBlockStart", fmt.Sprintf(`{"contentBlockIndex":%d,"start":{"toolUse":{"toolUseId":"c%d","name":"f"}}}`, i, i)))
	}
	for i := range wire.MaxBlocks + 1 {
		blocks.Write(frame("contentBlockDelta", fmt.Sprintf(`{"contentBlockIndex":%d,"delta":{"text":"x"}}`, i)))
	}
	large := frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"`+strings.Repeat("x", 1<<20)+`"}}`)
	for name, tt := range map[string]struct {
		src  io.Reader
		want string
	}{
		"calls":                         {&calls, "more than 1024 tool calls"},
		"blocks":                        {&blocks, "more than 4096 blocks"},
		"text":                          {bytes.NewReader(bytes.Repeat(large, 9)), "larger than 8 MiB"},
		"a frame whose length is a lie": {bytes.NewReader(binary.BigEndian.AppendUint32(nil, 0xffffff)), "before the answer was complete"},
	} {
		if got := decoding().Run(tt.src); !strings.Contains(got.Err, tt.want) {
			t.Errorf("%s: %s", name, got.Err)
		}
	}
	memory := memlimit.New(memlimit.Options{Run: 1 << 20}).Open("")
	if _, err := decode(bytes.NewReader(bytes.Repeat(large, 3)), memory, func(model.Delta) error { return nil }); err == nil {
		t.Error("an answer beyond the memory of the run is kept")
	}
}

// A text with citations goes back with them.
func TestCitations(t *testing.T) {
	const citation = `{"title":"t","location":{"web":{"url":"https://x"}}}`
	body := answered(frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"citation":`+citation+`}}`), frame("contentBlockStop", `{"contentBlockIndex":0}`), frame("messageStop", `{"stopReason":"end_turn"}`))
	got := decoding().Run(bytes.NewReader(body)).Turn
	if len(got.Items) != 1 || got.Text() != "So" || string(got.Items[0].Native.JSON) != `{"citationsContent":{"citations":[`+citation+`],"content":[{"text":"So"}]}}` {
		t.Errorf("%+v", got.Items)
	}
	whole := `{"output":{"message":{"role":"assistant","content":[{"citationsContent":{"content":[{"text":"So"},{"text":"!"}],"citations":[` + citation + `]}},{"video":{"format":"mp4"}}]}},"stopReason":"end_turn"}`
	got = decoding().Run(strings.NewReader(whole)).Turn
	if len(got.Items) != 2 || got.Text() != "So!" || got.Items[1].Kind != item.Other || string(got.Items[1].Native.JSON) != `{"video":{"format":"mp4"}}` {
		t.Errorf("%+v", got.Items)
	}
}

// Whatever comes, the turn has an end or an error, its deltas are those of its items, and
// it can be stored and sent back.
func FuzzDecode(f *testing.F) {
	f.Add(concat(answered(), frame("contentBlockStart", `{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"c","name":"f"}}}`),
		frame("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{\"a\":"}}}`), frame("messageStop", `{"stopReason":"max_tokens"}`)))
	f.Add(answered(exception("throttlingException", `{"message":"slow"}`)))
	f.Add([]byte(`{"output":{"message":{"content":[{"reasoningContent":{"reasoningText":{"text":"t","signature":"s"}}},{"toolUse":{"toolUseId":"c","name":"f","input":[1]}},{"text":7},7,{}]}},"stopReason":"tool_use","usage":{"inputTokens":-5,"outputTokens":99999999999}}`))
	f.Add([]byte{0, 0, 0, 16, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, body []byte) { dialect().CheckAnyAnswer(t, string(body)) })
}

// Events of any names and payloads, with checksums that are right.
func FuzzEvents(f *testing.F) {
	for _, name := range []string{"contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"} {
		f.Add(name, `{"contentBlockIndex":0,"start":{"toolResult":{"toolUseId":"c"}},"delta":{"toolResult":[{"text":"x"},null]},"stopReason":"end_turn","usage":{"inputTokens":1}}`, "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"x","redactedContent":"AAAA"}}}`)
	}
	f.Add("contentBlockStart", `{"start":{"toolUse":{"name":"f","type":"server_tool_use","x":1}}}`, "contentBlockDelta", `{"delta":{"citation":{"a":1}}}`)
	f.Fuzz(func(t *testing.T, first, one, second, other string) {
		if len(first)+len(second) > 1000 {
			return
		}
		stream := concat(frame(first, one), frame(second, other), frame(first, one), frame("messageStop", `{"stopReason":"end_turn"}`))
		dialect().CheckAnyAnswer(t, string(stream))
	})
}

// The dialect counts cached and written tokens beside the input. Each is counted once, and writes are not dropped.
func TestUsage(t *testing.T) { // M04 M06 P41
	for said, want := range map[string]model.Usage{
		`"usage":{"inputTokens":10,"outputTokens":5,"totalTokens":915,"cacheReadInputTokens":900}`: {Input: 910, CachedInput: 900, Output: 5, Total: 915},
		`"usage":{"inputTokens":10,"outputTokens":5,"cacheWriteInputTokens":700,"cacheDetails":[{"ttl":"5m","inputTokens":300},{"ttl":"1h","inputTokens":400}]}`: {
			Input: 710, CacheWrite: 700, CacheWrite1h: 400, Output: 5, Total: 715},
		`"usage":{"inputTokens":10,"outputTokens":5,"cacheDetails":[{"ttl":"1h","inputTokens":400}]}`: {Input: 10, Output: 5, Total: 15},
		`"usage":{"inputTokens":10,"outputTokens":5},"serviceTier":{"type":"flex"}`:                   {Input: 10, Output: 5, Total: 15, ServiceTier: model.TierFlex},
		`"usage":{"inputTokens":10,"outputTokens":5},"serviceTier":{"type":"default"}`:                {Input: 10, Output: 5, Total: 15},
	} {
		whole := []byte(`{"output":{"message":{"role":"assistant","content":[{"text":"So"}]}},"stopReason":"end_turn",` + said + `}`)
		streamed := answered(frame("contentBlockStop", `{"contentBlockIndex":0}`), frame("messageStop", `{"stopReason":"end_turn"}`), frame("metadata", "{"+said+"}"))
		decoding().Counts(t, want, string(whole), string(streamed))
	}
}

// Bytes of redacted reasoning that come in pieces are one block.
func TestRedactedReasoningInPieces(t *testing.T) { // P08
	secret := []byte("only the provider can read this")
	piece := func(part []byte) []byte {
		const begin = `{"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"`
		return frame("contentBlockDelta", begin+base64.StdEncoding.EncodeToString(part)+`"}}}`)
	}
	stream := concat(
		frame("messageStart", `{"role":"assistant"}`),
		piece(secret[:10]), piece(secret[10:]),
		frame("contentBlockStop", `{"contentBlockIndex":0}`),
		frame("messageStop", `{"stopReason":"end_turn"}`),
	)
	got := decoding().Run(bytes.NewReader(stream)).Turn
	want := `{"reasoningContent":{"redactedContent":"` + base64.StdEncoding.EncodeToString(secret) + `"}}`
	if len(got.Items) != 1 || string(got.Items[0].Native.JSON) != want {
		t.Errorf("%+v", got.Items)
	}
}
