package app

import "github.com/turnpike-gateway/turnpike/internal/surface"

// Routes returns the routes of all surfaces, without endpoints that can be called.
func Routes() []surface.Route { return surfaces{}.routes() }

// What the end-to-end tests, which are outside the package, know of it.
const (
	LastSpans      = lastSpans
	MaxFetchedFile = maxFetchedFile
	SlowStore      = slowStore
)
