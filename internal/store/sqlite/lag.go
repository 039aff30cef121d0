package sqlite

import "time"

// Lag returns how long the oldest of the writes that are not on disk yet has
// waited; 0 if there is none. Slow commits and a queue that grows show in it.
func (s *Store) Lag() time.Duration {
	if oldest := s.writer.front.Load(); oldest != nil {
		return time.Since(oldest.since)
	}
	return 0
}
