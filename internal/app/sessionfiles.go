package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/tool"
)

// sessionFiles are the files that code of a session has made. It implements [codetool.Files].
type sessionFiles struct {
	b       *builtins
	org     string
	session func(context.Context, tool.Call) string
}

// List implements [codetool.Files].
func (s sessionFiles) List(ctx context.Context, c tool.Call) ([]file.File, error) {
	found, err := s.b.library.List(ctx, file.Query{
		Org: s.org, Principal: c.Caller.ID, Container: file.ContainerOf(s.session(ctx, c)), Limit: codetool.MaxListed + 1,
	})
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return found, nil
}

// Open implements [codetool.Files].
func (s sessionFiles) Open(ctx context.Context, c tool.Call, id string) (io.ReadCloser, file.File, error) {
	content, f, err := s.b.library.Open(ctx, s.org, c.Caller.ID, id)
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
	s.b.log.Error("the files of a code session could not be read", "org", s.org, "error", err)
	return errors.New("the gateway could not read its files")
}
