package ackpath

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestHello(t *testing.T) {
	full := Hello{Nonce: 1 << 63}
	for i := range MaxFlows {
		full.Flows = append(full.Flows, Name{uint32(i) << 24, uint8(i), uint8(i) + 1})
	}
	for _, h := range []Hello{{Nonce: 7}, {Nonce: 8, Flows: []Name{{0xdeadbeef, 255, 97}}}, full} {
		b := h.Append(nil)
		got, err := ParseHello(b)
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("got %+v, %v, want %+v", got, err, h)
		}
		a := Answer{Nonce: h.Nonce, Fair: len(h.Flows) > 0}
		for i, n := range h.Flows {
			a.Flows = append(a.Flows, Told{n, State(i % int(Full+1)), uint32(i), 1 << 31, 250_000})
		}
		answer := a.Append(nil)
		if len(answer) != len(b) {
			t.Errorf("an answer of %d bytes to %d: it must not be longer", len(answer), len(b))
		}
		if got, err := ParseAnswer(answer); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("got %+v, %v, want %+v", got, err, a)
		}
	}
	if n := len(full.Append(nil)); n+40+8 > 1280 {
		t.Errorf("the longest hello has %d bytes: with its headers it does not fit the smallest MTU of IPv6", n)
	}
}

// What is no hello of this version is refused, with the reason.
func TestHelloRefused(t *testing.T) {
	good := Hello{Nonce: 7, Flows: []Name{{1, 2, 3}}}.Append(nil)
	with := func(i int, v byte) []byte {
		b := bytes.Clone(good)
		b[i] = v
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"nothing", nil, "0 bytes that are no hello"},
		{"copy", with(1, 0x41), "no hello"},
		{"version", with(2, 2), "version 2, expected 1"},
		{"answer", with(3, kindAnswer), "kind 2"},
		{"more flows than bytes", with(5, 2), "kind 1 with 2 flows in 35 bytes"},
		{"too many flows", append(with(5, MaxFlows+1), make([]byte, MaxFlows*flowBytes)...), "65 flows"},
		{"cut", good[:len(good)-1], "34 bytes"},
	} {
		if _, err := ParseHello(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
	if _, err := ParseAnswer(good); err == nil {
		t.Error("a hello was taken for an answer")
	}
}

// Nothing from the network ends the daemon, and what is understood is what was said.
func FuzzHello(f *testing.F) {
	f.Add(Hello{Nonce: 7, Flows: []Name{{1, 2, 3}, {4, 5, 6}}}.Append(nil))
	f.Add(Answer{Nonce: 7, Fair: true, Flows: []Told{{Name{1, 2, 3}, Known, 3, 4, 5}}}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHello(b)
		if err == nil {
			if again, err := ParseHello(h.Append(nil)); err != nil || !reflect.DeepEqual(again, h) {
				t.Errorf("got %+v, %v, want %+v", again, err, h)
			}
		}
		a, err2 := ParseAnswer(b)
		if err2 == nil {
			if again, err := ParseAnswer(a.Append(nil)); err != nil || !reflect.DeepEqual(again, a) {
				t.Errorf("got %+v, %v, want %+v", again, err, a)
			}
		}
		if err == nil && err2 == nil {
			t.Error("both a hello and an answer")
		}
	})
}
