package source

import (
	"fmt"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestUnpackedShards: shards that somebody has unpacked beside an index of packed ones have the rows of those.
func TestUnpackedShards(t *testing.T) {
	m := shardsOf(t)
	read := func() []string {
		t.Helper()
		tables, err := m.open(nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, one := range tables {
			lines, err := rows(one)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, lines...)
		}
		return all
	}
	want := read()
	const name = "shard.00002.mds"
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if m[name], err = d.DecodeAll(m[name+".zstd"], nil); err != nil {
		t.Fatal(err)
	}
	delete(m, name+".zstd")
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("%d rows where the packed shards have %d, or others", len(got), len(want))
	}
}

// TestImagesOfEqualSize: an image of the same size and name with another content is other data, where the storage
// tells.
func TestImagesOfEqualSize(t *testing.T) {
	m := imagesOf(t)
	digestOf := func() string {
		t.Helper()
		tables, err := m.open(nil)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", tables[0].About().Digest)
	}
	before := digestOf()
	if digestOf() != before {
		t.Fatal("the same images are other data")
	}
	for name := range m {
		if Of(name) == Images {
			m[name][len(m[name])/2] ^= 1
		}
	}
	if digestOf() == before {
		t.Error("an image has changed and nobody can tell")
	}
}
