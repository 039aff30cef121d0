package sqlite

import "time"

// Lag returns how long the oldest write that is not yet on disk has waited; 0 if
// there is none. Slow commits and a growing queue increase it.
func (s *Store) Lag() time.Duration {
	if oldest := s.writer.oldest.Load(); oldest != nil {
		return time.Since(oldest.since)
	}
	return 0
}
