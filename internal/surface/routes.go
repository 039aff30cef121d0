package surface

import "github.com/turnpike-gateway/turnpike/internal/org"

// Route is one route of the HTTP API. Each surface returns its own from its method Routes;
// package httpd serves them. Make one with [Group.Route].
type Route struct {
	Pattern string // as of http.ServeMux
	Group
	Serve Endpoint // nil = an unknown path
}

// Group is what the routes of one API have in common. Errors is required.
type Group struct {
	Errors  *Errors // the format of every error of the routes
	Roles   Roles
	MaxBody int64 // bytes

	ModelAPI   bool // its requests count for the rate limit of their org
	CallsModel bool // its requests call models and count for max_requests

	// ChecksOrigin says that the origin of every request is checked. Otherwise requests that only
	// read may come from pages of any site.
	ChecksOrigin bool

	// Apart is a path, such as /api/agents/runs/. Paths that begin with it are looked up only among the routes
	// that have it, so that wildcards of others, such as /api/agents/{id}/hooks, do not conflict with them.
	// "" = all other paths. The values of two groups must not begin with each other.
	Apart string

	// Hint says where to find what callers look for at unknown paths of the group; "" = the error names the APIs.
	Hint string

	Forms   bool // its bodies may be forms
	AnyType bool // its bodies may have any Content-Type
	Spools  bool // it counts what it holds of a body by itself

	StaysOpen bool // its requests may stay open for long, and end when their key is revoked
}

// ModelRequests returns the group of the routes that call models.
func ModelRequests(format *Errors) Group {
	return Group{Errors: format, Roles: Runners, MaxBody: MaxBody, ModelAPI: true, CallsModel: true, StaysOpen: true}
}

// Route returns a route of the group. A nil serve makes the pattern an unknown path.
func (g Group) Route(pattern string, serve Endpoint) Route { return Route{pattern, g, serve} }

// By returns the group for routes of other roles.
func (g Group) By(rs Roles) Group {
	g.Roles = rs
	return g
}

// Open returns the group for routes whose requests may stay open for long.
func (g Group) Open() Group {
	g.StaysOpen = true
	return g
}

// Roles says whose keys a route is for.
type Roles string

// The sets of roles.
const (
	AnyRole         Roles = ""
	Runners         Roles = "owner, admin or member"
	Managers        Roles = "owner or admin"
	Readers         Roles = "owner, admin or reader"         // of the org's settings and audit log
	RunReaders      Roles = "owner, admin, member or reader" // members read the runs of their key
	Approvers       Roles = "owner, admin or approver"
	ApprovalReaders Roles = "owner, admin, approver or reader"
	Deciders        Roles = "owner, admin, member or approver" // members decide what only their own request asks for
	ToolCallers     Roles = "owner, admin, member or tools"    // over /mcp
	Operator        Roles = "operator"                         // the operator's key, and no key of an org
	Signed          Roles = "signed URL"                       // no key: the endpoint checks the signature of the URL
)

// Allow reports whether a key of an org may use the route.
func (rs Roles) Allow(r org.Role) bool {
	switch rs {
	case AnyRole:
		return true
	case Runners:
		return r.MayRun()
	case Managers:
		return r.MayManage()
	case Readers:
		return r.MayRead()
	case RunReaders:
		return r.MayRun() || r.MayRead()
	case Approvers:
		return r.MayApprove()
	case Deciders:
		return r.MayApprove() || r.MayRun()
	case ToolCallers:
		return r.MayCallTools()
	case ApprovalReaders:
		return r.MayApprove() || r.MayRead()
	}
	return false
}
