package child

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tetratelabs/wazero"
	experimental "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// wasmPages bounds the memory of Python: 512 MiB, in pages of 64 KiB.
const wasmPages = 512 << 20 / (64 << 10)

// wasm runs Python: "wasm FILE SHA256 CACHE" in the working directory, which is all that the code sees. An empty FILE
// stands for the module in this program.
// "wasm FILE SHA256 CACHE compile" fills the cache and ends.
func wasm(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: wasm FILE SHA256 CACHE [compile]")
	}
	module, err := pythonModule(args[0])
	if err != nil {
		return err
	}
	if err := checkDigest(module, args[1]); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	ctx := context.Background()
	cache, err := wazero.NewCompilationCacheWithDir(args[2])
	if err != nil {
		return fmt.Errorf("cache of compiled modules: %w", err)
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().
		WithCompilationCache(cache).
		WithDebugInfoEnabled(false).
		WithMemoryLimitPages(wasmPages).
		WithMemoryCapacityFromMax(true)) // else memory that grows is copied
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return err
	}
	compiled, err := r.CompileModule(ctx, module)
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	if len(args) > 3 {
		return nil
	}
	files := wazero.NewFSConfig().(sysfs.FSConfig).WithSysFSMount(withoutLinks{sysfs.DirFS(".")}, "/work")
	config := wazero.NewModuleConfig().WithArgs("python", "-I", "-B", "-c", sandbox.PythonLoop()).
		WithStdin(inputUntilGone()).WithStdout(os.Stdout).WithStderr(os.Stderr).
		WithFSConfig(files).WithRandSource(rand.Reader).WithSysWalltime().WithSysNanotime()
	_, err = r.InstantiateModule(ctx, compiled, config)
	return err
}

// pythonModule returns the contents of the file, or for "" the module in this program.
func pythonModule(path string) ([]byte, error) {
	if path == "" {
		return sandbox.Embedded(), nil
	}
	return os.ReadFile(path)
}

// checkDigest compares the SHA-256 of data with a digest in hexadecimal.
func checkDigest(data []byte, want string) error {
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != want {
		return fmt.Errorf("its SHA-256 is %s, not %s", got, want)
	}
	return nil
}

// inputUntilGone returns standard input. The process ends with it, also while code runs: then the
// gateway is gone.
func inputUntilGone() io.Reader {
	r, w := io.Pipe()
	go func() {
		_, _ = io.Copy(w, onlyReader{os.Stdin})
		os.Exit(0)
	}()
	return r
}

// onlyReader hides the other methods of a file.
type onlyReader struct{ io.Reader }

// withoutLinks is a directory in which code can make no links: one could lead out of it.
type withoutLinks struct{ experimental.FS }

// Link implements experimental.FS.
func (withoutLinks) Link(string, string) experimental.Errno { return experimental.EPERM }

// Symlink implements experimental.FS.
func (withoutLinks) Symlink(string, string) experimental.Errno { return experimental.EPERM }
