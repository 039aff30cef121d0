package egress

import (
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Unpack returns a reader of a body without the compression that the header of its response names: gzip or deflate. No
// client of this package asks for compression, and some servers compress all the same. The caller limits how much it
// reads, because a small body can expand to a large one. The error says that the body is not what the header says, or
// that the encoding is not supported.
func Unpack(h http.Header, body io.Reader) (io.Reader, error) {
	coding := strings.ToLower(strings.TrimSpace(h.Get("Content-Encoding")))
	var unpacked io.Reader
	var err error
	switch coding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		unpacked, err = gzip.NewReader(body)
	case "deflate":
		unpacked, err = zlib.NewReader(body)
	default:
		return nil, fmt.Errorf("the answer has the content encoding %.40q, which was not asked for", coding)
	}
	if err != nil {
		return nil, fmt.Errorf("the answer is not %s, as its header says", coding)
	}
	return unpacked, nil
}
