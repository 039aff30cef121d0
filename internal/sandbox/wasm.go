package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// compiling is how long python.wasm may be compiled. It takes seconds.
const compiling = 5 * time.Minute

// wasm is the driver Wasm.
type wasm struct {
	ownProgram
	file  string        // "" = the one in the program
	cache string        // compiled modules: machine code, so nobody else may write to it
	ready chan struct{} // closed when the module is compiled, or could not be
}

func newWasm(o Options) *wasm {
	d := &wasm{file: o.PythonWasm, cache: cmp.Or(o.Compiled, filepath.Join(o.Dir, "compiled")), ready: make(chan struct{})}
	d.ownProgram = ownProgram{
		name: Wasm, languages: []Language{Python}, program: o.Program,
		arguments: []string{d.file, cmp.Or(o.PythonWasmSHA256, PythonWasmSHA256), d.cache},
	}
	return d
}

// Check implements [Driver].
func (d *wasm) Check(ctx context.Context) error {
	if err := d.ownProgram.Check(ctx); err != nil {
		return err
	}
	if d.file == "" && len(Embedded()) > 0 {
		return nil
	}
	if d.file == "" {
		return errors.New("no python.wasm is configured; add one with: turnpike sandbox add FILE")
	}
	info, err := os.Stat(d.file)
	switch {
	case err != nil:
		return fmt.Errorf("python.wasm: %w; add it with: turnpike sandbox add FILE", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("python.wasm: %s is not a file", d.file)
	}
	return nil
}

// prepare compiles python.wasm, so that the first call need not wait for it.
func (d *wasm) prepare(stop <-chan struct{}, log *slog.Logger) {
	defer close(d.ready)
	began := time.Now()
	if err := d.Compile(stop); err != nil {
		log.Error("python.wasm could not be compiled; calls will fail", "error", err)
		return
	}
	log.Info("python.wasm is compiled", "ms", time.Since(began).Milliseconds())
}

// Compile compiles python.wasm unless the cache has it. It returns early when stop is closed.
func (d *wasm) Compile(stop <-chan struct{}) error {
	if err := d.Check(context.Background()); err != nil {
		return err
	}
	if err := os.MkdirAll(d.cache, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), compiling)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ended:
		}
	}()
	text, err := runToEnd(ctx, ownCommand(d.program, d.cache, append([]string{d.name}, append(d.arguments, "compile")...)...))
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(lastOf(text)))
	}
	return nil
}

// Compile compiles the python.wasm of the options, unless it is compiled.
func Compile(ctx context.Context, o Options) error { return newWasm(absolute(o)).Compile(ctx.Done()) }

// Start implements [Driver].
func (d *wasm) Start(ctx context.Context, l Language, dir string) (Interpreter, error) {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := d.Check(ctx); err != nil {
		return nil, err
	}
	return d.ownProgram.Start(ctx, l, dir)
}
