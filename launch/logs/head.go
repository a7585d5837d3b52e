package logs

import (
	"sync"
)

// Head keeps the first 16 KiB of a text. Safe for concurrent use.
type Head struct {
	mu sync.Mutex // guards b
	b  []byte
}

func (c *Head) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.b = append(c.b, p[:min(len(p), 16<<10-len(c.b))]...)
	c.mu.Unlock()
	return len(p), nil
}

func (c *Head) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.b)
}
