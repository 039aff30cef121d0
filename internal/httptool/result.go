package httptool

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/tool"
)

// most is how many bytes of a response are read: MaxCharacters, and a sign that there are more.
func (t *Tool) most() int {
	if t.dispatch != nil {
		return t.dispatch.mostBytes()
	}
	return utf8.UTFMax*t.settings.MaxCharacters + 1
}

// read returns the result of a response. An error means that the response is not complete.
func (t *Tool) read(resp *http.Response) (*tool.Result, error) {
	body, err := egress.Unpack(resp.Header, resp.Body)
	if err != nil {
		r := tool.Error("the endpoint answered with " + statusText(resp.StatusCode) + ", but its content cannot be read: " + err.Error())
		return &r, nil
	}
	data, err := io.ReadAll(io.LimitReader(body, int64(t.most())))
	if err != nil {
		return nil, err
	}
	data = inUTF8(data, resp.Header)
	if t.dispatch != nil {
		data = contentOf(data)
	}
	text, ok := textOf(data, t.settings.MaxCharacters)
	switch {
	case !ok:
		text = "[content that is not text in UTF-8 or in a known charset: " + mediaType(resp.Header) + "]"
	case strings.TrimSpace(text) == "":
		text = ""
	}
	var r tool.Result
	switch {
	case resp.StatusCode/100 != 2:
		r = tool.Error("the endpoint answered with " + statusText(resp.StatusCode) + prefixed(": ", text))
	case !ok:
		r = tool.Error("the endpoint answered with " + statusText(resp.StatusCode) + " and " + text)
	case text == "":
		r = tool.Text("[no content: the endpoint answered with " + statusText(resp.StatusCode) + "]")
	default:
		r = tool.Text(text)
	}
	return &r, nil
}

// inUTF8 returns the data in UTF-8, if it is not and the header names a charset that is known; the data as it is otherwise.
func inUTF8(data []byte, h http.Header) []byte {
	_, parameters, _ := mime.ParseMediaType(h.Get("Content-Type"))
	encoding, name := charset.Lookup(parameters["charset"])
	if encoding == nil || name == "utf-8" || utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return data
	}
	decoded, err := encoding.NewDecoder().Bytes(data)
	if err != nil {
		return data
	}
	return decoded
}

// textOf returns at most so many characters of a text, with a notice if there are more; false if
// data is not UTF-8.
func textOf(data []byte, most int) (string, bool) {
	text, count := string(data), 0
	for i, r := range text {
		if count == most {
			return text[:i] + fmt.Sprintf("\n\n[Truncated: the response is longer than %d characters]", most), true
		}
		if _, size := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && size == 1 || r == 0 {
			return "", false
		}
		count++
	}
	return text, true
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// statusText returns a status such as 404 Not Found.
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprint(status, " ", http.StatusText(status)))
}

// mediaType returns the media type of a response, without parameters.
func mediaType(h http.Header) string {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || len(kind) > 100 {
		return "unknown type"
	}
	return kind
}
