package make

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"path"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/tool"
)

// sessionFiles are the files that code of a session has made. It implements [codetool.Files].
type sessionFiles struct {
	b       *Builtins
	org     string
	session func(context.Context, tool.Call) string
}

// List implements [codetool.Files].
func (s sessionFiles) List(ctx context.Context, c tool.Call) ([]file.File, error) {
	found, err := s.b.o.Files.List(ctx, file.Query{
		Org: s.org, Principal: c.Caller.ID, Container: file.ContainerOf(s.session(ctx, c)), Limit: codetool.MaxListed + 1,
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return found, nil
}

// Open implements [codetool.Files].
func (s sessionFiles) Open(ctx context.Context, c tool.Call, id string) (io.ReadCloser, file.File, error) {
	content, f, err := s.b.o.Files.Open(ctx, s.org, c.Caller.ID, id)
	if err == nil && f.Container != file.ContainerOf(s.session(ctx, c)) {
		err = errors.Join(file.ErrNotFound, content.Close())
	}
	switch {
	case errors.Is(err, file.ErrNotFound):
		return nil, f, codetool.ErrNoFile
	case errors.Is(err, file.ErrExpired):
		return nil, f, fmt.Errorf("the content of the file %q is gone: its time is over", id)
	case err != nil:
		return nil, f, s.failed(ctx, err)
	}
	return content, f, nil
}

// failed logs an error, and returns what the model is told.
func (s sessionFiles) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.b.o.Log.Error("the files of a code session could not be read", "org", s.org, "error", err)
	return errors.New("the gateway could not read its files")
}

// keepOutput stores a file that a tool has made for the key of its call. The text of the error is for the model.
func (b *Builtins) keepOutput(ctx context.Context, orgID string, c tool.Call, at string, body io.ReadSeeker) (codetool.Kept, error) {
	name := path.Base(at)
	if len(name) > file.MaxName || !utf8.ValidString(name) {
		return codetool.Kept{}, fmt.Errorf("its name must be text of at most %d bytes", file.MaxName)
	}
	now := clock.Wall()
	f, err := b.o.Files.Add(ctx, file.File{
		Org: orgID, Principal: c.Caller.ID, Name: name, MediaType: mime.TypeByExtension(path.Ext(name)), Purpose: file.Output,
		CreatedAt: now, ExpiresAt: now.Add(file.OutputTTL), Container: file.ContainerOf(b.codeSession(ctx, orgID, c)), Path: at,
	}, body)
	if limit := (*blob.LimitError)(nil); errors.As(err, &limit) {
		return codetool.Kept{}, limit
	}
	if err != nil {
		b.o.Log.Error("a file that a tool has made was not stored", "org", orgID, "run", c.RunID, "error", err)
		return codetool.Kept{}, errors.New("the gateway could not store it")
	}
	return codetool.Kept{
		ID: f.ID, Name: f.Name, MediaType: f.MediaType, Bytes: f.Bytes, SHA256: f.SHA256, CreatedAt: f.CreatedAt, ExpiresAt: f.ExpiresAt,
	}, nil
}

// openInput returns the content of a file of a key that a request has put into the working directory of code. The request was allowed
// to use it.
func (b *Builtins) openInput(ctx context.Context, orgID string, c tool.Call, in file.Input) (io.ReadCloser, error) {
	body, _, err := b.o.Files.Open(ctx, orgID, "", in.ID)
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, file.ErrNotFound):
		return nil, errors.New("it was deleted")
	case errors.Is(err, file.ErrExpired):
		return nil, errors.New("it has expired")
	}
	b.o.Log.Error("a file of a request was not read", "org", orgID, "run", c.RunID, "file", in.ID, "error", err)
	return nil, errors.New("the gateway could not read it")
}
