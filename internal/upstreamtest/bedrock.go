package upstreamtest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/script"
)

// bedrockDialect is Amazon Bedrock Converse, with a Claude model behind it: an answer is
// one of the Messages API in other words, and so is what the model refuses.
type bedrockDialect struct {
	claude  *anthropicDialect
	model   string // of the request
	streams bool   // the request asks for a stream
}

func newBedrock() *bedrockDialect { return &bedrockDialect{claude: newAnthropic()} }

func (*bedrockDialect) path() string { return "/converse-stream" }

// operation finds the model and the operation in a path.
var operation = regexp.MustCompile(`/model/(.+)/(converse|converse-stream)$`)

// serves implements inPath.
func (*bedrockDialect) serves(path string) bool { return operation.MatchString(path) }

// at implements inPath.
func (d *bedrockDialect) at(path string) dialect {
	m := operation.FindStringSubmatch(path)
	name, err := url.PathUnescape(m[1])
	if err != nil {
		name = m[1]
	}
	return &bedrockDialect{claude: d.claude, model: name, streams: m[2] == "converse-stream"}
}

// ask implements inPath.
func (d *bedrockDialect) ask(a *asked) { a.Model, a.Stream = d.model, d.streams }

func (*bedrockDialect) name() string { return "bedrock" }

// bedrockError returns the type of an error by its status, from
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
func bedrockError(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UnrecognizedClientException"
	case http.StatusForbidden:
		return "AccessDeniedException"
	case http.StatusNotFound:
		return "ResourceNotFoundException"
	case http.StatusRequestTimeout:
		return "ModelTimeoutException"
	case http.StatusFailedDependency:
		return "ModelErrorException"
	case http.StatusTooManyRequests:
		return "ThrottlingException"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableException"
	}
	if status >= 500 {
		return "InternalServerException"
	}
	return "ValidationException"
}

// failed returns an error answer. Its type is in the header alone.
func (*bedrockDialect) failed(f script.Failure) (http.Header, []byte) {
	header := f.Header()
	kind := f.Kind
	if kind == "" {
		kind = bedrockError(f.Status)
	}
	header.Set("X-Amzn-Errortype", kind+":http://internal.amazon.com/coral/com.amazon.bedrock/")
	header.Set("X-Amzn-Requestid", "script")
	return header, encode(object{"message": f.Words()})
}

func (*bedrockDialect) refuse(r refusal) []byte { return encode(object{"message": r.message}) }

func (d *bedrockDialect) answer(number int, a asked, t script.Turn) answer {
	inner, _ := d.claude.answer(number, a, t).(*anthropicAnswer) // which it always is
	return &bedrockAnswer{inner: inner}
}

// bedrockAnswer says what a Messages answer says in the words of Converse.
type bedrockAnswer struct{ inner *anthropicAnswer }

func (s *bedrockAnswer) take(st script.Step) []sseEvent { return converted(s.inner.take(st)) }

func (s *bedrockAnswer) end() []sseEvent { return converted(s.inner.end()) }

// fail is an exception inside of the stream.
func (s *bedrockAnswer) fail(f script.Failure) []sseEvent {
	kind := bedrockError(f.Status)
	return []sseEvent{{exceptionName + strings.ToLower(kind[:1]) + kind[1:], encode(object{"message": f.Words()})}}
}

func (s *bedrockAnswer) whole() []byte {
	var content []object
	for _, b := range s.inner.turn.blocks {
		content = append(content, converseBlock(b))
	}
	if content == nil {
		content = []object{}
	}
	return encode(object{
		"output":     object{"message": object{"role": "assistant", "content": content}},
		"stopReason": converseReason(s.inner.reason()), "usage": s.usage(), "metrics": object{"latencyMs": 1},
	})
}

func (s *bedrockAnswer) usage() object {
	return converseUsage(s.inner.usage.Input, s.inner.usage.Output)
}

func converseUsage(input, output int64) object {
	return object{"inputTokens": input, "outputTokens": output, "totalTokens": input + output, "serverToolUsage": object{}}
}

// converseReason returns a stop reason as Converse has it.
func converseReason(reason string) string {
	if reason == "refusal" {
		return "content_filtered"
	}
	return reason
}

// converseBlock returns a block of the Messages API as one of Converse.
func converseBlock(b object) object {
	switch b["type"] {
	case "thinking":
		return object{"reasoningContent": object{"reasoningText": object{"text": b["thinking"], "signature": b["signature"]}}}
	case "redacted_thinking":
		return object{"reasoningContent": object{"redactedContent": redactedBytes(b["data"].(string))}}
	case "tool_use":
		return object{"toolUse": object{"toolUseId": b["id"], "name": b["name"], "input": b["input"]}}
	}
	return object{"text": b["text"]}
}

// redactedBytes returns the data of redacted thinking as Converse has it: in base64 once
// more.
func redactedBytes(data string) string { return base64.StdEncoding.EncodeToString([]byte(data)) }

// converted returns events of the Messages API as those of Converse.
func converted(events []sseEvent) []sseEvent {
	var out []sseEvent
	add := func(name string, data object) {
		data["p"] = "abcdefghijklmnopqrstuvwxyz"[:1+len(out)%26] // padding, as the service sends it
		out = append(out, sseEvent{name, encode(data)})
	}
	for _, e := range events {
		v, _ := decode(e.data) // was encoded here
		o, _ := v.(object)
		index := o["index"]
		switch e.name {
		case "message_start":
			add("messageStart", object{"role": "assistant"})
		case "content_block_start":
			block, _ := o["content_block"].(object)
			switch block["type"] {
			case "tool_use":
				add("contentBlockStart", object{"contentBlockIndex": index, "start": object{"toolUse": object{"toolUseId": block["id"], "name": block["name"]}}})
			case "redacted_thinking": // no start: its bytes are a delta
				data, _ := block["data"].(string)
				add("contentBlockDelta", object{"contentBlockIndex": index, "delta": object{"reasoningContent": object{"redactedContent": redactedBytes(data)}}})
			}
		case "content_block_delta":
			d, _ := o["delta"].(object)
			add("contentBlockDelta", object{"contentBlockIndex": index, "delta": converseDelta(d)})
		case "content_block_stop":
			add("contentBlockStop", object{"contentBlockIndex": index})
		case "message_delta":
			d, _ := o["delta"].(object)
			reason, _ := d["stop_reason"].(string)
			add("messageStop", object{"stopReason": converseReason(reason)})
			u, _ := o["usage"].(object)
			add("metadata", object{"usage": converseUsage(number(u["input_tokens"]), number(u["output_tokens"])), "metrics": object{"latencyMs": 1}})
		}
	}
	return out
}

func number(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64() // was encoded here
	return i
}

func converseDelta(d object) object {
	switch d["type"] {
	case "thinking_delta":
		return object{"reasoningContent": object{"text": d["thinking"]}}
	case "signature_delta":
		return object{"reasoningContent": object{"signature": d["signature"]}}
	case "input_json_delta":
		return object{"toolUse": object{"input": d["partial_json"]}}
	}
	return object{"text": d["text"]}
}

func (*bedrockDialect) contentType() string { return "application/vnd.amazon.eventstream" }

// exceptionName begins the name of an event that is an exception.
const exceptionName = "exception "

// frame writes an event as a message of AWS's binary framing: lengths, their checksum,
// headers, payload, checksum of it all.
func (*bedrockDialect) frame(e sseEvent) []byte {
	kind, label, name := "event", ":event-type", e.name
	if exception, ok := strings.CutPrefix(e.name, exceptionName); ok {
		kind, label, name = "exception", ":exception-type", exception
	}
	var headers []byte
	for _, h := range [][2]string{{label, name}, {":content-type", "application/json"}, {":message-type", kind}} {
		headers = append(append(headers, byte(len(h[0]))), h[0]...)
		headers = append(headers, 7) // a string
		headers = append(binary.BigEndian.AppendUint16(headers, uint16(len(h[1]))), h[1]...)
	}
	const around = 16 // two lengths and two checksums
	out := binary.BigEndian.AppendUint32(nil, uint32(around+len(headers)+len(e.data)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(headers)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	out = append(append(out, headers...), e.data...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
}
