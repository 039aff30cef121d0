package storetest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// fill sets every field of the struct that p points to, except the named ones, to a
// value that is not zero. So a case fails if a store does not store a new field.
func fill(p any, but ...string) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); !slices.Contains(but, f.Name) {
			set(v.Field(i), f.Name)
		}
	}
}

func set(v reflect.Value, name string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.UnixMilli(1_700_000_000_123).UTC()))
		return
	case tool.Money:
		v.Set(reflect.ValueOf(tool.USD("0.000000007")))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(`{"x":1}`)))
		return
	case time.Duration:
		v.SetInt(int64(1500 * time.Millisecond))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("a " + name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		if v.Type().Elem().Kind() == reflect.Struct { // whose zero value has no JSON that all decoders take
			set(v.Index(0), name)
		}
		set(v.Index(1), name)
	case reflect.Array:
		for i := range v.Len() {
			set(v.Index(i), name)
		}
	case reflect.Struct:
		fill(v.Addr().Interface())
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		set(value, name)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("<key> & more"), value)
	default:
		panic(fmt.Sprintf("no value for the field %s of type %s", name, v.Type()))
	}
}

// hash returns a key hash that is different for each n.
func hash(n int) [sha256.Size]byte { return sha256.Sum256(fmt.Append(nil, "key ", n)) }
