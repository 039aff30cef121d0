// Package storagetool is the built-in tools storage_read and storage_write: models list, read and write the files in
// the buckets of their org.
//
//	model ─► Source ─► blob.Buckets ─► disk or s3
//	             └──► a signed URL, for a file that is not text
//
//	source := storagetool.New(storagetool.Options{Org: "acme", Settings: settings, Buckets: buckets, Link: link, Log: log})
//
// What is missing or wrong is a result with the JSON {"error": "…", "setting": "…"}; the run goes on.
package storagetool

import (
	"context"
	"log/slog"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// MaxCharacters is how much text one call of storage_read returns.
const MaxCharacters = 50_000

// Options are what the tools need. All are required.
type Options struct {
	Org      string
	Settings func() []org.Bucket // the buckets of the org, as they are configured now
	Buckets  blob.Buckets
	// Link returns a URL that gives the file to anyone who has it, for a limited time. The error is a *MissingError if
	// the operator has to set something first.
	Link func(ctx context.Context, bucket, path string) (Link, error)
	Log  *slog.Logger
}

// Link is a URL that is valid for a limited time.
type Link struct {
	URL       string
	ExpiresAt time.Time
}

// MissingError reports that something is not configured. Its text and its setting are for the model.
type MissingError struct{ Why, Setting string }

func (e *MissingError) Error() string { return e.Why }

// Source lists the tools of one org.
type Source struct{ o Options }

// New returns the tools.
func New(o Options) *Source { return &Source{o} }

// List implements [tool.Source].
func (s *Source) List(context.Context) ([]tool.Tool, error) {
	return []tool.Tool{reader{s.o}, writer{s.o}}, nil
}
