package store

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hora/server/client"
)

// whose says whether a store is a copy, and which nodes were made, each with whether it is copied.
func whose(t *testing.T, s *Store, copied bool, want ...string) {
	t.Helper()
	if is, err := s.Copied(t.Context()); err != nil || is != copied {
		t.Errorf("it is a copy: %v, %v", is, err)
	}
	made, err := s.Made(t.Context(), "cloud")
	var got []string
	for _, m := range made {
		has := false
		look := func(tx *sql.Tx) (err error) { has, err = HasMade(tx, "cloud", m.Node); return err }
		if err := s.Read(t.Context(), look); err != nil || has == m.Copied {
			t.Errorf("%s is this server's: %v, and copied: %v, %v", m.Node, has, m.Copied, err)
		}
		got = append(got, fmt.Sprint(m.Node, " ", m.Copied))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q were made and not %q, %v", got, want, err)
	}
}

// TestACopyHasMadeNothing: what the server has had made is no copy's of its folder, nor one's of that, until it comes
// to it.
func TestACopyHasMadeNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	p := client.Pool{Name: "cloud", Provider: "command"}
	do := func(s *Store, f func(tx *sql.Tx) error) {
		t.Helper()
		if err := s.Do(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	is := func(s *Store, copied bool, want ...string) { t.Helper(); whose(t, s, copied, want...) }
	makes := func(s *Store, name string) {
		t.Helper()
		do(s, func(tx *sql.Tx) error { return SetMade(tx, &Made{Node: name, Pool: p}) })
	}
	do(s, func(tx *sql.Tx) error { return SetPool(tx, &p) })
	makes(s, "cloud-1")
	makes(s, "cloud-2")
	is(s, false, "cloud-1 false", "cloud-2 false")
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	if _, err := Backup(dir, one, func() {}); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(one, DatabaseFile+"*"))
	if len(left) != 1 {
		t.Errorf("the copy has %v", left)
	}
	if st, err := os.Stat(filepath.Join(one, DatabaseFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if pools, err := MakesNodes(one); err != nil || !slices.Equal(pools, []string{"cloud"}) {
		t.Errorf("commands make nodes of %v, %v", pools, err)
	}
	c := open(t, one)
	is(c, true, "cloud-1 true", "cloud-2 true")
	makes(c, "cloud-3")
	do(c, func(tx *sql.Tx) error { return SetCame(tx, &Made{Node: "cloud-2", Pool: p}) })
	is(c, true, "cloud-1 true", "cloud-2 false", "cloud-3 false")
	if _, err := Backup(one, two, func() {}); err != nil {
		t.Fatal(err)
	}
	is(open(t, two), true, "cloud-1 true", "cloud-2 true", "cloud-3 true")
	for _, name := range []string{"cloud-1", "cloud-2"} {
		do(c, func(tx *sql.Tx) error { return DropCopied(tx, "cloud", name) })
	}
	is(c, true, "cloud-2 false", "cloud-3 false")
	is(s, false, "cloud-1 false", "cloud-2 false")
}

// TestACopyOfAnOlderFolder says that it is one.
func TestACopyOfAnOlderFolder(t *testing.T) {
	for _, version := range []int{1, slices.Index(versions, copiedTable)} {
		dir, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
		db, err := connect(filepath.Join(dir, DatabaseFile), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range append(slices.Clone(versions[:version]), fmt.Sprintf("PRAGMA user_version = %d", version)) {
			if _, err := db.Exec(step); err != nil {
				t.Fatal(err)
			}
		}
		if version > 1 {
			if _, err := db.Exec("INSERT INTO made (pool, node, document) VALUES ('cloud', 'cloud-1', '{}')"); err != nil {
				t.Fatal(err)
			}
		}
		db.Close()
		if err := os.Mkdir(filepath.Join(dir, "blobs"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := Backup(dir, to, func() {}); err != nil {
			t.Fatal(err)
		}
		if pools, err := MakesNodes(to); err != nil || len(pools) != 0 {
			t.Errorf("commands make nodes of %v, %v", pools, err)
		}
		if version > 1 {
			whose(t, open(t, to), true, "cloud-1 true")
		} else {
			whose(t, open(t, to), true)
		}
	}
}
