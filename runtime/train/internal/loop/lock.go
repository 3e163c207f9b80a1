package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gtc-compiler/gtc/runtime/filelock"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// lockFile, in a folder of checkpoints, is locked by the one run that saves there and says which that is. The system drops
// the lock when the process ends, however it ends: what a dead run wrote there means nothing.
const lockFile = ".lock"

// holder is what the file says of the run that has it locked.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// lock takes the folder of checkpoints for this run, until unlock. Where the file system has no locks, it goes without.
func (s *session) lock(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return ranks.Usagef("checkpoints cannot be saved (--checkpoint-dir): %w", err)
	}
	switch err := filelock.Try(f); {
	case errors.Is(err, filelock.ErrHeld):
		defer f.Close()
		return ranks.Usagef("another run saves its checkpoints in %s%s: wait until it is over, or give another --checkpoint-dir", dir, whose(f))
	case err != nil:
		s.rep.Note("%s cannot be locked (%v): nothing keeps a second run from saving there", dir, err)
		return f.Close()
	}
	host, _ := os.Hostname() // "" says enough
	text, err := json.Marshal(holder{os.Getpid(), host, time.Now().Round(time.Second)})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(text, '\n'), 0)
	}
	if err != nil {
		f.Close()
		return ranks.Usagef("checkpoints cannot be saved (--checkpoint-dir): %w", err)
	}
	s.locked = f
	return nil
}

// unlock gives the folder back. The file stays: another run may be about to lock it.
func (s *session) unlock() {
	if s.locked != nil {
		s.locked.Close()
		s.locked = nil
	}
}

// whose names the run that has f locked, ", process 12 on host since …"; "" when the file does not say.
func whose(f *os.File) string {
	var h holder
	if json.NewDecoder(f).Decode(&h) != nil || h.PID == 0 {
		return ""
	}
	return fmt.Sprintf(", process %d on %s since %s", h.PID, or(h.Host, "an unnamed host"), h.Since.Format(time.DateTime))
}
