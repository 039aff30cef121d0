package surface

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// WantsJSON reports whether a request takes an answer in JSON and no event stream. A request without the header Accept takes
// both.
func WantsJSON(h http.Header) bool {
	takesJSON := false
	for _, one := range strings.Split(strings.Join(h.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(one)
		if q, bad := strconv.ParseFloat(params["q"], 64); err != nil || bad == nil && q <= 0 {
			continue
		}
		switch kind {
		case "text/event-stream", "text/*", "*/*":
			return false
		case "application/json", "application/*":
			takesJSON = true
		}
	}
	return takesJSON
}
