package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// databaseFile is the name of the store in the data directory.
const databaseFile = "turnpike.db"

// checkMoved refuses to begin with an empty store, or without earlier checkpoints,
// while those of release 0.1 are where it looked for them: below the working
// directory.
func checkMoved(c *config.Config) error {
	return errors.Join(movedFile(c, "data", databaseFile), movedFile(c, "audit.checkpoints", ""))
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

// noData is the error for a data directory without a database.
func noData(c *config.Config, directory string) error {
	if m, ok := c.Moved("data"); ok && m.New == directory {
		if err := movedFile(c, "data", databaseFile); err != nil {
			return err
		}
	}
	return fmt.Errorf("no Turnpike data found in %s: name the data directory with --data, or a configuration with --config", directory)
}
