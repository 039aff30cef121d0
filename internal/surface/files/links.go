package files

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Links makes signed URLs.
type Links struct {
	Signer *blob.Signer
	Public func() string    // public_url of the configuration; "" = none
	Own    string           // where the gateway can be reached if only its own machine can reach it; "" = elsewhere
	Now    func() time.Time // nil = time.Now
}

// Make returns a URL to download a file, and until when it is valid. The request that asks for it is nil for one that is
// not made in answer to a request, but by a run.
func (l *Links) Make(o *org.Org, bucket, path string, valid time.Duration, asked *http.Request) (string, time.Time, error) {
	base, err := l.base(asked)
	if err != nil {
		return "", time.Time{}, err
	}
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	until := now().Add(min(valid, blob.MaxSigned)).Truncate(time.Second)
	return base + l.Signer.Sign(blob.Ref{Org: o.ID, CreatedAt: o.CreatedAt, Bucket: bucket, Path: path}, http.MethodGet, until), until, nil
}

func (l *Links) base(asked *http.Request) (string, error) {
	public := l.Public()
	switch {
	case public != "":
		return strings.TrimSuffix(public, "/"), nil
	case asked != nil && isLoopback(asked.Host):
		return "http://" + asked.Host, nil
	case asked == nil && l.Own != "":
		return l.Own, nil
	}
	e := fault.New(fault.NotConfigured, "public_url_missing", "the gateway does not know its own URL, which signed URLs begin with; the operator sets public_url")
	e.Setting = "public_url"
	return "", e
}

// isLoopback reports whether a Host header names this machine.
func isLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && a.Unmap().IsLoopback()
}
