package fake

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The relay cases. Client and upstream agree on the request bodies and, for each of
// them, on the one right answer, to the byte. An answer repeats the tag, the length
// and the checksum of its request. So one comparison at the client finds a proxy that
// changes a request, mixes up answers, or changes or cuts an answer:
//
//	client    RequestBody("s03v1", …) ──► proxy ──► upstream: ReadRequest(body) = Sum
//	client ◄── compare with JSONAnswer(Sum) or StreamAnswer(Sum) ◄── proxy ◄── upstream

// ModelName is the model name of every request.
const ModelName = "bench-model"

// StreamChunks is the number of chunks of a stream, [DONE] not counted.
const StreamChunks = 200

// The paths of the requests.
const (
	ChatPath      = "/v1/chat/completions"
	ResponsesPath = "/v1/responses"
)

// LoopOff is the header field that switches the loop off for a request. Requests for
// responses have the loop without it, also of an org without MCP servers.
const LoopOff = "Turnpike-Mcp-Disabled: true"

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

// RequestBody returns a chat completion request of at least size bytes; the smallest
// has about 200. The tag must be ASCII without quotes.
func RequestBody(tag string, size int, stream bool) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"` + ModelName + `",` + tagKey + tag + `",`)
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

// ResponsesBody returns a small request for a response.
func ResponsesBody(tag string) []byte {
	return []byte(`{"model":"` + ModelName + `",` + tagKey + tag + `","temperature":0.2,"instructions":"You are a short-spoken assistant.",` +
		`"input":[{"role":"user","content":[{"type":"input_text","text":"What is 2+3?"}]}]}`)
}

// writeTurn adds one earlier message of at most about 2.5 KB. Its text has escapes,
// as real prompts do.
func writeTurn(b *bytes.Buffer, room int) {
	const line = `The \"quick\" brown fox\njumps over the lazy dog \u00e9 0123456789 `
	n := min(max(room/len(line), 1), 2500/len(line))
	b.WriteString(`,{"role":"user","content":"`)
	b.WriteString(strings.Repeat(line, n))
	b.WriteString(`"}`)
}

// ReadRequest returns the sum of a request body and whether it asks for a stream. It
// fails for a body that neither [RequestBody] nor [ResponsesBody] made.
func ReadRequest(body []byte) (sum Sum, stream bool, err error) {
	head := body[:min(len(body), headBytes)]
	_, rest, found := bytes.Cut(head, []byte(tagKey))
	tag, _, closed := bytes.Cut(rest, []byte(`"`))
	if !found || !closed {
		return Sum{}, false, errors.New("request body has no tag")
	}
	sum = Sum{Tag: string(tag), Bytes: len(body), CRC: crc32.ChecksumIEEE(body)}
	return sum, bytes.Contains(head, []byte(streamKey)), nil
}

// JSONAnswer returns the whole answer to a request that asked for no stream.
func JSONAnswer(s Sum) []byte {
	b := make([]byte, 0, 512)
	b = append(b, `{"id":"chatcmpl-`...)
	b = append(b, s.Tag...)
	b = append(b, `","object":"chat.completion","created":1750000000,"model":"`+ModelName+`","system_fingerprint":"`...)
	b = s.append(b)
	b = append(b, `","choices":[{"index":0,"message":{"role":"assistant","content":"2+3 is 5.","refusal":null},"logprobs":null,"finish_reason":"stop"}],`...)
	return append(b, `"usage":{"prompt_tokens":24,"completion_tokens":8,"total_tokens":32}}`...)
}

// ResponsesAnswer returns the whole answer to a request for a response.
func ResponsesAnswer(s Sum) []byte {
	b := make([]byte, 0, 768)
	b = append(b, `{"id":"resp_`...)
	b = append(b, s.Tag...)
	b = append(b, `","object":"response","created_at":1750000000,"status":"completed","model":"`+ModelName+`","error":null,"incomplete_details":null,"output":[{"id":"msg_`...)
	b = s.append(b)
	b = append(b, `","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"2+3 is 5.","annotations":[]}]}],`...)
	return append(b, `"usage":{"input_tokens":24,"output_tokens":8,"total_tokens":32},"temperature":0.2,"tools":[]}`...)
}

// StreamAnswer returns the whole answer to a request that asked for a stream:
// [StreamChunks] server-sent events, each ended by an empty line, then [DONE].
func StreamAnswer(s Sum) []byte {
	b := make([]byte, 0, 256*StreamChunks)
	for i := range StreamChunks {
		b = append(b, `data: {"id":"chatcmpl-`...)
		b = append(b, s.Tag...)
		b = append(b, `","object":"chat.completion.chunk","created":1750000000,"model":"`+ModelName+`","system_fingerprint":"`...)
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

// Upstream returns a provider without latency. It reads the whole request and answers with
// [JSONAnswer], [StreamAnswer] or [ResponsesAnswer]; it flushes each event of a stream. Requests must have key as bearer token: a proxy that forwards the key of its
// client is refused.
func Upstream(key string) http.Handler {
	mux := http.NewServeMux()
	serve := func(path string, whole func(Sum) []byte) {
		mux.HandleFunc("POST "+path, authorized(key, func(w http.ResponseWriter, r *http.Request) {
			body, err := readAll(r)
			if err != nil {
				refuse(w, http.StatusBadRequest, err)
				return
			}
			sum, stream, err := ReadRequest(body)
			switch {
			case err != nil:
				refuse(w, http.StatusBadRequest, err)
			case stream:
				writeEvents(w, StreamAnswer(sum))
			default:
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(whole(sum)) // the caller may be gone
			}
		}))
	}
	serve(ChatPath, JSONAnswer)
	serve(ResponsesPath, ResponsesAnswer)
	return mux
}

// authorized refuses requests without key as bearer token.
func authorized(key string, h http.HandlerFunc) http.HandlerFunc {
	want := "Bearer " + key
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != want {
			refuse(w, http.StatusUnauthorized, errors.New("not the provider's key"))
			return
		}
		h(w, r)
	}
}

// writeEvents writes a stream, one flush for each event.
func writeEvents(w http.ResponseWriter, stream []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	ctl := http.NewResponseController(w)
	for event := range bytes.SplitAfterSeq(stream, []byte("\n\n")) {
		if len(event) == 0 {
			continue
		}
		if _, err := w.Write(event); err != nil {
			return
		}
		if ctl.Flush() != nil {
			return
		}
	}
}

// SilentTag is the prefix of the tags of requests that [PausingUpstream] pauses before
// the first byte of the answer.
const SilentTag = "silent"

// firstEvents is how many events of a stream a PausingUpstream sends before it pauses.
const firstEvents = 3

// FirstPart returns what a [PausingUpstream] sends of a stream before it pauses.
func FirstPart(stream []byte) []byte {
	end := 0
	for range firstEvents {
		end += bytes.Index(stream[end:], []byte("\n\n")) + 2
	}
	return stream[:end]
}

// PausingUpstream returns a provider that sends [FirstPart] of each stream and then
// pauses until its caller disconnects or POST /resume ends the pause of all streams,
// also of later ones. Requests must have key as bearer token.
func PausingUpstream(key string) http.Handler {
	resumed := make(chan struct{})
	resume := sync.OnceFunc(func() { close(resumed) })
	mux := http.NewServeMux()
	mux.HandleFunc("POST /resume", func(http.ResponseWriter, *http.Request) { resume() })
	mux.HandleFunc("POST "+ChatPath, authorized(key, func(w http.ResponseWriter, r *http.Request) {
		body, err := readAll(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		sum, stream, err := ReadRequest(body)
		if err != nil || !stream {
			refuse(w, http.StatusBadRequest, errors.Join(err, errors.New("this upstream only streams")))
			return
		}
		whole := StreamAnswer(sum)
		begin := FirstPart(whole)
		if !strings.HasPrefix(sum.Tag, SilentTag) {
			writeEvents(w, begin)
		}
		select {
		case <-resumed:
			writeEvents(w, whole[len(begin):])
		case <-r.Context().Done():
		}
	}))
	return mux
}

// Baseline returns the reference of the relay cases: an [httputil.ReverseProxy] to
// base (scheme://host:port) that replaces the key of the client by that of the
// provider.
//
// It reads the whole request body before it forwards the request. Without that, some
// fast streams are cut: the HTTP server closes the body of a request while the
// transport may still read it.
func Baseline(base *url.URL, key string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			r.Out.Header.Set("Authorization", "Bearer "+key)
		},
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 256,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readAll(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		proxy.ServeHTTP(w, r)
	})
}
