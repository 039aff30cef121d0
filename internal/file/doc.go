// Package file keeps the files of keys, each under an id: what clients upload to /v1/files.
//
//	POST /v1/files ─► Library ─► Store        what is known of a file
//	                         └─► blob.Bucket  its content, under its id
//
// A file belongs to the key that uploaded it, and to those that manage its org. For others it does not exist. Its content is written before anything is known of
// it, and deleted after that: Sweep removes what a crash leaves between the two.
//
//	library := file.New(file.Options{Store: store, Content: content, Log: log})
//	f, err := library.Add(ctx, file.File{Org: "acme", Principal: "key_1", Name: "report.csv", Purpose: file.UserData}, body)
package file

import (
	"context"
	"errors"
	"regexp"
	"time"
)

// File is what is known of a file.
type File struct {
	Org       string
	ID        string // Prefix and 26 characters
	Principal string // whose file it is
	Name      string // as the client gave it, without directories
	MediaType string // as the client gave it; "" = not known
	Purpose   string // one of Purposes, or Output
	Bytes     int64
	SHA256    string // of the content, in hexadecimal
	CreatedAt time.Time
	ExpiresAt time.Time // when its content is deleted; zero = never

	Container string // in which code has made it: see [ContainerOf]; "" = it was uploaded
	Path      string // in the working directory of the container
}

// Prefix is how the ids of files begin, and IDPattern is the regular expression of a whole one. Those of OpenAI begin like
// them and are shorter.
const (
	Prefix    = "file-"
	IDPattern = Prefix + "[0-9a-v]{26}"
)

var idPattern = regexp.MustCompile("^" + IDPattern + "$")

// IsID reports whether a text has the form of the id of a file of the gateway.
func IsID(s string) bool { return idPattern.MatchString(s) }

// What an upload is for. The gateway uses files of every purpose alike.
const (
	UserData   = "user_data" // that of a file whose client names none
	Assistants = "assistants"
	Vision     = "vision"
)

// Output is the purpose of a file that a tool has made. Clients cannot upload any.
const Output = "assistants_output"

// Purposes returns what an upload may be for.
func Purposes() []string { return []string{UserData, Assistants, Vision} }

// Expired reports whether the content is gone, or about to be deleted.
func (f File) Expired(now time.Time) bool { return !f.ExpiresAt.IsZero() && !now.Before(f.ExpiresAt) }

// KeptExpired is how long it is known of a file that it has expired. Afterwards it does not exist.
const KeptExpired = 7 * 24 * time.Hour

// MaxName is how many bytes the name of a file may have.
const MaxName = 255

var (
	// ErrNotFound reports that the key has no such file.
	ErrNotFound = errors.New("no such file")
	// ErrExpired reports that the content of a file was deleted because its time was over.
	ErrExpired = errors.New("the file has expired, and its content was deleted")
)

// Store keeps what is known of files. All of its errors for a file that does not exist wrap ErrNotFound.
type Store interface {
	// AddFile stores a file. It returns an error that wraps org.ErrNotFound if the org does not exist, or an
	// *org.CapError if the key has as many files, or bytes of files, as one key may have.
	AddFile(ctx context.Context, f File) error

	// File returns a file of a key; principal "" = of any key of the org.
	File(ctx context.Context, orgID, principal, id string) (File, error)

	// Files returns files, in the order of their creation or in the reverse one.
	Files(ctx context.Context, q Query) ([]File, error)

	// DeleteFile deletes a file of a key; principal "" = of any key of the org.
	DeleteFile(ctx context.Context, orgID, principal, id string) error

	// ExpiredFiles returns files whose time was over at a moment and that are not marked yet, the earliest first.
	ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]File, error)

	// ExtendFiles sets the time when files expire that are not marked, as the extension says.
	ExtendFiles(ctx context.Context, x Extension) error
	// MarkExpired notes that the content of a file was deleted. It does nothing if the file does not exist.
	MarkExpired(ctx context.Context, orgID, id string) error

	// ForgetExpired deletes the files that are marked and whose time was over before a moment.
	ForgetExpired(ctx context.Context, before time.Time) error

	// HasFile reports whether an org has a file that is not marked, whichever key it belongs to.
	HasFile(ctx context.Context, orgID, id string) (bool, error)
}

// Extension gives files of one org more time: those that code has made in a container, or one of them. Files without an end, and those whose
// time is over, stay as they are.
type Extension struct {
	Org       string
	Container string    // of the files; not empty
	ID        string    // of one file; "" = all of the container
	Now       time.Time // files whose time ends at it or earlier are over
	Before    time.Time // files whose time ends at it or later have enough
	Until     time.Time // when the others end from now on
}

// OutputTTL is how long a file that a tool has made is kept after it was used last. A client that wants it longer stores it.
const OutputTTL = 30 * time.Minute

// Query selects files of one org.
type Query struct {
	Org       string
	Principal string // only those of one key; "" = of all keys
	Purpose   string // "" = every one
	Container string // "" = every one, and uploads
	After     string // only files after the one with this id, in the order; "" = from the first
	Oldest    bool   // the oldest first; otherwise the newest
	Limit     int    // at least 1
}
