// Package bedrock speaks the dialect of Amazon Bedrock Converse: one API for the models
// of many vendors.
//
//	items, tools, options ── request.go, message.go, … ──► POST {base}/model/{id}/converse-stream
//	                                       │ signed with SigV4 (sign.go, chain.go)
//	     binary event stream (frames.go), or one JSON object
//	                                       │
//	             decode.go ──► blocks ──► model.Turn, one item for each block
//
// Blocks that the provider wants back unchanged (reasoning with its signature, redacted
// reasoning, tools that the provider ran itself, texts with citations) ride on their
// items as native forms. What only some models take is in models.go. The dialect is
// described at https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
package bedrock

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

var (
	_ model.Model      = (*Provider)(nil)
	_ model.Translator = (*Provider)(nil)
	_ model.ToolTaker  = (*Provider)(nil)
)

// Options are the settings of this dialect.
type Options struct {
	// Region is the AWS region of the signature, such as us-east-1. It is required unless
	// Credentials is nil.
	Region string
	// Credentials signs the requests; nil sends the key of the endpoint as a bearer token,
	// which is a Bedrock API key.
	Credentials Credentials
	// Fetch fetches the URLs of images and files, which the provider does not.
	Fetch wire.Fetch
}

// Provider is one provider of the dialect. It is safe for concurrent use.
type Provider struct {
	o      Options
	client *wire.Client
}

// New returns a Provider. It connects to nothing and looks for no credentials. A base URL
// that cannot be parsed shows as an error of class Target at every call.
func New(e wire.Endpoint, o Options) *Provider {
	if o.Credentials != nil {
		e.APIKey = nil
		e.Sign = signer{credentials: o.Credentials, region: o.Region}.sign
	}
	return &Provider{o: o, client: wire.New(model.DialectBedrock, e, nil)}
}

// Stream implements model.Model.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	full, release, err := p.o.Fetch.Into(ctx, req, wire.Remote) // Converse takes only bytes
	defer release()
	if err != nil {
		return nil, err
	}
	t := translate(full)
	t.LogHidden(ctx, p.client.Log(), req, "the names of their arguments")
	turn, err := p.send(ctx, req, t, emit)
	if claude.Outdated(ctx, p.client.Log(), err) {
		turn, err = p.send(ctx, req, t.withoutReasoning(), emit)
	}
	return turn, err
}

// send makes one call. A model that does not stream, or not with tools, is asked again
// for a whole answer: Bedrock says so before it calls the model.
func (p *Provider) send(ctx context.Context, req *model.Request, t *translation, emit func(model.Delta) error) (*model.Turn, error) {
	body, err := t.Write(t.request)
	if err != nil {
		return nil, err
	}
	call := func(operation string) (*model.Turn, error) {
		header := wire.StreamHeader()
		header.Set("Accept", "application/vnd.amazon.eventstream, application/json")
		return p.client.Turn(ctx, p.url(req.Model, operation), header, body, req, func(answer io.Reader) (*model.Turn, error) {
			return decode(answer, req.Memory, emit)
		})
	}
	turn, err := call("converse-stream")
	if unstreamed(err) {
		turn, err = call("converse")
	}
	return turn, refined(err)
}

// url returns the URL of an operation on a model. Names have ":" and ARNs "/", which are
// escaped within the path, in the request as in its signature.
func (p *Provider) url(name, operation string) *url.URL {
	u := p.client.URL("")
	escaped := u.EscapedPath()
	u.Path += "/model/" + name + "/" + operation
	u.RawPath = escaped + "/model/" + escapedName(name) + "/" + operation
	return u
}

// escapedName escapes everything but the unreserved characters of RFC 3986, as AWS
// requires: https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html.
func escapedName(name string) string {
	if name == "." || name == ".." { // a server or a proxy would take it for a step in the path
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
}

// unstreamed reports whether the provider refuses to stream.
func unstreamed(err error) bool {
	var refused *model.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		return false
	}
	return strings.Contains(refused.Message, "tool use in streaming mode") || strings.Contains(refused.Message, "unsupported for streaming")
}

// refined classifies errors that Bedrock gives the type of a wrong request, although they
// are about the model: another provider may serve it.
func refined(err error) error {
	var refused *model.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		return err
	}
	for _, words := range []string{"model identifier is invalid", "on-demand throughput", "doesn't support tool use", "doesn't support the model"} {
		if strings.Contains(strings.ReplaceAll(refused.Message, "’", "'"), words) {
			refused.Class = model.Target
		}
	}
	return err
}
