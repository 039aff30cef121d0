package files

import (
	"context"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// containerFile is a file that code has made in a container, on the wire: the members of OpenAI's object, and those that the gateway adds.
type containerFile struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // "container.file"
	ContainerID string `json:"container_id"`
	CreatedAt   int64  `json:"created_at"` // in seconds
	Bytes       int64  `json:"bytes"`
	Path        string `json:"path"`   // begins with /work/
	Source      string `json:"source"` // "assistant"

	ExpiresAt *int64 `json:"expires_at"` // in seconds; nil = never
	SHA256    string `json:"sha256"`
}

func wireContained(f file.File) containerFile {
	o := containerFile{
		ID: f.ID, Object: "container.file", ContainerID: f.Container, CreatedAt: f.CreatedAt.Unix(), Bytes: f.Bytes,
		Path: file.WorkDirectory + f.Path, Source: "assistant", SHA256: f.SHA256,
	}
	if !f.ExpiresAt.IsZero() {
		o.ExpiresAt = new(f.ExpiresAt.Unix())
	}
	return o
}

// The number of files in a list of those of a container: those of OpenAI.
const (
	usualContained = 20
	mostContained  = 100
)

// containerRoutes returns the routes of the files of containers.
func (h *Handler) containerRoutes(requests surface.Group) []surface.Route {
	return []surface.Route{
		requests.Route("GET /v1/containers/{container}/files", h.ListContainerFiles()),
		requests.Route("GET /v1/containers/{container}/files/{id}", h.GetContainerFile()),
		requests.Open().Route("GET /v1/containers/{container}/files/{id}/content", h.ContainerFileContent()),
	}
}

// ListContainerFiles answers GET /v1/containers/{container}/files. A container without files that the key may use has an empty list.
func (h *Handler) ListContainerFiles() surface.Endpoint {
	return h.managed(func(r *http.Request, caller caller.Caller) (int, any, error) {
		query := r.URL.Query()
		if err := surface.CheckQuery(query, "limit", "order", "after"); err != nil {
			return 0, nil, err
		}
		q, err := h.readList(r, caller, usualContained, mostContained)
		if err != nil {
			return 0, nil, err
		}
		q.Container = r.PathValue("container")
		found, err := h.o.Files.List(r.Context(), q)
		return http.StatusOK, surface.NewIDPage(found, q.Limit-1, wireContained, func(f containerFile) string { return f.ID }).OpenAI(), err
	})
}

// contained returns a file of a container that the key may use.
func (h *Handler) contained(ctx context.Context, r *http.Request, caller caller.Caller) (file.File, error) {
	id := r.PathValue("id")
	f, err := h.o.Files.Find(ctx, caller.Org.ID, surface.FilesOf(caller), id)
	if err == nil && (f.Container == "" || f.Container != r.PathValue("container")) {
		err = file.ErrNotFound
	}
	return f, answerFile(err, id)
}

// GetContainerFile answers GET /v1/containers/{container}/files/{id}.
func (h *Handler) GetContainerFile() surface.Endpoint {
	return h.managed(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if err := surface.CheckQuery(r.URL.Query()); err != nil {
			return 0, nil, err
		}
		f, err := h.contained(r.Context(), r, caller)
		return http.StatusOK, wireContained(f), err
	})
}

// ContainerFileContent answers GET /v1/containers/{container}/files/{id}/content.
func (h *Handler) ContainerFileContent() surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		err := surface.CheckQuery(r.URL.Query())
		if err == nil {
			_, err = h.contained(r.Context(), r, caller)
		}
		if err == nil {
			err = h.sendUpload(w, r, caller)
		}
		return surface.Failed(h.o.Log, err)
	}
}
