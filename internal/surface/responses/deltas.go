package responses

// deltaBytes returns the size of the delta of an event, and whether it has one.
func deltaBytes(ev numbered) (int, bool) {
	var delta *string
	switch ev := ev.(type) {
	case *textEvent:
		delta = ev.Delta
	case *summaryEvent:
		delta = ev.Delta
	case *argumentsEvent:
		delta = ev.Delta
	case *nativeEvent:
		for _, m := range ev.more {
			if m.Name == "delta" {
				return len(m.Value), true
			}
		}
	}
	if delta == nil {
		return 0, false
	}
	return len(*delta), true
}
