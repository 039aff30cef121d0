package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// Names of files in the data directory. The configuration can move the checkpoints.
const (
	DatabaseFile    = "turnpike.db"
	AuditKeyFile    = "audit.key"
	RunKeyFile      = "runs.key"
	CheckpointsFile = "audit.checkpoints"
)

// CheckpointsPath returns where the checkpoints of the audit are.
func CheckpointsPath(c *config.Config) string {
	if c.Audit.Checkpoints != "" {
		return c.Audit.Checkpoints
	}
	return filepath.Join(c.Data, CheckpointsFile)
}

// CheckMoved refuses to begin with an empty store, or without earlier checkpoints,
// while those of release 0.1 are where it looked for them: below the working
// directory.
func CheckMoved(c *config.Config) error {
	return errors.Join(movedFile(c, "data", DatabaseFile), movedFile(c, "audit.checkpoints", ""))
}

// movedFile returns an error if the file below the path of the key is at its old
// place and not at its new one.
func movedFile(c *config.Config, key, name string) error {
	m, ok := c.Moved(key)
	if !ok {
		return nil
	}
	old := filepath.Clean(m.Old)
	was, is := filepath.Join(old, name), filepath.Join(m.New, name)
	if _, err := os.Stat(is); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if info, err := os.Stat(was); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	absolute, err := filepath.Abs(old)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s exists and %s does not: relative paths in %s are relative to the file now, not to the working directory. Move %s to %s, or set %s to %s",
		was, is, c.File(), old, m.New, key, absolute)
}

// NoData returns the error for a data directory without a database.
func NoData(c *config.Config, directory string) error {
	if m, ok := c.Moved("data"); ok && m.New == directory {
		if err := movedFile(c, "data", DatabaseFile); err != nil {
			return err
		}
	}
	return fmt.Errorf("no Turnpike data found in %s: name the data directory with --data, or a configuration with --config", directory)
}
