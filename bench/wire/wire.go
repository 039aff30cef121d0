// Package wire is what the load generator and the fake upstream agree on: the
// request bodies that are sent and, for each of them, the one answer that is
// right, to the byte.
//
// An answer repeats the request's tag, its length and its checksum. So a proxy
// that changes a request, hands an answer to the wrong caller, or changes or
// cuts an answer is found by one comparison at the client:
//
//	client    Body("s03v1", …) ──► proxy ──► upstream: Read(body) = Sum
//	client ◄── compare with JSON(Sum) or Stream(Sum) ◄── proxy ◄── upstream
package wire

import (
	"bytes"
	"errors"
	"hash/crc32"
	"strconv"
	"strings"
)

// Model is the model name of every request.
const Model = "bench-model"

// StreamChunks is the number of chunks of a stream, [DONE] not counted.
const StreamChunks = 200

// Path is the path that is asked for, at the proxies and at the upstream.
const Path = "/v1/chat/completions"

const (
	tagKey    = `"user":"`
	streamKey = `"stream":true`

	// headBytes is how far into a body the upstream looks for the two keys.
	headBytes = 128
)

// Sum is what an answer says about its request.
type Sum struct {
	Tag   string // tells the requests of one load apart
	Bytes int    // length of the request body
	CRC   uint32 // its checksum
}

// Body returns a chat completion request of at least size bytes (a small one
// has about 200). The tag is repeated by the answer; it is plain ASCII.
func Body(tag string, size int, stream bool) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"` + Model + `",` + tagKey + tag + `",`)
	if stream {
		b.WriteString(streamKey + `,`)
	}
	b.WriteString(`"temperature":0.2,"messages":[{"role":"system","content":"You are a short-spoken assistant."}`)
	for b.Len() < size-2 {
		writeTurn(&b, size-2-b.Len())
	}
	b.WriteString(`,{"role":"user","content":"What is 2+3?"}]}`)
	return b.Bytes()
}

// writeTurn adds one earlier message of at most about 2.5 KB: text with the
// escapes that real prompts are full of.
func writeTurn(b *bytes.Buffer, room int) {
	const line = `The \"quick\" brown fox\njumps over the lazy dog \u00e9 0123456789 `
	n := min(max(room/len(line), 1), 2500/len(line))
	b.WriteString(`,{"role":"user","content":"`)
	b.WriteString(strings.Repeat(line, n))
	b.WriteString(`"}`)
}

// Read returns the sum of a request body and whether it asks for a stream. It
// fails when the body was not made by [Body] or has lost its beginning.
func Read(body []byte) (sum Sum, stream bool, err error) {
	head := body[:min(len(body), headBytes)]
	_, rest, found := bytes.Cut(head, []byte(tagKey))
	tag, _, closed := bytes.Cut(rest, []byte(`"`))
	if !found || !closed {
		return Sum{}, false, errors.New("request body has no tag")
	}
	sum = Sum{Tag: string(tag), Bytes: len(body), CRC: crc32.ChecksumIEEE(body)}
	return sum, bytes.Contains(head, []byte(streamKey)), nil
}

// JSON returns the whole answer to a request that asked for no stream.
func JSON(s Sum) []byte {
	b := make([]byte, 0, 512)
	b = append(b, `{"id":"chatcmpl-`...)
	b = append(b, s.Tag...)
	b = append(b, `","object":"chat.completion","created":1750000000,"model":"`+Model+`","system_fingerprint":"`...)
	b = s.append(b)
	b = append(b, `","choices":[{"index":0,"message":{"role":"assistant","content":"2+3 is 5.","refusal":null},"logprobs":null,"finish_reason":"stop"}],`...)
	return append(b, `"usage":{"prompt_tokens":24,"completion_tokens":8,"total_tokens":32}}`...)
}

// Stream returns the whole answer to a request that asked for a stream:
// [StreamChunks] server-sent events, each ended by an empty line, then [DONE].
func Stream(s Sum) []byte {
	b := make([]byte, 0, 256*StreamChunks)
	for i := range StreamChunks {
		b = append(b, `data: {"id":"chatcmpl-`...)
		b = append(b, s.Tag...)
		b = append(b, `","object":"chat.completion.chunk","created":1750000000,"model":"`+Model+`","system_fingerprint":"`...)
		b = s.append(b)
		b = append(b, `","choices":[{"index":0,"delta":`...)
		b = appendDelta(b, i)
		b = append(b, "}]}\n\n"...)
	}
	return append(b, "data: [DONE]\n\n"...)
}

func appendDelta(b []byte, i int) []byte {
	switch i {
	case 0:
		return append(b, `{"role":"assistant","content":""},"finish_reason":null`...)
	case StreamChunks - 1:
		return append(b, `{},"finish_reason":"stop"`...)
	}
	b = append(b, `{"content":" word`...)
	b = strconv.AppendInt(b, int64(i), 10)
	return append(b, `"},"finish_reason":null`...)
}

func (s Sum) append(b []byte) []byte {
	b = append(b, "fp_"...)
	b = strconv.AppendInt(b, int64(s.Bytes), 10)
	b = append(b, '_')
	return strconv.AppendUint(b, uint64(s.CRC), 16)
}
