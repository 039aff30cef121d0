package config

// Environment looks a variable up, as os.LookupEnv does.
type Environment = func(name string) (value string, ok bool)

// overlay puts the variables of the environment over what the file says. A
// variable that is set to nothing counts as set.
func (d *decoder) overlay(path string, keys []key, env Environment) {
	for _, k := range keys {
		at := join(path, k.name)
		if o, ok := k.value.(object); ok {
			d.overlay(at, o.keys, env)
		}
		if k.env == "" {
			continue
		}
		if text, ok := env(k.env); ok {
			d.overlayOne(at, k, text)
		}
	}
}

func (d *decoder) overlayOne(path string, k key, text string) {
	v, ok := k.value.(interface{ fromEnv(string) error })
	if !ok {
		return
	}
	from := origin{env: k.env}
	if err := v.fromEnv(text); err != nil {
		d.fail(from, path, "%v", err)
		return
	}
	d.where[path] = from
	d.refuseUnbuilt(path, k)
}
