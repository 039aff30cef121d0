package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestVersions(t *testing.T) {
	for _, good := range []string{"v0.1.0", "v1.2.3", "v10.20.30", "v1.2.3-rc.1", "v0.0.0-ci"} {
		if err := checkVersion(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "1.2.3", "v1.2", "v1.2.3.4", "v01.2.3", "v1.2.3-", "v1.2.3-a..b", "v1.2.3+build", "v1.2.3 -X main.a=b", "latest"} {
		if checkVersion(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// entry is what an archive says of a file.
type entry struct {
	Name    string
	Mode    fs.FileMode
	At      time.Time
	Content string
}

func TestArchivesHoldTheFilesAndAreTheSameEveryTime(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 1, 0, time.UTC)
	files := []file{{"turnpike", 0o755, []byte("program")}, {"docs/a.md", 0o644, []byte("page")}, {"LICENSE", 0o644, nil}}
	want := []entry{{"base/LICENSE", 0o644, at, ""}, {"base/docs/a.md", 0o644, at, "page"}, {"base/turnpike", 0o755, at, "program"}}
	for goos, unpack := range map[string]func(*testing.T, []byte) []entry{"linux": unpackTar, "darwin": unpackTar, "windows": unpackZip} {
		first, err := pack(goos, "base", files, at)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, unpack(t, first)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", goos, diff)
		}
		second, err := pack(goos, "base", []file{files[2], files[0], files[1]}, at.In(time.FixedZone("elsewhere", 3600)))
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: another build differs, %v", goos, err)
		}
	}
}

func unpackTar(t *testing.T, archive []byte) (all []entry) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %s", h.Name, h.Uid, h.Gid, h.Uname)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{h.Name, fs.FileMode(h.Mode), h.ModTime.UTC(), string(content)})
	}
}

func unpackZip(t *testing.T, archive []byte) (all []entry) {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.File {
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{f.Name, f.Mode(), f.Modified.UTC(), string(text)})
	}
	return all
}

func TestNothingOfTheEnvironmentChangesABuild(t *testing.T) {
	got := map[string]string{} // as a process sees it: the last one counts
	for _, pair := range environment([]string{"HOME=/h", "CGO_ENABLED=1", "GOFLAGS=-race", "GOOS=plan9", "GOAMD64=v3", "GOEXPERIMENT=jsonv2"}, "linux", "arm64") {
		name, value, _ := strings.Cut(pair, "=")
		got[name] = value
	}
	for name, want := range map[string]string{"HOME": "/h", "CGO_ENABLED": "0", "GOFLAGS": "", "GOOS": "linux", "GOARCH": "arm64", "GOAMD64": "v1", "GOEXPERIMENT": ""} {
		if got[name] != want {
			t.Errorf("%s=%s, want %q", name, got[name], want)
		}
	}
}

// git runs git in the working directory.
func git(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-01-31T12:00:00Z", "GIT_CONFIG_GLOBAL="+os.DevNull)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", args, err, out)
	}
}

func TestAReleaseIsOfACommit(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	git(t, "init", "--quiet")
	write := func(text string) {
		if err := os.WriteFile("a", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	git(t, "add", ".")
	git(t, "commit", "--quiet", "-m", "one")
	git(t, "tag", "v1.0.0")
	r, err := newRelease(t.Context(), "v1.0.0", io.Discard)
	if err != nil || !r.time.Equal(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)) {
		t.Fatalf("got %+v, %v", r, err)
	}
	write("2")
	if _, err := newRelease(t.Context(), "v1.0.0", io.Discard); err == nil || !strings.Contains(err.Error(), "commit or stash") {
		t.Errorf("a changed file: %v", err)
	}
	git(t, "commit", "--quiet", "-am", "two")
	if _, err := newRelease(t.Context(), "v1.0.0", io.Discard); err == nil || !strings.Contains(err.Error(), "the tag v1.0.0 is on commit") {
		t.Errorf("the tag of another commit: %v", err)
	}
	if _, err := newRelease(t.Context(), "v1.0.1", io.Discard); err != nil {
		t.Errorf("a version without a tag: %v", err)
	}
	if err := os.WriteFile("new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newRelease(t.Context(), "v1.0.1", io.Discard); err == nil {
		t.Error("a new file is accepted")
	}
}

func TestAnUnknownPlatformIsRefusedBeforeAnythingIsBuilt(t *testing.T) {
	t.Chdir(t.TempDir())
	git(t, "init", "--quiet")
	git(t, "commit", "--quiet", "--allow-empty", "-m", "one")
	err := run(t.Context(), io.Discard, "v1.0.0", filepath.Join(t.TempDir(), "dist"), noPython, []string{"linux/amd64", "plan9/mips"})
	if err == nil || !strings.Contains(err.Error(), `"plan9/mips" is not a platform`) {
		t.Error(err)
	}
}

func TestAnArchiveHasTheLicensesOfWhatIsInTheBinary(t *testing.T) {
	root := filepath.Join("..", "..")
	for goos, more := range map[string]string{"linux": "Go: LICENSE", "windows": "github.com/inconshreveable/mousetrap"} {
		text, err := thirdParty(t.Context(), root, environment(os.Environ(), goos, "amd64"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{more, "github.com/spf13/cobra v", "modernc.org/sqlite v", "Redistribution and use in source and binary forms", "Apache License"} {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s: no %q in %d bytes", goos, want, len(text))
			}
		}
		if bytes.Contains(text, []byte("github.com/google/go-cmp")) {
			t.Errorf("%s: a module that is in tests only", goos)
		}
	}
	if err := (module{Path: "example.com/m", Dir: t.TempDir()}).writeLicense(io.Discard); err == nil || !strings.Contains(err.Error(), "example.com/m has no license file") {
		t.Errorf("without a license: %v", err)
	}
}

func TestAnArchiveHoldsWhatAnInstallationNeeds(t *testing.T) {
	r := &release{root: filepath.Join("..", "..")}
	for goos, unit := range map[string]bool{"linux": true, "darwin": false, "windows": false} {
		files, err := r.shipped(goos)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, f := range files {
			names[f.name] = len(f.content) > 0
		}
		for _, want := range []string{"LICENSE", "README.md", "CHANGELOG.md", "docs/install.md", "docs/configuration.md", "deploy/turnpike.yaml"} {
			if !names[want] {
				t.Errorf("%s: no %s", goos, want)
			}
		}
		if names["deploy/turnpike.service"] != unit {
			t.Errorf("%s: the systemd unit is there: %v, want %v", goos, !unit, unit)
		}
	}
}
