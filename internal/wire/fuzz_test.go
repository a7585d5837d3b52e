package wire

import (
	"bytes"
	"testing"
)

// The seeds below and those under testdata/fuzz run in every go test.

func FuzzHeader(f *testing.F) {
	var b [HeaderBytes]byte
	Header{Kind: FrameData, Len: 4, Seq: 1, Print: 2}.Put(b[:])
	f.Add(b[:])
	Header{Kind: FrameBye}.Put(b[:])
	f.Add(b[:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ParseHeader(in)
		if err != nil {
			return
		}
		var out [HeaderBytes]byte
		h.Put(out[:])
		if !bytes.Equal(out[:], in[:HeaderBytes]) {
			t.Fatalf("%+v encodes to %x, came from %x", h, out, in[:HeaderBytes])
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(AppendHello(nil, Hello{Version: Version}))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: somewhere.else\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ParseHello(in)
		if err == nil && !bytes.Equal(AppendHello(nil, h), in) {
			t.Fatalf("%x decodes to something else", in)
		}
	})
}

func FuzzControl(f *testing.F) {
	for kind := ControlHeartbeat; kind <= controlLast; kind++ {
		m := AppendControl(nil, Control{Kind: kind, Group: 1, Origin: 1, To: -1, Lost: -1, Seq: 7, Text: []byte("text")})
		f.Add(kind, m[MessageHeaderBytes:])
	}
	f.Fuzz(func(t *testing.T, kind uint8, in []byte) {
		c, err := ParseControl(kind, in)
		if err == nil && !bytes.Equal(AppendControl(nil, c)[MessageHeaderBytes:], in) {
			t.Fatalf("%x decodes to something else: %+v", in, c)
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(AppendMessage(nil, 1, []byte("hello")))
	f.Add(AppendMessage(AppendMessage(nil, 1, nil), 2, make([]byte, 300)))
	f.Add([]byte{255, 255, 255, 255, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 1 << 10
		r := bytes.NewReader(in)
		var again, buf []byte
		for {
			kind, body, err := ReadMessage(r, buf, limit)
			if err != nil {
				break
			}
			if len(body) > limit {
				t.Fatalf("a body of %d bytes came through a limit of %d", len(body), limit)
			}
			again = AppendMessage(again, kind, body)
			buf = body
		}
		if !bytes.HasPrefix(in, again) {
			t.Fatal("messages read are not the bytes that came")
		}
	})
}

// FuzzDecoder drives the cursor by a script: each byte of it picks a method.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, AppendStrings(AppendInts(nil, []int{1, 2}), []string{"a"}))
	f.Add([]byte{9, 10, 7}, []byte{255, 255, 255, 127, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, script, in []byte) {
		const limit = 64
		d := NewDecoder(in)
		for _, step := range script {
			left := d.Left()
			switch step % 11 {
			case 0:
				d.U8()
			case 1:
				d.U16()
			case 2:
				d.U32()
			case 3:
				d.U64()
			case 4:
				d.F64()
			case 5:
				d.Bool()
			case 6:
				if v := d.Int(-3, 3); v < -3 || v > 3 {
					t.Fatal(v)
				}
			case 7:
				if p := d.Bytes(limit); len(p) > limit {
					t.Fatal(len(p))
				}
			case 8:
				if n := d.Count(limit, 3); n > limit || n*3 > left {
					t.Fatal(n)
				}
			case 9:
				if l := d.Strings(limit, 4); len(l) > limit {
					t.Fatal(len(l))
				}
			case 10:
				if l := d.Ints(limit, 0, 9); len(l) > limit {
					t.Fatal(len(l))
				}
			}
			if d.Left() > left || d.Err() != nil && d.Left() != 0 {
				t.Fatal("the cursor went back")
			}
		}
		_ = d.Done()
	})
}
