package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// claimShown gives the images that code has shown names that are free, and returns these in the order in which they were shown. It
// trusts nothing in the directory: it uses no name that the code has chosen, and takes regular files only.
func claimShown(dir *os.Root, begin string) (names []string) {
	_ = dir.Remove(begin + ".part") // of an image that was not written to its end
	free := 0
	for n := 1; n <= maxShown; n++ {
		at := fmt.Sprintf("%s-%d.png", begin, n)
		info, err := dir.Lstat(at)
		if err != nil {
			continue
		}
		if !info.Mode().IsRegular() {
			_ = dir.Remove(at)
			continue
		}
		if free = freeAfter(dir, free); free == 0 || dir.Rename(at, figure(free)) != nil {
			_ = dir.Remove(at)
			continue
		}
		names = append(names, figure(free))
	}
	return names
}

func figure(n int) string { return fmt.Sprintf("figure_%d.png", n) }

// freeAfter returns the next number of an image whose name no file of the directory has; 0 = there are too many.
func freeAfter(dir *os.Root, n int) int {
	for n++; n <= FilesCount; n++ {
		if _, err := dir.Lstat(figure(n)); errors.Is(err, fs.ErrNotExist) {
			return n
		}
	}
	return 0
}

// notesOf returns the notes of a reply, within their bounds.
func notesOf(r Reply) (notes []string) {
	for _, n := range r.Notes[:min(len(r.Notes), maxNotes)] {
		if len(n) > maxNote {
			n = strings.ToValidUTF8(n[:maxNote], "") + "…"
		}
		notes = append(notes, n)
	}
	return notes
}
