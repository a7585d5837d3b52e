package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"reflect"
	"testing"
)

func TestValuesComeBackAsTheyWere(t *testing.T) {
	b := AppendU8(nil, 7)
	b = AppendU16(b, 65535)
	b = AppendU32(b, 1<<32-1)
	b = AppendU64(b, 1<<64-1)
	b = AppendI64(b, -5)
	b = AppendF64(b, math.Pi)
	b = AppendBool(b, true)
	b = AppendBytes(b, []byte("bytes"))
	b = AppendString(b, "text")
	b = AppendStrings(b, []string{"", "a", "bc"})
	b = AppendInts(b, []int{-1, 0, 9})
	d := NewDecoder(b)
	if d.U8() != 7 || d.U16() != 65535 || d.U32() != 1<<32-1 || d.U64() != 1<<64-1 || d.I64() != -5 ||
		d.F64() != math.Pi || !d.Bool() || string(d.Bytes(5)) != "bytes" || d.String(4) != "text" {
		t.Fatal("a value changed on the way")
	}
	if got := d.Strings(3, 2); !reflect.DeepEqual(got, []string{"", "a", "bc"}) {
		t.Fatal(got)
	}
	if got := d.Ints(3, -1, 9); !reflect.DeepEqual(got, []int{-1, 0, 9}) {
		t.Fatal(got)
	}
	if err := d.Done(); err != nil {
		t.Fatal(err)
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	b := AppendStrings(AppendInts(AppendString(AppendU32(nil, 1), "ab"), []int{1, 2}), []string{"x", "yz"})
	for n := range b {
		d := NewDecoder(b[:n])
		d.U32()
		_ = d.String(9)
		d.Ints(9, 0, 9)
		d.Strings(9, 9)
		if err := d.Done(); err == nil {
			t.Fatalf("%d of %d bytes decode", n, len(b))
		}
	}
	d := NewDecoder(append(b, 0))
	d.U32()
	_ = d.String(9)
	d.Ints(9, 0, 9)
	d.Strings(9, 9)
	if err := d.Done(); !errors.Is(err, ErrLong) {
		t.Fatalf("a byte too many: %v", err)
	}
}

func TestLengthsAreCheckedBeforeMemoryIsTouched(t *testing.T) {
	huge := AppendU32(nil, 1<<31)
	d := NewDecoder(huge)
	if d.Bytes(1<<20) != nil || !errors.Is(d.Err(), ErrLimit) {
		t.Fatal(d.Err())
	}
	d = NewDecoder(huge)
	if n := d.Count(math.MaxInt32, 8); n != 0 {
		t.Fatal(n)
	}
	if allocated := testing.AllocsPerRun(10, func() {
		d := NewDecoder(huge)
		d.Strings(1<<31-1, 10)
	}); allocated > 8 { // the error, no list
		t.Fatalf("%v allocations for a list that is not there", allocated)
	}
	// A peer that announces 1 GiB and sends ten bytes costs one step of memory.
	head := append(AppendU32(nil, 1<<30), 1, 0, 0, 0)
	_, _, err := ReadMessage(bytes.NewReader(append(head, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)), nil, 1<<30)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if _, _, err = ReadMessage(bytes.NewReader(head), nil, 1<<29); !errors.Is(err, ErrLimit) {
		t.Fatal(err)
	}
}

func TestReadMessageReturnsEachInTurn(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), 30_000)
	stream := AppendMessage(AppendMessage(AppendMessage(nil, 1, nil), 2, big), 3, []byte("end"))
	r := bytes.NewReader(stream)
	var buf []byte
	for i, want := range [][]byte{nil, big, []byte("end")} {
		kind, body, err := ReadMessage(r, buf, 1<<20)
		if err != nil || int(kind) != i+1 || !bytes.Equal(body, want) {
			t.Fatalf("message %d: kind %d, %d bytes, %v", i, kind, len(body), err)
		}
		buf = body
	}
	if _, _, err := ReadMessage(r, buf, 1<<20); err != io.EOF {
		t.Fatal(err)
	}
}

func TestDamagedHeadersAreRefused(t *testing.T) {
	h := Header{Kind: FrameData, Part: 1, Len: 4 << 30, Seq: 9, Print: 0xfeedface}
	var b [HeaderBytes]byte
	h.Put(b[:])
	if got, err := ParseHeader(b[:]); err != nil || got != h {
		t.Fatalf("%+v %v", got, err)
	}
	for bit := range HeaderBytes * 8 {
		c := b
		c[bit/8] ^= 1 << (bit % 8)
		if _, err := ParseHeader(c[:]); err == nil {
			t.Fatalf("bit %d flipped and nobody noticed", bit)
		}
	}
	for n := range HeaderBytes {
		if _, err := ParseHeader(b[:n]); !errors.Is(err, ErrShort) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestHeaderAllocatesNothing(t *testing.T) {
	var b [HeaderBytes]byte
	if n := testing.AllocsPerRun(100, func() {
		Header{Kind: FrameData, Len: 4}.Put(b[:])
		if _, err := ParseHeader(b[:]); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestControlRoundTripAndTruncations(t *testing.T) {
	for kind := ControlHeartbeat; kind <= controlLast; kind++ {
		c := Control{
			Kind: kind, Group: 3, Origin: 2, To: -1, Lost: 1, Seq: 1 << 63, Print: 5, Role: RoleSender,
			Text: []byte("why"),
		}
		if !hasBody(kind) {
			c = Control{Kind: kind}
		}
		m := AppendControl(nil, c)
		k, n, err := ParseMessageHeader(m, MaxControlBytes)
		if err != nil || k != kind || n != len(m)-MessageHeaderBytes {
			t.Fatal(k, n, err)
		}
		got, err := ParseControl(k, m[MessageHeaderBytes:])
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%+v %v", got, err)
		}
		for cut := range m[MessageHeaderBytes:] {
			if _, err := ParseControl(k, m[MessageHeaderBytes:MessageHeaderBytes+cut]); err == nil {
				t.Fatalf("kind %d cut to %d bytes decodes", kind, cut)
			}
		}
	}
	long := AppendControl(nil, Control{Kind: ControlExplain, Text: make([]byte, 2*MaxText)})
	if n := binary.LittleEndian.Uint32(long); int(n) != MaxControlBytes {
		t.Fatalf("longest body is %d bytes, the constant says %d", n, MaxControlBytes)
	}
}

func TestHelloNamesEveryVersion(t *testing.T) {
	h := Hello{Version: 200, Nonce: [NonceBytes]byte{1, 2, 3}}
	b := AppendHello(nil, h)
	if len(b) != HelloBytes {
		t.Fatal(len(b))
	}
	if got, err := ParseHello(b); err != nil || got != h {
		t.Fatalf("%+v %v", got, err)
	}
	b[0] = 'G'
	if _, err := ParseHello(b); !errors.Is(err, ErrMagic) {
		t.Fatal(err)
	}
}
