package app

import (
	"fmt"
	"path/filepath"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// Names of files in the data directory. The configuration can move the checkpoints.
const (
	DatabaseFile    = "turnpike.db"
	AuditKeyFile    = "audit.key"
	MasterKeyFile   = "master.key" // if the configuration has no master key
	RunKeyFile      = "runs.key"
	CheckpointsFile = "audit.checkpoints"
	SpoolDirectory  = "spool" // request bodies while they are served
	FilesDirectory  = "blobs" // the files of buckets
	URLKeyFile      = "urls.key"
	PDFDirectory    = "pdf" // what the reader of PDFs has compiled
)

// CheckpointsPath returns where the checkpoints of the audit are a second time; "" = only in the store, which is PostgreSQL.
func CheckpointsPath(c *config.Config) string {
	if c.Audit.Checkpoints != "" || c.UsesPostgres() {
		return c.Audit.Checkpoints
	}
	return filepath.Join(c.Data, CheckpointsFile)
}

// NoData returns the error for a data directory without a database.
func NoData(directory string) error {
	return fmt.Errorf("no Turnpike data found in %s: name the data directory with --data, or a configuration with --config", directory)
}
