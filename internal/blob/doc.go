// Package blob is the port to the files of orgs: what the buckets of all kinds do alike.
//
//	tool, API ─► Bucket ─► disk (files in the data directory)
//	                  └──► s3   (an S3 service)
//
//	b, err := buckets.Open(ctx, "reports")              // of one org
//	info, err := b.Put(ctx, "2026/january.txt", strings.NewReader("…"))
//	page, err := b.List(ctx, blob.Query{Prefix: "2026/", Limit: 100})
//
// The name space of a bucket is that of its org: no path leads out of it. Each adapter checks paths with [CheckPath]
// before it uses them. What a file needs is counted against its org before it is written.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Bucket holds the files of one bucket of an org. It is safe for concurrent use.
type Bucket interface {
	// List returns the files whose paths begin with a prefix, in the order of the bytes of their paths.
	List(ctx context.Context, q Query) (Page, error)

	// Stat returns what is known of a file. The error wraps ErrNotFound if there is none.
	Stat(ctx context.Context, path string) (Info, error)

	// Open returns the content of a file and what is known of it. Close the content. The error wraps ErrNotFound if
	// there is none. A read fails with ErrDamaged in place of io.EOF if the content does not match its digest.
	Open(ctx context.Context, path string) (io.ReadCloser, Info, error)

	// Put writes a file, or replaces it. Readers see the old content or the new one, never a part. When Put returns,
	// the file survives a crash of the gateway. The body is read from its beginning, more than once if need be. The error is a
	// *LimitError if the file does not fit; then nothing was written.
	Put(ctx context.Context, path string, body io.ReadSeeker) (Info, error)

	// Delete deletes a file. The error wraps ErrNotFound if there is none.
	Delete(ctx context.Context, path string) error

	// Usage returns what the bucket holds.
	Usage(ctx context.Context) (Usage, error)
}

// Buckets opens the buckets of an org.
type Buckets interface {
	// Open returns a bucket of the org as it is configured now. The error wraps ErrNoBucket if there is none of that name.
	Open(ctx context.Context, orgID, name string) (Bucket, error)
}

// Query selects files.
type Query struct {
	Prefix string // of the paths; "" = all
	After  string // only paths after it; "" = from the first
	Offset int    // how many of these are skipped
	Limit  int    // 1 to MaxLimit
}

// The limits of a Query.
const (
	MaxLimit  = 1000
	MaxOffset = 100_000
)

// Page is a part of a list of files.
type Page struct {
	Files []Info // without SHA256
	More  bool   // there are more after the last one
}

// Info is what is known of a file.
type Info struct {
	Path     string
	Size     int64
	Modified time.Time
	SHA256   string // of the content, in hexadecimal; "" = not known
}

// Usage is what is stored.
type Usage struct {
	Bytes int64
	Files int64
}

var (
	// ErrNotFound reports that there is no such file.
	ErrNotFound = errors.New("no such file")
	// ErrDamaged reports that the content of a file is not what was written.
	ErrDamaged = errors.New("the content of the file is damaged: it does not match its digest")
	// ErrNoBucket reports that the org has no such bucket.
	ErrNoBucket = errors.New("no such bucket")
	// ErrDeleted reports that the org of the bucket was deleted.
	ErrDeleted = errors.New("the org was deleted")
)

// LimitError reports that a file does not fit. Nothing was written.
type LimitError struct {
	What    string // such as "the files of the bucket may have 10 MiB together"
	Setting string // configuration key of the limit
}

func (e *LimitError) Error() string { return e.What + " (" + e.Setting + ")" }

// RefusedError reports that a service refused a request, or could not be reached. Its text names neither an address
// nor a credential.
type RefusedError struct {
	Why     string
	Setting string // configuration key that can help; "" = none
	Err     error  // the cause, for the log
}

func (e *RefusedError) Error() string { return e.Why }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// Check returns an error if a query is not valid.
func (q Query) Check() error {
	switch {
	case q.Limit < 1 || q.Limit > MaxLimit:
		return pathError("limit", fmt.Sprintf("must be from 1 to %d", MaxLimit))
	case q.Offset < 0 || q.Offset > MaxOffset:
		return pathError("offset", fmt.Sprintf("must be from 0 to %d", MaxOffset))
	}
	if err := CheckPrefix(q.Prefix); err != nil {
		return err
	}
	if q.After == "" {
		return nil
	}
	var wrong *ArgumentError
	if err := CheckPath(q.After); errors.As(err, &wrong) {
		return pathError("after", wrong.Why)
	} else if err != nil {
		return err
	}
	return nil
}
