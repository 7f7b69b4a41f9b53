package cp

import (
	"encoding/binary"
	"fmt"
	"reflect"
)

// appendFields appends the fields of a struct one after the other: numbers as varints (encoding/binary), texts and bytes with their length before
// them, lists with their number.
func appendFields(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendFields(b, v.Field(i))
		}
		return b
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Int, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint())
	case reflect.String:
		return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...)
	case reflect.Slice:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return append(b, v.Bytes()...)
		}
		for i := range v.Len() {
			b = appendFields(b, v.Index(i))
		}
		return b
	}
	panic("a message with a " + v.Kind().String())
}

// decode reads the body of a message of a kind.
func decode[T any](kind byte, body []byte) (v T, err error) {
	f := fields(body)
	if !f.read(reflect.ValueOf(&v).Elem()) || len(f) > 0 {
		err = fmt.Errorf("%w: message %q is malformed", errBroken, kind)
	}
	return v, err
}

// fields are what is not read yet of a body.
type fields []byte

// read takes what appendFields appended, and reports whether it was there.
func (f *fields) read(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !f.read(v.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Int, reflect.Int64:
		x, n := binary.Varint(*f)
		*f = (*f)[max(n, 0):]
		v.SetInt(x)
		return n > 0
	}
	x, n := binary.Uvarint(*f)
	if n <= 0 {
		return false
	}
	*f = (*f)[n:]
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(x == 1)
		return x <= 1
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(x)
		return !v.OverflowUint(x)
	}
	if x > uint64(len(*f)) { // each text of a list takes a byte or more, too
		return false
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(string((*f)[:x]))
	case v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes(append([]byte(nil), (*f)[:x]...))
	default:
		v.Set(reflect.MakeSlice(v.Type(), int(x), int(x)))
		for i := range v.Len() {
			if !f.read(v.Index(i)) {
				return false
			}
		}
		return true
	}
	*f = (*f)[x:]
	return true
}
