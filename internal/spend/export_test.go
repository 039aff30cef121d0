package spend

// MaxSlices is how many slices of one org are kept.
const MaxSlices = maxSlices

// Kept returns the numbers of orgs and of slices that the Keeper has.
func Kept(k *Keeper) (orgs, slices int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.orgs {
		slices += len(o.slices)
	}
	return len(k.orgs), slices
}
