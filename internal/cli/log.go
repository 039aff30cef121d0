package cli

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// The bounds of what a log holds back.
const (
	logDelay = 100 * time.Millisecond
	logBytes = 64 << 10
)

// setLevel sets the level of a log to one of the words that the configuration allows.
func setLevel(level *slog.LevelVar, word string) { _ = level.UnmarshalText([]byte(word)) }

// newLog returns a log whose lines are collected for logDelay and written together.
// Warnings and errors are written at once, with all lines before them. flush writes the
// lines that wait. level can be changed while the log is used.
func newLog(w io.Writer, o config.Log) (log *slog.Logger, level *slog.LevelVar, flush func()) {
	level = new(slog.LevelVar)
	setLevel(level, o.Level)
	held := &heldWriter{w: w}
	options := &slog.HandlerOptions{Level: level}
	handler := slog.Handler(slog.NewTextHandler(held, options))
	if o.Format == "json" {
		handler = slog.NewJSONHandler(held, options)
	}
	return slog.New(promptHandler{handler, held}), level, held.flush
}

// heldWriter collects what is written: a gateway writes a line for every request,
// and a system call for every line would cost more than the line.
type heldWriter struct {
	mu    sync.Mutex
	w     io.Writer
	lines []byte
	timer *time.Timer // runs while there are lines
}

// Write implements io.Writer. What the log cannot be written for is nobody's
// error.
func (h *heldWriter) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, p...)
	switch {
	case len(h.lines) >= logBytes:
		h.write()
	case len(h.lines) == len(p):
		h.timer = time.AfterFunc(logDelay, h.flush)
	}
	return len(p), nil
}

func (h *heldWriter) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.write()
}

// write writes the lines. The caller has mu.
func (h *heldWriter) write() {
	if len(h.lines) == 0 {
		return
	}
	h.timer.Stop()
	_, _ = h.w.Write(h.lines)
	h.lines = h.lines[:0]
}

// promptHandler writes warnings and errors at once.
type promptHandler struct {
	slog.Handler
	held *heldWriter
}

// Handle implements slog.Handler.
func (p promptHandler) Handle(ctx context.Context, r slog.Record) error {
	err := p.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		p.held.flush()
	}
	return err
}

// WithAttrs implements slog.Handler.
func (p promptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return promptHandler{p.Handler.WithAttrs(attrs), p.held}
}

// WithGroup implements slog.Handler.
func (p promptHandler) WithGroup(name string) slog.Handler {
	return promptHandler{p.Handler.WithGroup(name), p.held}
}
