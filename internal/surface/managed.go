package surface

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Managed turns a function that returns what to answer into an [Endpoint] of an API that manages
// something. The request is admitted to the store first. One that may change something is completed
// whether or not its client waits for the answer, and answered when every replica obeys the change: all
// changes of settings over HTTP pass here.
func Managed(log *slog.Logger, serve func(*http.Request, caller.Caller) (status int, body any, err error)) Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		if changes(r) {
			outlives, cancel, err := detach(r)
			if err != nil {
				return Failed(log, err)
			}
			defer cancel()
			r = outlives
		}
		leave, err := caller.Admit(r.Context())
		if err != nil {
			return Failed(log, err)
		}
		status, body, err := func() (int, any, error) {
			defer leave()
			return serve(r, caller)
		}()
		if changes(r) { // also after an error: something may have been stored
			caller.Settle(r.Context())
		}
		switch {
		case err != nil:
		case changes(r):
			err = WriteMade(w, caller, status, body)
		default:
			err = WriteStored(w, caller, status, body)
		}
		return Failed(log, err)
	}
}

// Deleted returns the answer to a request that has deleted something. object is its type; "" in the management API.
func Deleted(id, object string) any {
	return struct {
		ID      string `json:"id"`
		Object  string `json:"object,omitempty"`
		Deleted bool   `json:"deleted"`
	}{id, object, true}
}

// changes reports whether the request may change something.
func changes(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// changeTimeout is how long a change may wait until it is admitted, for the store, and
// for what follows from it.
const changeTimeout = 30 * time.Second

// Detached returns the context of a change: it does not end when the client leaves.
func Detached(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
}

// detach returns the request for a change, with a context that does not end
// when the client leaves: a revoked key that goes on working because its
// revoker did not wait would be worse than work for nobody. Until all of the
// body is here nothing is changed, and the client may still leave.
func detach(r *http.Request) (*http.Request, context.CancelFunc, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := Detached(r)
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, cancel, nil
}

// CheckCredentials refuses a credential in the open: a header with the name of one whose value does not
// refer to the org's vault, and such a parameter of the URL.
func CheckCredentials(target string, headers map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if credentialName(name) && !refersToVault(headers[name]) {
			return fault.New(fault.Unprocessable, "credential_in_the_open", "the header %s contains a credential; store it with PUT /api/secrets/NAME "+
				"and refer to it with secret:NAME", name).In("headers." + name)
		}
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil // for whoever reads the URL
	}
	for name := range u.Query() {
		if credentialName(name) {
			return fault.New(fault.Unprocessable, "credential_in_the_open", "the URL parameter %s looks like a credential; "+
				"store it with PUT /api/secrets/NAME and send it in a header with secret:NAME", name).In("url")
		}
	}
	return nil
}

// refersToVault reports whether the text is a reference to the org's vault, with
// nothing before it but a scheme such as "Bearer ".
func refersToVault(text string) bool {
	t, err := secret.Parse(text)
	return err == nil && t.Ref().Kind() == secret.Vault && regexp.MustCompile(`^([A-Za-z-]{1,20} )?$`).MatchString(t.Literal().Reveal())
}

func credentialName(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"auth", "cookie", "key", "token", "secret", "password", "session", "credential"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// NoVault refuses what needs the vault.
func NoVault(what string) error {
	return fault.New(fault.Conflict, "vault_off", "the vault of this gateway is off, so it cannot store %s: its key is missing. The operator restores the file "+
		"master.key in the data directory, or sets master_key to its content, and restarts the gateway", what)
}

// MaxAttempts is how often a change is made while other requests change the same object.
const MaxAttempts = 20

// Repeat makes a change again while it fails because another request changed the object after it was read.
func Repeat(change func() (int, any, error)) (status int, answer any, err error) {
	for range MaxAttempts {
		if status, answer, err = change(); !errors.Is(err, org.ErrChanged) {
			break
		}
	}
	return status, answer, err
}
