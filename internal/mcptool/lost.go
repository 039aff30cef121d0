package mcptool

import (
	"net/http"
	"regexp"
	"strings"
)

// How servers say that they do not know a session. There is no common code: each SDK has its
// own text, and some of the texts come with HTTP status 200.

// beginning returns the part of an answer that is enough to decide what it means.
func beginning(body []byte) string { return string(body[:min(len(body), 512)]) }

// aboutSession reports whether the text of an answer with a status of 4xx says that the session
// is unknown or not initialized.
func aboutSession(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "session") || strings.Contains(text, "initializ") || strings.Contains(text, "initialis")
}

// uninitialized matches the beginning of what servers say to a request before initialize. It
// is not searched further on: the text of a tool may mention something else that is not
// initialized.
var uninitialized = regexp.MustCompile(`^(?:mcp error -?\d+: |error: |bad request: |invalid request: )*` +
	`(?:(?:the )?(?:mcp )?(?:(?:server|client|session) )?(?:is |was |has )?not (?:yet )?(?:been )?initiali[sz]ed` +
	`|(?:received |got )?(?:a )?request (?:received )?before (?:the )?(?:server |session |client )?(?:is |was )?initiali[sz]` +
	`|no valid session id)`)

// beforeInitialize reports whether the error is that of a server which waits for initialize, or
// does not know the id of the session, and has therefore executed nothing. The status of the
// answer may be 200.
func (e *rpcError) beforeInitialize() bool {
	text := strings.ToLower(strings.TrimSpace(e.Message))
	switch {
	case e.Code == codeInvalidParams && text == "invalid request parameters": // Python, which checks this first
		return true
	case e.Code == codeSessionNotFound && strings.HasPrefix(text, "session "):
		return true
	}
	return uninitialized.MatchString(text) || strings.Contains(text, "mcp-session-id")
}

// generic are texts that say nothing about the request.
var generic = map[string]bool{
	"": true, "error": true, "unknown error": true, "internal error": true, "server error": true,
	"invalid request": true, "invalid params": true, "parse error": true,
}

// vague reports whether the error says nothing about what became of the request, or mentions a
// session: the server may have lost it.
func (e *rpcError) vague() bool {
	text := strings.Trim(strings.ToLower(e.Message), " .!")
	if e.Code == codeInvalidRequest || generic[text] {
		return true
	}
	for status := http.StatusBadRequest; status < 600; status++ {
		if name := http.StatusText(status); name != "" && text == strings.ToLower(name) {
			return true
		}
	}
	return !e.aboutRequest() && strings.Contains(text, "session")
}
