package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Checked is what Check found.
type Checked struct {
	Jobs, Blobs int
	Faults      []string
}

// checker goes through a server's folder, in use or not.
type checker struct {
	*Checked
	s     *Store
	name  string                              // of the database
	parts func(list []byte) ([]string, error) // the hashes that the list of a folder's files names
	needs map[string]string                   // content that must be there, and who needs it
	lists map[string]string                   // of that, lists of files
	found []string                            // what the database says of its damages
}

// Check reads all of a server's folder: the database, what jobs have written and reported, who did what, and all
// content that any of it names.
func Check(dir string, parts func(list []byte) ([]string, error)) (*Checked, error) {
	name := filepath.Join(dir, DatabaseFile)
	if _, err := os.Stat(name); err != nil {
		return nil, fmt.Errorf("check %s: %w: name a server's folder", dir, err)
	}
	c := &checker{
		Checked: &Checked{}, name: name, parts: parts, needs: map[string]string{}, lists: map[string]string{},
	}
	lock, err := lockSweep(dir, syscall.LOCK_SH) // content that is named now is not removed meanwhile
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	db, err := connect(name, "&_pragma=query_only(1)", 1)
	if err != nil {
		c.broken(err)
		c.damaged()
		return c.Checked, nil
	}
	defer db.Close()
	c.s = &Store{dir: dir, read: db}
	if !c.pages(db) {
		c.damaged()
		return c.Checked, nil
	}
	for _, look := range []func() error{c.documents, c.files, c.lines, c.points, c.deeds} {
		if err := look(); err != nil {
			c.broken(err)
		}
	}
	err = c.content(dir)
	c.damaged()
	return c.Checked, err
}

// broken notes that the database could not be read: what it says where it is damaged is one fault, and told once.
func (c *checker) broken(err error) {
	var d *damage
	if errors.As(plain(err), &d) {
		c.found = append(c.found, d.error.Error())
		return
	}
	c.fault("%s: %v", c.name, err)
}

// damaged puts before all other faults that the database is damaged.
func (c *checker) damaged() {
	if len(c.found) == 0 {
		return
	}
	more := ""
	if n := len(c.found) - 1; n > 0 {
		more = fmt.Sprintf("; and %d more such sentences", n)
	}
	says := fmt.Sprintf("%s: the database is damaged: restore the last backup with horad restore, into a new folder (%s%s)", c.name, c.found[0], more)
	c.Faults = slices.Insert(c.Faults, 0, says)
}

func (c *checker) fault(format string, args ...any) {
	c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
}

// pages lets the database look at itself, and says whether there is any sense in reading on.
func (c *checker) pages(db *sql.DB) bool {
	for _, pragma := range []string{"integrity_check", "foreign_key_check"} {
		rows, err := db.Query("PRAGMA " + pragma)
		if err != nil {
			c.broken(err)
			return false
		}
		for rows.Next() {
			columns, _ := rows.Columns()
			row := make([]any, len(columns))
			for i := range row {
				row[i] = new(any)
			}
			if err := rows.Scan(row...); err != nil {
				break
			}
			if text := fmt.Sprint(*row[0].(*any)); text != "ok" {
				c.found = append(c.found, pragma+": "+strings.Join(strings.Fields(text), " "))
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			c.broken(err)
		}
	}
	return true
}

// each goes through the rows of a query.
func (c *checker) each(query string, row func(scan func(...any) error) error) error {
	return c.s.Read(context.Background(), func(tx *sql.Tx) error {
		rows, err := tx.Query(query)
		if err != nil {
			return err
		}
		for rows.Next() {
			if err = row(rows.Scan); err != nil {
				break
			}
		}
		return errors.Join(err, rows.Err(), rows.Close())
	})
}

// need notes content that must be there.
func (c *checker) need(hash, who string) {
	if len(hash) != 2*sha256.Size {
		c.fault("%s: %q is no hash, and should be that of %s", c.name, hash, who)
	} else if _, known := c.needs[hash]; !known {
		c.needs[hash] = who
	}
}

// documents reads jobs, and notes the folders that went along with them, with what was not committed of those.
func (c *checker) documents() error {
	return c.each("SELECT id, document FROM jobs", func(scan func(...any) error) error {
		var id int64
		var text string
		if err := scan(&id, &text); err != nil {
			return err
		}
		c.Jobs++
		var d struct {
			Code   string            `json:"code"`
			Source map[string]string `json:"source"`
		}
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			c.fault("%s: what was submitted as job %d cannot be read: %v", c.name, id, err)
			return nil
		}
		if d.Code != "" {
			c.need(d.Code, fmt.Sprintf("the list of the files that went along with job %d", id))
			c.lists[d.Code] = fmt.Sprintf("job %d", id)
		}
		if hash := d.Source["diff"]; hash != "" {
			c.need(hash, fmt.Sprintf("what was not committed of the folder of job %d", id))
		}
		return nil
	})
}

// files notes what came back of outputs/.
func (c *checker) files() error {
	return c.each("SELECT job, path, hash FROM artifacts", func(scan func(...any) error) error {
		var id int64
		var path, hash string
		err := scan(&id, &path, &hash)
		c.need(hash, fmt.Sprintf("outputs/%s of job %d", path, id))
		return err
	})
}

// lines unpacks what jobs have written.
func (c *checker) lines() error {
	query := "SELECT job, attempt, first, last, codec, block FROM lines"
	return c.each(query, func(scan func(...any) error) error {
		var id, attempt int64
		var first, last uint64
		var codec int
		var block []byte
		if err := scan(&id, &attempt, &first, &last, &codec, &block); err != nil {
			return err
		}
		all, err := unpack(id, codec, block)
		if n := len(all); err == nil && (n == 0 || all[0].Number != first || all[n-1].Number != last) {
			err = errors.New("there are others")
		}
		if err != nil {
			c.fault("%s: lines %d to %d of attempt %d of job %d: %v", c.name, first, last, attempt, id, err)
		}
		return nil
	})
}

// points counts what jobs have reported.
func (c *checker) points() error {
	query := "SELECT job, name, rank, seq, count, length(block) FROM metrics"
	return c.each(query, func(scan func(...any) error) error {
		var id, rank, seq, count, length int64
		var name string
		if err := scan(&id, &name, &rank, &seq, &count, &length); err != nil {
			return err
		}
		if length != count*pointBytes {
			c.fault("%s: block %d of metric %s of rank %d of job %d has %d bytes, and should have %d points",
				c.name, seq, name, rank, id, length, count)
		}
		return nil
	})
}

// deedsAtOnce is how many records of who did what are read at once.
const deedsAtOnce = 10_000

// deeds follows the records of who did what, where the database has some: those of the first releases have none.
func (c *checker) deeds() error {
	there := false
	err := c.each("SELECT 1 FROM sqlite_master WHERE name = 'audit'", func(func(...any) error) error {
		there = true
		return nil
	})
	for after := int64(0); err == nil && there; {
		chain, bad := c.s.CheckDeeds(context.Background(), after, deedsAtOnce)
		if bad != nil {
			return bad
		}
		if chain.Broken != "" {
			c.fault("%s: who did what: %s", c.name, chain.Broken)
		}
		there, after = chain.Broken == "" && chain.Next != "", chain.Records
	}
	return err
}

// content reads all content, and tells what is missing of that which is needed.
func (c *checker) content(dir string) error {
	for hash, of := range c.lists {
		if _, good := c.needs[hash]; !good {
			continue
		}
		list, err := os.ReadFile(c.s.BlobFile(hash))
		if err != nil {
			continue // it is missed below
		}
		parts, err := c.parts(list)
		if err != nil {
			c.fault("%s: the list of the files that went along with %s: %v", c.s.BlobFile(hash), of, err)
		}
		for _, part := range parts {
			c.need(part, "a file that went along with "+of)
		}
	}
	err := blobs(dir, func(hash, name string) error {
		c.Blobs++
		delete(c.needs, hash)
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != hash {
			c.fault("%s: its content is another one now", name)
		}
		return nil
	})
	var missing []string
	for hash, who := range c.needs {
		missing = append(missing, fmt.Sprintf("%s is missing: it is %s", c.s.BlobFile(hash), who))
	}
	slices.Sort(missing)
	c.Faults = append(c.Faults, missing...)
	return err
}
