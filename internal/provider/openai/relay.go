package openai

import (
	"context"
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/model"
)

// Relay implements model.Relayer. Nothing is repeated, nothing is read of the
// answer, and there is no deadline but the caller's.
func (p *Provider) Relay(ctx context.Context, req *model.RelayRequest) (*model.RelayResponse, error) {
	if p.err != nil {
		return nil, p.err
	}
	to := p.chat
	if req.Path != chatPath {
		to = below(p.template.URL, req.Path)
	}
	header := req.Header
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Accept-Encoding") == "" {
		header.Set("Accept-Encoding", "identity") // else the transport asks for gzip and undoes it
	}
	resp, err := p.send(ctx, to, header, req.Body)
	if err != nil {
		return nil, callError(ctx, ctx, err)
	}
	endToEnd(resp.Header)
	return &model.RelayResponse{
		Status: resp.StatusCode, Header: resp.Header, Body: resp.Body, Length: resp.ContentLength,
	}, nil
}

// endToEnd removes what concerns only this connection, and what the provider
// says of its own site: cookies, other ways to reach it, how browsers shall
// treat it, who may read its answers. Passed on, it would be said of the gateway.
func endToEnd(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range [...]string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Set-Cookie", "Set-Cookie2",
		"Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", "Nel", "Report-To", "Reporting-Endpoints",
		"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers",
	} {
		delete(h, name)
	}
}
