package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"plait.dev/plait/egress"
)

// keepEvery is how often what was found out about prefixes is written. A process that is killed loses no more.
const keepEvery = time.Minute

// stateDirectory outlives the boot where systemd gives one; else it is where plait keeps what outlives the process.
func stateDirectory(directory string) string {
	if d, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); d != "" { // the first of several
		return d
	}
	return directory
}

// remember reads what a process before this one found out. Without it plait measures anew.
func (x *exits) remember() []egress.Known {
	text, err := os.ReadFile(x.memory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var known []egress.Known
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil {
		x.logf("what was measured of prefixes is lost, and is measured anew: %v", err)
		return nil
	}
	return known
}

// keep writes it, all or nothing.
func (x *exits) keep() {
	x.mu.Lock()
	known := x.worth.Known()
	x.mu.Unlock()
	if len(known) == 0 {
		return
	}
	if err := replaceFile(x.memory, known); err != nil {
		x.logf("keep what was measured of prefixes: %v; it is tried again", err)
	}
}

func replaceFile(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(append(text, '\n')); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
