package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// bucketObject is a bucket on the wire.
type bucketObject struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	QuotaMiB   *int64 `json:"quota_mib"` // nil = no limit of its own
	MaxFileMiB int64  `json:"max_file_mib"`
}

// fileObject is a file on the wire.
type fileObject struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	ModifiedAt string `json:"modified_at"`
	SHA256     string `json:"sha256,omitempty"` // absent in lists
}

func wireFile(i blob.Info) fileObject {
	return fileObject{i.Path, i.Size, surface.Seconds.Text(i.Modified), i.SHA256}
}

// ListBuckets answers GET /api/buckets.
func (h *Handler) ListBuckets() surface.Endpoint {
	return h.managed(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if err := errors.Join(mayRead(caller), surface.CheckQuery(r.URL.Query())); err != nil {
			return 0, nil, err
		}
		out := struct {
			Data []bucketObject `json:"data"`
		}{[]bucketObject{}}
		for _, b := range caller.Org.Runtime.Buckets {
			one := bucketObject{Name: b.Name, Kind: b.KindName(), MaxFileMiB: b.LargestFile() >> 20}
			if b.Quota > 0 {
				one.QuotaMiB = new(b.Quota >> 20)
			}
			out.Data = append(out.Data, one)
		}
		return http.StatusOK, out, nil
	})
}

// managed is [surface.Managed] for a Handler that may be nil until it is called.
func (h *Handler) managed(serve func(*http.Request, caller.Caller) (int, any, error)) surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		return surface.Managed(h.o.Log, serve)(w, r, caller)
	}
}

// ListFiles answers GET /api/buckets/{name}/files.
func (h *Handler) ListFiles() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		return surface.Failed(h.o.Log, h.listFiles(w, r, caller))
	}
}

func (h *Handler) listFiles(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := mayRead(caller); err != nil {
		return err
	}
	query := r.URL.Query()
	if err := surface.CheckQuery(query, "prefix", "after", "limit", "offset"); err != nil {
		return err
	}
	q := blob.Query{Prefix: query.Get("prefix"), After: query.Get("after")}
	var err error
	if q.Limit, err = surface.QueryNumber(query, "limit", 100, 1, blob.MaxLimit); err != nil {
		return err
	}
	if q.Offset, err = surface.QueryNumber(query, "offset", 0, 0, blob.MaxOffset); err != nil {
		return err
	}
	end, err := h.transfers.begin(r.Context(), caller.Org.ID)
	if err != nil {
		return err
	}
	defer end()
	b, err := h.open(r.Context(), caller.Org.ID, r.PathValue("name"))
	if err != nil {
		return err
	}
	page, err := b.List(r.Context(), q)
	if err != nil {
		return err
	}
	out := struct {
		Data []fileObject `json:"data"`
		More bool         `json:"more"`
	}{[]fileObject{}, page.More}
	for _, f := range page.Files {
		out.Data = append(out.Data, wireFile(f))
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// Download answers GET /api/buckets/{name}/files/{path}.
func (h *Handler) Download() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		err := errors.Join(mayRead(caller), surface.CheckQuery(r.URL.Query()))
		if err == nil {
			err = h.send(w, r, caller.Org.ID, r.PathValue("name"), r.PathValue("path"))
		}
		return surface.Failed(h.o.Log, err)
	}
}

// Signed answers GET /v1/blobs/{id}, for whoever has the URL.
func (h *Handler) Signed() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
		return surface.Failed(h.o.Log, h.signed(w, r))
	}
}

func (h *Handler) signed(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Referrer-Policy", "no-referrer") // of an error, too
	query := r.URL.Query()
	if err := surface.CheckQuery(query, "exp", "sig"); err != nil {
		return err
	}
	ref, err := h.o.Links.Signer.Check(r.PathValue("id"), query.Get("exp"), query.Get("sig"), r.Method, h.o.Now())
	switch {
	case errors.Is(err, blob.ErrExpired):
		return fault.New(fault.Forbidden, "signed_url_expired", "%v; ask for a new one", err)
	case err != nil:
		return fault.New(fault.Forbidden, "invalid_signed_url", "%v; use the URL as it was returned, and with GET", err)
	}
	o, ok := h.o.Org(ref.Org)
	if !ok || blob.Millis(o.CreatedAt) != blob.Millis(ref.CreatedAt) {
		return blob.ErrNotFound
	}
	return h.send(w, r, ref.Org, ref.Bucket, ref.Path)
}

// send sends a file of a bucket.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, orgID, bucket, name string) error {
	return h.sendOpened(w, r, orgID, func(ctx context.Context) (download, error) {
		b, err := h.open(ctx, orgID, bucket)
		if err != nil {
			return download{}, err
		}
		content, info, err := b.Open(ctx, name)
		return download{content, path.Base(name), info.Size, info.SHA256}, err
	})
}

// download is a file that is sent.
type download struct {
	content io.ReadCloser
	name    string // without directories
	size    int64
	sha256  string // "" = not known
}

// sendOpened sends what open returns, as what no browser displays or executes.
func (h *Handler) sendOpened(w http.ResponseWriter, r *http.Request, orgID string, open func(context.Context) (download, error)) error {
	end, err := h.transfers.begin(r.Context(), orgID)
	if err != nil {
		return err
	}
	defer end()
	d, err := open(r.Context())
	if err != nil {
		return err
	}
	defer d.content.Close()
	header := w.Header()
	header.Set("Content-Type", mediaType(d.name))
	header.Set("Content-Length", strconv.FormatInt(d.size, 10))
	header.Set("Content-Disposition", disposition(d.name))
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	header.Set("Referrer-Policy", "no-referrer")
	if d.sha256 != "" {
		header.Set("ETag", `"sha256:`+d.sha256+`"`)
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if err := copyWhole(r.Context(), w, d.content, d.size); err != nil {
		h.o.Log.Warn("a download was cut off", "org", orgID, "error", err)
		panic(http.ErrAbortHandler) // the client must not take what it has for the file
	}
	return nil
}

// copyWhole sends a file. Its last byte is sent after the digest was compared.
func copyWhole(ctx context.Context, w io.Writer, content io.Reader, size int64) error {
	content = interruptible{ctx, content}
	if size > 0 {
		if _, err := io.CopyN(w, content, size-1); err != nil {
			return err
		}
	}
	last, err := io.ReadAll(io.LimitReader(content, 2))
	if err != nil {
		return err
	}
	if int64(len(last)) != min(size, 1) {
		return fmt.Errorf("the file does not have the %d bytes that it had", size)
	}
	_, err = w.Write(last)
	return err
}

// interruptible ends with the error of ctx when that is done.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (i interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}

// mediaType returns the media type of a file by its name; a type that can contain a program is not said.
func mediaType(name string) string {
	const unknown = "application/octet-stream"
	kind, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name)))
	if err != nil {
		return unknown
	}
	for _, harmless := range []string{"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "audio/", "video/", "application/zip"} {
		if strings.HasPrefix(kind, harmless) {
			return kind
		}
	}
	return unknown
}

// disposition returns the header Content-Disposition of a download (RFC 6266).
func disposition(name string) string {
	plain := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\%;`, r) {
			return '_'
		}
		return r
	}, name)
	return `attachment; filename="` + plain + `"; filename*=UTF-8''` + strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
}

// Upload answers PUT /api/buckets/{name}/files/{path}.
func (h *Handler) Upload() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		return surface.Failed(h.o.Log, h.upload(w, r, caller))
	}
}

func (h *Handler) upload(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := errors.Join(mayWrite(caller), surface.CheckQuery(r.URL.Query())); err != nil {
		return err
	}
	name := r.PathValue("path")
	if err := blob.CheckPath(name); err != nil {
		return err
	}
	end, err := h.transfers.begin(r.Context(), caller.Org.ID)
	if err != nil {
		return err
	}
	defer end()
	b, err := h.open(r.Context(), caller.Org.ID, r.PathValue("name"))
	if err != nil {
		return err
	}
	body := h.o.Bodies.Body(caller.Org.ID, caller.Account)
	defer body.Close()
	if _, err := io.Copy(body, r.Body); err != nil {
		return err
	}
	info, err := b.Put(r.Context(), name, body.Reader())
	if err != nil {
		return err
	}
	if err := h.record(r, caller, info.Size, info.SHA256); err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, wireFile(info))
}

// Delete answers DELETE /api/buckets/{name}/files/{path}.
func (h *Handler) Delete() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		err := errors.Join(mayWrite(caller), surface.CheckQuery(r.URL.Query()))
		if err == nil {
			err = h.remove(r, caller)
		}
		if err == nil {
			err = surface.WriteJSON(w, http.StatusOK, struct {
				Path    string `json:"path"`
				Deleted bool   `json:"deleted"`
			}{r.PathValue("path"), true})
		}
		return surface.Failed(h.o.Log, err)
	}
}

func (h *Handler) remove(r *http.Request, caller caller.Caller) error {
	b, err := h.open(r.Context(), caller.Org.ID, r.PathValue("name"))
	if err != nil {
		return err
	}
	if err := b.Delete(r.Context(), r.PathValue("path")); err != nil {
		return err
	}
	return h.record(r, caller, 0, "")
}

// recording is how long a row of the audit log may take.
const recording = 10 * time.Second

// record records that the file of a request was uploaded, or deleted if sum is "". It does so also if the client has
// gone: the file has changed.
func (h *Handler) record(r *http.Request, caller caller.Caller, size int64, sum string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recording)
	defer cancel()
	by := caller.Author(h.o.Now())
	if err := h.o.Record(ctx, caller.Org.ID, by.FileChanged(caller.Org.ID, r.PathValue("name"), r.PathValue("path"), size, sum)); err != nil {
		return fmt.Errorf("the file was changed, and the audit log could not record it: %w", err)
	}
	return nil
}

// SignURL answers POST /api/buckets/{name}/signed-urls.
func (h *Handler) SignURL() surface.Endpoint {
	return h.managed(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if err := mayRead(caller); err != nil {
			return 0, nil, err
		}
		name, expires, err := readSignedURL(r, caller)
		if err != nil {
			return 0, nil, err
		}
		b, err := h.open(r.Context(), caller.Org.ID, r.PathValue("name"))
		if err != nil {
			return 0, nil, err
		}
		if _, err := b.Stat(r.Context(), name); err != nil {
			return 0, nil, err
		}
		made, until, err := h.o.Links.Make(caller.Org, r.PathValue("name"), name, expires, r)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, struct {
			SignedURL string `json:"signed_url"`
			ExpiresAt string `json:"expires_at"`
		}{made, surface.Seconds.Text(until)}, nil
	})
}

func readSignedURL(r *http.Request, caller caller.Caller) (name string, expires time.Duration, err error) {
	f, err := surface.ReadFields(r, caller.Account)
	if err != nil {
		return "", 0, err
	}
	var seconds *int
	f.Text("path", &name)
	f.Number("expires_in_seconds", &seconds)
	if err := f.Done(); err != nil {
		return "", 0, err
	}
	if seconds == nil {
		return name, blob.MaxSigned, nil
	}
	if most := int(blob.MaxSigned / time.Second); *seconds < 1 || *seconds > most {
		return "", 0, surface.InvalidValue("expires_in_seconds", "expires_in_seconds must be from 1 to %d", most)
	}
	return name, time.Duration(*seconds) * time.Second, nil
}
