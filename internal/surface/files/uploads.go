package files

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/spool"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// uploadedObject is a file of a key on the wire: the members of OpenAI's File object, and those that the gateway adds.
type uploadedObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"` // "file"
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"` // in seconds
	ExpiresAt *int64 `json:"expires_at"` // in seconds; nil = never
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"` // processed or expired

	Name     string `json:"name"`             // = Filename
	Format   string `json:"format,omitempty"` // the ending of the name
	MimeType string `json:"mime_type,omitempty"`
	SHA256   string `json:"sha256"`
}

func (h *Handler) wireUpload(f file.File) uploadedObject {
	o := uploadedObject{
		ID: f.ID, Object: "file", Bytes: f.Bytes, CreatedAt: f.CreatedAt.Unix(), Filename: f.Name, Purpose: f.Purpose, Status: "processed",
		Name: f.Name, Format: surface.FormatOf(f.Name), MimeType: f.MediaType, SHA256: f.SHA256,
	}
	if !f.ExpiresAt.IsZero() {
		o.ExpiresAt = new(f.ExpiresAt.Unix())
	}
	if f.Expired(h.o.Now()) {
		o.Status = "expired"
	}
	return o
}

// uploadRoutes returns the routes of the files of keys.
func (h *Handler) uploadRoutes() []surface.Route {
	requests := surface.Group{Errors: surface.EndpointErrors(), Roles: surface.Runners, MaxBody: surface.MaxManagementBody, ModelAPI: true}
	uploads := requests.Open()
	uploads.Forms, uploads.Spools, uploads.MaxBody = true, true, 1<<40
	if h != nil {
		uploads.MaxBody = h.o.Bodies.MaxBody()
	}
	return append(h.containerRoutes(requests),
		uploads.Route("POST /v1/files", h.PostFile()),
		requests.Route("GET /v1/files", h.ListUploads()),
		requests.Route("GET /v1/files/{id}", h.GetFile()),
		requests.Open().Route("GET /v1/files/{id}/content", h.FileContent()),
		requests.Route("DELETE /v1/files/{id}", h.DeleteFile()),
	)
}

// answerFile returns the error for the client of a request for a file of a key.
func answerFile(err error, id string) error {
	switch {
	case errors.Is(err, file.ErrNotFound) && file.IsMissing(id):
		return fault.New(fault.Unprocessable, "file_not_produced", "the file %s does not exist: its run was to make it and has not; run the request again", id).In("id")
	case errors.Is(err, file.ErrNotFound):
		return fault.New(fault.NotFound, "file_not_found", "no such file: %s", id).In("id")
	case errors.Is(err, file.ErrExpired):
		return fault.New(fault.Gone, "file_expired", "the file %s has expired, and its content was deleted; upload it again", id).In("id")
	}
	return err
}

// PostFile answers POST /v1/files.
func (h *Handler) PostFile() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		f, err := h.postFile(r, caller)
		if err != nil {
			return surface.Failed(h.o.Log, err)
		}
		return surface.WriteJSON(w, http.StatusOK, h.wireUpload(f))
	}
}

func (h *Handler) postFile(r *http.Request, caller caller.Caller) (file.File, error) {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return file.File{}, err
	}
	end, err := h.transfers.begin(r.Context(), caller.Org.ID)
	if err != nil {
		return file.File{}, err
	}
	defer end()
	body := h.o.Bodies.Body(caller.Org.ID, caller.Account)
	defer body.Close()
	now := h.o.Now().UTC().Truncate(time.Millisecond)
	form, err := readUpload(r, body, now)
	if err != nil {
		return file.File{}, err
	}
	f := form.file
	f.Org, f.Principal, f.CreatedAt = caller.Org.ID, caller.Principal.ID, now
	f, err = h.o.Files.Add(r.Context(), f, body.Reader())
	return f, err
}

// The limits of the form of an upload.
const (
	maxFields = 8
	maxField  = 256 // bytes of the value of one
)

// uploadForm is what the form of an upload says.
type uploadForm struct {
	file  file.File // Name, MediaType, Purpose and ExpiresAt
	found bool      // the part file was there

	anchor, seconds string // of expires_after; "" = not there
}

// readUpload reads the form of an upload, and its file into body.
func readUpload(r *http.Request, body *spool.Body, now time.Time) (*uploadForm, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, fault.New(fault.Invalid, "invalid_form", "the request body must be a form (multipart/form-data) with the parts file and purpose")
	}
	form := &uploadForm{file: file.File{Purpose: file.UserData}}
	for parts := surface.NewFormReader(r.Body, params["boundary"]); ; {
		part, err := parts.Next(maxFields)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = form.add(part, body)
		}
		if err != nil {
			return nil, surface.BrokenForm(err)
		}
	}
	if !form.found {
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "the form has no part file").In("file")
	}
	if err := form.readExpiry(now); err != nil {
		return nil, err
	}
	return form, nil
}

// add reads a part of the form.
func (f *uploadForm) add(part *multipart.Part, body *spool.Body) error {
	name := part.FormName()
	if name == "file" {
		if f.found {
			return surface.InvalidValue("file", "the form has two parts file; upload one file at a time")
		}
		f.found = true
		var err error
		if f.file.Name, err = uploadedName(part.FileName()); err != nil {
			return err
		}
		if f.file.MediaType = part.Header.Get("Content-Type"); len(f.file.MediaType) > maxField || strings.ContainsFunc(f.file.MediaType, unicode.IsControl) {
			return surface.InvalidValue("file", "the media type of the file is not valid")
		}
		_, err = io.Copy(body, part)
		return err
	}
	value, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil {
		return err
	}
	if len(value) > maxField {
		return surface.InvalidValue(name, "%s has more than %d bytes", name, maxField)
	}
	switch name {
	case "purpose":
		if f.file.Purpose = string(value); !slices.Contains(file.Purposes(), f.file.Purpose) {
			return surface.InvalidValue("purpose", "purpose is %q; use one of %s: the gateway has no other use for files", f.file.Purpose, strings.Join(file.Purposes(), ", "))
		}
	case "expires_after[anchor]":
		f.anchor = string(value)
	case "expires_after[seconds]":
		f.seconds = string(value)
	default:
		return surface.Unknown("part", name, name, "file", "purpose", "expires_after[anchor]", "expires_after[seconds]")
	}
	return nil
}

// The bounds of expires_after.seconds: those of OpenAI.
const (
	minExpiry = time.Hour
	maxExpiry = 30 * 24 * time.Hour
)

// readExpiry reads expires_after.
func (f *uploadForm) readExpiry(now time.Time) error {
	if f.anchor == "" && f.seconds == "" {
		return nil
	}
	if f.anchor != "created_at" {
		return surface.InvalidValue("expires_after[anchor]", "expires_after[anchor] is %q; use created_at", f.anchor)
	}
	n, err := strconv.Atoi(f.seconds)
	if after := time.Duration(n) * time.Second; err == nil && n <= int(maxExpiry/time.Second) && after >= minExpiry {
		f.file.ExpiresAt = now.Add(after)
		return nil
	}
	return surface.InvalidValue("expires_after[seconds]", "expires_after[seconds] is %q; use a number from %d to %d", f.seconds, minExpiry/time.Second, maxExpiry/time.Second)
}

// uploadedName returns the name of an uploaded file, without the directories that some clients send.
func uploadedName(name string) (string, error) {
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	switch {
	case name == "" || name == "." || name == "..":
		return "", surface.InvalidValue("file", "the part file has no filename")
	case len(name) > file.MaxName:
		return "", surface.InvalidValue("file", "the filename has %d bytes; at most %d are allowed", len(name), file.MaxName)
	case !utf8.ValidString(name) || blob.Hides(name):
		return "", surface.InvalidValue("file", "the filename contains a control character, or is not UTF-8 text")
	}
	return name, nil
}

// ListUploads answers GET /v1/files.
func (h *Handler) ListUploads() surface.Endpoint {
	return h.managed(func(r *http.Request, caller caller.Caller) (int, any, error) {
		query := r.URL.Query()
		if err := surface.CheckQuery(query, "purpose", "limit", "order", "after"); err != nil {
			return 0, nil, err
		}
		q, err := h.readList(r, caller, maxListed, maxListed)
		if err != nil {
			return 0, nil, err
		}
		q.Purpose = query.Get("purpose")
		if all := append(file.Purposes(), file.Output); q.Purpose != "" && !slices.Contains(all, q.Purpose) {
			return 0, nil, surface.InvalidValue("purpose", "purpose is %q; use one of %s", q.Purpose, strings.Join(all, ", "))
		}
		found, err := h.o.Files.List(r.Context(), q)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, surface.NewIDPage(found, q.Limit-1, h.wireUpload, func(f uploadedObject) string { return f.ID }).OpenAI(), nil
	})
}

// readList reads the members of a query for a list of files. The Query asks for one file more than the list may have.
func (h *Handler) readList(r *http.Request, caller caller.Caller, usual, most int) (file.Query, error) {
	query := r.URL.Query()
	limit, err := surface.QueryNumber(query, "limit", usual, 1, most)
	if err != nil {
		return file.Query{}, err
	}
	q := file.Query{Org: caller.Org.ID, Principal: surface.FilesOf(caller), After: query.Get("after"), Limit: limit + 1}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		q.Oldest = true
	default:
		return q, surface.InvalidValue("order", "order is %q; use asc or desc", order)
	}
	if q.After == "" {
		return q, nil
	}
	_, err = h.o.Files.Find(r.Context(), q.Org, q.Principal, q.After)
	err = answerFile(err, q.After)
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		f.Param = "after"
	}
	return q, err
}

// maxListed is how many files a list has at most, also without limit. OpenAI has ten times as many.
const maxListed = 1000

// GetFile answers GET /v1/files/{id}.
func (h *Handler) GetFile() surface.Endpoint {
	return h.managed(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if err := surface.CheckQuery(r.URL.Query()); err != nil {
			return 0, nil, err
		}
		f, err := h.o.Files.Find(r.Context(), caller.Org.ID, surface.FilesOf(caller), r.PathValue("id"))
		if err != nil {
			return 0, nil, answerFile(err, r.PathValue("id"))
		}
		return http.StatusOK, h.wireUpload(f), nil
	})
}

// DeleteFile answers DELETE /v1/files/{id}.
func (h *Handler) DeleteFile() surface.Endpoint {
	return h.managed(func(r *http.Request, caller caller.Caller) (int, any, error) {
		id := r.PathValue("id")
		err := surface.CheckQuery(r.URL.Query())
		if err == nil {
			err = answerFile(h.o.Files.Delete(r.Context(), caller.Org.ID, surface.FilesOf(caller), id), id)
		}
		return http.StatusOK, surface.Deleted(id, "file"), err
	})
}

// FileContent answers GET /v1/files/{id}/content.
func (h *Handler) FileContent() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		err := surface.CheckQuery(r.URL.Query())
		if err == nil {
			err = h.sendUpload(w, r, caller)
		}
		return surface.Failed(h.o.Log, err)
	}
}

func (h *Handler) sendUpload(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	id := r.PathValue("id")
	return h.sendOpened(w, r, caller.Org.ID, func(ctx context.Context) (download, error) {
		content, f, err := h.o.Files.Open(ctx, caller.Org.ID, surface.FilesOf(caller), id)
		return download{content, f.Name, f.Bytes, f.SHA256}, answerFile(err, id)
	})
}
