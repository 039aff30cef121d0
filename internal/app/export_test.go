package app

// What the end-to-end tests, which are outside the package, know of it.
const (
	LastSpans      = lastSpans
	MaxFetchedFile = maxFetchedFile
	SlowStore      = slowStore
)
