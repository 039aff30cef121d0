package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// file is one file of an archive.
type file struct {
	name    string // with slashes, in the directory of the archive
	mode    fs.FileMode
	content []byte
}

// pack returns an archive of the files in the directory base: a zip for Windows,
// a tar.gz for other systems. The same files and time always give the same bytes.
func pack(goos, base string, files []file, at time.Time) ([]byte, error) {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	if goos == "windows" {
		return packZip(base, files, at)
	}
	return packTar(base, files, at)
}

func packTar(base string, files []file, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: base + "/" + f.name, Size: int64(len(f.content)), Mode: int64(f.mode), ModTime: at.UTC(), Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return buf.Bytes(), err
}

func packZip(base string, files []file, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	archive := zip.NewWriter(&buf)
	for _, f := range files {
		h := &zip.FileHeader{Name: base + "/" + f.name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(f.mode)
		w, err := archive.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return buf.Bytes(), err
}
