package child

import (
	"errors"
	"reflect"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"
	"modernc.org/quickjs"
)

// rejections calls a function of the prelude when a promise is rejected that nothing handles, with the promise and the reason,
// and when such a promise is handled later, with a third argument.
type rejections struct {
	f        lib.TJSValue
	args     [3]lib.TJSValue // on the heap, as the engine takes its address
	callback func(*libc.TLS, uintptr, lib.TJSValue, lib.TJSValue, int32, uintptr)
}

// trackRejections makes the engine report rejections. The package quickjs has no function for it, so this reads the handles of the
// engine from its fields. The error says that they are not there: then the package has changed.
func trackRejections(vm *quickjs.VM, f quickjs.Value) (*rejections, error) {
	runtime := reflect.ValueOf(vm).Elem().FieldByName("runtime")
	if runtime.Kind() != reflect.Pointer {
		return nil, errors.New("the package quickjs has changed: its VM has no runtime")
	}
	tls, handle := runtime.Elem().FieldByName("tls"), runtime.Elem().FieldByName("cRuntime")
	value := reflect.ValueOf(&f).Elem().FieldByName("v")
	known := tls.IsValid() && tls.Type() == reflect.TypeFor[*libc.TLS]() && handle.Kind() == reflect.Uintptr &&
		value.IsValid() && value.Type() == reflect.TypeFor[lib.TJSValue]()
	if !known {
		return nil, errors.New("the package quickjs has changed: its handles have other types")
	}
	r := &rejections{f: *(*lib.TJSValue)(value.Addr().UnsafePointer())}
	r.callback = func(tls *libc.TLS, ctx uintptr, promise, reason lib.TJSValue, handled int32, _ uintptr) {
		r.args = [3]lib.TJSValue{promise, reason, promise}
		n := int32(2)
		if handled != 0 {
			n = 3
		}
		lib.XFreeValue(tls, ctx, lib.XJS_Call(tls, ctx, r.f, r.f, n, uintptr(unsafe.Pointer(&r.args[0]))))
		lib.XFreeValue(tls, ctx, lib.XJS_GetException(tls, ctx)) // of code that has broken what the prelude uses
	}
	var callback any = r.callback
	pointer := (*[2]uintptr)(unsafe.Pointer(&callback))[1]
	lib.XJS_SetHostPromiseRejectionTracker((*libc.TLS)(tls.UnsafePointer()), uintptr(handle.Uint()), pointer, 0)
	return r, nil
}
