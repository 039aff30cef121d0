// Package files is the API for files: those of keys under ids, as in OpenAI's API, and those in the buckets of an org, with
// URLs that give a file to anyone who has them.
//
//	POST|GET /v1/files, GET|DELETE /v1/files/{id}, GET /v1/files/{id}/content
//	GET /v1/containers/{container}/files, …/{id}, …/{id}/content    those that code has made in a container
//
//	GET /api/buckets/{name}/files            list
//	GET|PUT|DELETE /api/buckets/{name}/files/{path}
//	POST /api/buckets/{name}/signed-urls ──► GET /v1/blobs/{id}?exp=&sig=   without a key
//
// A key can do over this API what its runs can do with the tools storage_read and storage_write.
package files

import (
	"context"
	"log/slog"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/spool"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Options are what a Handler needs. All but Now are required.
type Options struct {
	Files   *file.Library
	Buckets blob.Buckets
	Org     func(id string) (*org.Org, bool) // an org as it is now; false = there is none
	Links   *Links
	Bodies  *spool.Spool // holds uploads until they are complete
	// Record adds a row to the audit log of an org, and returns when it is stored.
	Record func(ctx context.Context, orgID string, e audit.Entry) error
	Log    *slog.Logger
	Now    func() time.Time // nil = time.Now
}

// Handler answers the API.
type Handler struct {
	o         Options
	transfers transfers
}

// New returns a Handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Handler{o: o}
}

// Routes returns the routes. The endpoints of a nil Handler must not be called.
func (h *Handler) Routes() []surface.Route {
	readers := surface.Group{
		Errors: surface.ManagementErrors(), Roles: surface.RunReaders, MaxBody: surface.MaxManagementBody,
	}
	writers := readers.By(surface.Runners)
	uploads := writers.Open()
	uploads.AnyType, uploads.Spools, uploads.MaxBody = true, true, 1<<40
	if h != nil {
		uploads.MaxBody = h.o.Bodies.MaxBody()
	}
	return append(h.uploadRoutes(),
		readers.Route("GET /api/buckets", h.ListBuckets()),
		readers.Route("GET /api/buckets/{name}/files", h.ListFiles()),
		readers.Open().Route("GET /api/buckets/{name}/files/{path...}", h.Download()),
		uploads.Route("PUT /api/buckets/{name}/files/{path...}", h.Upload()),
		writers.Route("DELETE /api/buckets/{name}/files/{path...}", h.Delete()),
		readers.Route("POST /api/buckets/{name}/signed-urls", h.SignURL()),
		readers.By(surface.Signed).Route("GET "+blob.SignedPath+"{id}", h.Signed()),
	)
}

// open returns a bucket of an org.
func (h *Handler) open(ctx context.Context, orgID, name string) (blob.Bucket, error) {
	return h.o.Buckets.Open(ctx, orgID, name)
}
