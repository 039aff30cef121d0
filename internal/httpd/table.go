package httpd

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// routes finds the routes of requests. The zero value has none.
type routes struct {
	mux       *http.ServeMux
	apart     map[string]*http.ServeMux // by [surface.Group].Apart
	byPattern map[string]surface.Route
}

// of returns where the path is looked up.
func (rs routes) of(path string) *http.ServeMux {
	for prefix, mux := range rs.apart {
		if strings.HasPrefix(path, prefix) {
			return mux
		}
	}
	return rs.mux
}

// newRoutes registers the routes of a table with their handlers. An unknown path that ends with a slash stands for the
// path without it, too, which would be redirected otherwise.
func newRoutes(table []surface.Route, handler func(surface.Route) http.HandlerFunc) routes {
	rs := routes{http.NewServeMux(), map[string]*http.ServeMux{}, map[string]surface.Route{}}
	for _, rt := range table {
		mux := rs.mux
		if rt.Apart != "" {
			if rs.apart[rt.Apart] == nil {
				rs.apart[rt.Apart] = http.NewServeMux()
			}
			mux = rs.apart[rt.Apart]
		}
		mux.HandleFunc(rt.Pattern, handler(rt))
		rs.byPattern[rt.Pattern] = rt
		if alone := strings.TrimSuffix(rt.Pattern, "/"); rt.Serve == nil && alone != rt.Pattern && alone != "" {
			mux.HandleFunc(alone, handler(rt))
			rs.byPattern[alone] = rt
		}
	}
	return rs
}

// find returns the route of a request. A route with a method and no endpoint is an unknown
// path. If the path has routes for other methods only, find returns one of these, and the
// methods of all. Requests outside the table, such as
// health checks, have the error format of unknown paths.
func (rs routes) find(r *http.Request) (rt surface.Route, methods []string) {
	rt, _ = rs.lookup(r, r.Method)
	if unknown := strings.Contains(rt.Pattern, " "); unknown || rt.Serve != nil {
		return rt, nil
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other, known := rs.lookup(r, method)
		if other.Serve != nil {
			rt = other
		}
		if known {
			methods = append(methods, method)
		}
	}
	return rt, methods
}

// lookup returns the route for the path of a request and a method, and whether the path
// is known with the method.
func (rs routes) lookup(r *http.Request, method string) (rt surface.Route, known bool) {
	_, pattern := rs.of(r.URL.Path).Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
	rt, listed := rs.byPattern[pattern]
	if !listed { // not in the table: a health check, for example
		return rs.byPattern["/"], pattern != ""
	}
	return rt, rt.Serve != nil
}

// notFound answers requests without a route: 405 if the path exists with another
// method, otherwise 404.
func (a *API) notFound(w http.ResponseWriter, r *http.Request) {
	closeAfterResponse(w, r)
	rt, methods := a.find(r)
	hint := "the API is POST /v1/chat/completions, POST /v1/responses, /v1/conversations, GET /v1/models, /v1/runs, /v1/approvals, /mcp and /api (see /openapi.json)"
	err := fault.New(fault.NotFound, "not_found", "no route for %s %s; %s", r.Method, r.URL.Path, cmp.Or(rt.Hint, hint))
	if len(methods) > 0 {
		allow := strings.Join(methods, ", ")
		w.Header().Set("Allow", allow)
		err = fault.New(fault.Method, "method_not_allowed", "%s does not support %s; use %s", r.URL.Path, r.Method, allow)
	}
	rt.Errors.Write(w, err)
}

// refuse answers a request with an error that is found before its route is called, in
// the format of the route.
func (rs routes) refuse(w http.ResponseWriter, r *http.Request, err error) {
	rt, _ := rs.find(r)
	rt.Errors.Write(w, err)
}
