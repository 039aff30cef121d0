package load

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

const (
	okHead  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
	chunked = okHead + "Transfer-Encoding: chunked\r\n\r\n"
)

// readAnswer is what a connection does with an answer of status 200.
func readAnswer(r io.Reader, want string) (reusable bool, err error) {
	buf := bufio.NewReader(r)
	h, err := readHead(buf)
	if err != nil {
		return false, fault(NoAnswer, "%v", err)
	}
	return readBody(buf, h, &comparer{want: []byte(want)})
}

func TestRightAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, wire string
		reusable   bool
	}{
		{"with a length", okHead + "Content-Length: 10\r\n\r\n0123456789", true},
		{"in one chunk", chunked + "a\r\n0123456789\r\n0\r\n\r\n", true},
		{"in many chunks", chunked + "1\r\n0\r\n8\r\n12345678\r\n1\r\n9\r\n0\r\n\r\n", true},
		{"with chunk extensions and a trailer", chunked + "A;x=y\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n", true},
		{"after a 1xx answer", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + okHead + "content-length: 10\r\n\r\n0123456789", true},
		{"on a connection that closes", okHead + "Connection: close\r\nContent-Length: 10\r\n\r\n0123456789", false},
		{"ended by the close", okHead + "\r\n0123456789", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.wire), iotest.OneByteReader(strings.NewReader(tt.wire))} {
				reusable, err := readAnswer(r, "0123456789")
				if err != nil || reusable != tt.reusable {
					t.Errorf("reusable %v, error %v; want %v and none", reusable, err, tt.reusable)
				}
			}
		})
	}
}

func TestWrongAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, wire string
		kind       Kind
	}{
		{"a length that is not kept is a cut", okHead + "Content-Length: 10\r\n\r\n01234", Cut},
		{"a shorter length is a cut", okHead + "Content-Length: 5\r\n\r\n01234", Cut},
		{"a clean end of chunks too early is a cut", chunked + "5\r\n01234\r\n0\r\n\r\n", Cut},
		{"a connection closed inside a chunk is a cut", chunked + "a\r\n01234", Cut},
		{"a connection closed between chunks is a cut", chunked + "5\r\n01234\r\n", Cut},
		{"all bytes without the last chunk are a cut", chunked + "a\r\n0123456789\r\n", Cut},
		{"an early close of an answer without length is a cut", okHead + "\r\n01234", Cut},
		{"an empty body is a cut", okHead + "Content-Length: 0\r\n\r\n", Cut},
		{"another byte is an alteration", okHead + "Content-Length: 10\r\n\r\n0123X56789", Altered},
		{"another byte in a later chunk is an alteration", chunked + "5\r\n01234\r\n5\r\n5678X\r\n0\r\n\r\n", Altered},
		{"a byte more is an alteration", chunked + "b\r\n0123456789!\r\n0\r\n\r\n", Altered},
		{"a chunk more is an alteration", chunked + "a\r\n0123456789\r\n1\r\n!\r\n0\r\n\r\n", Altered},
		{"a chunk size that is none is an alteration", chunked + "5\r\n01234\r\nzz\r\n", Altered},
		{"a chunk longer than its size is an alteration", chunked + "5\r\n0123456789\r\n0\r\n\r\n", Altered},
		{"nothing at all is no answer", "", NoAnswer},
		{"half a head is no answer", "HTTP/1.1 200 OK\r\nContent-", NoAnswer},
		{"something else is no answer", "SSH-2.0-x\r\n\r\n", NoAnswer},
		{"another version of HTTP is no answer", "HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", NoAnswer},
		{"a length that is no number is no answer", okHead + "Content-Length: -1\r\n\r\n", NoAnswer},
		{"an unknown transfer coding is no answer", okHead + "Transfer-Encoding: gzip\r\n\r\n", NoAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.wire), iotest.OneByteReader(strings.NewReader(tt.wire))} {
				reusable, err := readAnswer(r, "0123456789")
				var f *Fault
				if !errors.As(err, &f) || f.Kind != tt.kind {
					t.Errorf("error %v, want a fault of kind %q", err, tt.kind)
				}
				if reusable && err != nil {
					// A cut that was announced properly leaves a usable connection,
					// anything else does not.
					if f.Kind != Cut || !strings.Contains(f.Detail, "the body ended") {
						t.Errorf("the connection counts as reusable after %v", err)
					}
				}
			}
		})
	}
}

// Whatever the bytes, the reader must not say "right" where the standard
// library reads another body.
func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte(okHead + "Content-Length: 10\r\n\r\n0123456789"))
	f.Add([]byte(chunked + "1\r\n0\r\n8\r\n12345678\r\n1\r\n9\r\n0\r\n\r\n"))
	f.Add([]byte(chunked + "a;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\n"))
	f.Add([]byte(okHead + "\r\n0123456789"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\n" + okHead + "Content-Length: 5\r\n\r\n01234"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const want = "0123456789"
		if _, err := readAnswer(bytes.NewReader(data), want); err != nil {
			return
		}
		r := bufio.NewReader(bytes.NewReader(data))
		resp, err := http.ReadResponse(r, nil)
		for err == nil && resp.StatusCode < 200 {
			resp, err = http.ReadResponse(r, nil)
		}
		if err != nil {
			return // the standard library is stricter; all bytes were compared all the same
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode != 204 && resp.StatusCode != 304 && string(body) != want {
			t.Errorf("taken as right, but the body is %q", body)
		}
	})
}
