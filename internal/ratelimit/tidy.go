package ratelimit

// fewest is at how many buckets of a shard it is worth looking for empty ones.
const fewest = 64

// tidy throws away the empty buckets, which are as good as none, once there are
// twice as many as the last time have stayed. So there are never more than twice
// as many as are in use, and all the looking costs the same for each.
func (s *shard) tidy(now int64) {
	if len(s.buckets) < s.most {
		return
	}
	for of, b := range s.buckets {
		if now-b.at >= b.empties() {
			delete(s.buckets, of)
		}
	}
	s.most = max(fewest, 2*len(s.buckets))
}
