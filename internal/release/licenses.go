package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// thirdParty returns the license texts of the modules that the program contains
// on the platform of the environment, and of Go's own library.
func thirdParty(ctx context.Context, root string, env []string) ([]byte, error) {
	modules, err := contained(ctx, root, env)
	if err != nil {
		return nil, err
	}
	goroot, err := output(ctx, root, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "This program contains the Go library and %d Go modules. Their licenses follow.\n", len(modules))
	for _, m := range append([]module{{Path: "Go", Dir: goroot}}, modules...) {
		if err := m.writeLicense(&b); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// module is a Go module, as go list describes it.
type module struct {
	Path, Version, Dir string
	Main               bool
}

// contained returns the modules of the program except the main one, by path.
func contained(ctx context.Context, root string, env []string) ([]module, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Module", "./cmd/turnpike")
	cmd.Dir, cmd.Env = root, env
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []module
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var p struct{ Module *module }
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module != nil && !p.Module.Main && !slices.Contains(all, *p.Module) {
			all = append(all, *p.Module)
		}
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// writeLicense writes the license files of a module. A module without one is an
// error: nobody may distribute it.
func (m module) writeLicense(w io.Writer) error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`).MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(w, "\n%[1]s\n%[2]s: %[3]s\n%[1]s\n\n%[4]s\n", strings.Repeat("=", 78), strings.TrimSpace(m.Path+" "+m.Version), e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("module %s has no license file", m.Path)
	}
	return nil
}
