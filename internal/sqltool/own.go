package sqltool

import (
	"os"
	"path/filepath"
	"strings"
)

// OwnFiles returns what [ConnectionOptions].Own needs: it reports files in the gateway's data directory, and further
// names of them.
func OwnFiles(directory string) func(path string) bool {
	return func(path string) bool {
		own, err := filepath.EvalSymlinks(directory)
		if err == nil {
			own, err = filepath.Abs(own)
		}
		if err != nil {
			return false // there is no directory, and no file in it
		}
		if inside, err := filepath.Rel(own, path); err == nil && inside != ".." && !strings.HasPrefix(inside, ".."+string(filepath.Separator)) {
			return true
		}
		info, err := os.Stat(path)
		if err != nil {
			return true // nobody knows
		}
		entries, err := os.ReadDir(own)
		if err != nil {
			return true
		}
		for _, e := range entries { // another name of the same file
			if one, err := os.Stat(filepath.Join(own, e.Name())); err == nil && os.SameFile(info, one) {
				return true
			}
		}
		return false
	}
}
