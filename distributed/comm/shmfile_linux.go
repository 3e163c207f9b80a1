package comm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// shmFile is a mapped file that ranks of one host share. Its name exists only
// until all have mapped it.
type shmFile struct {
	path  string
	nonce uint64
	mem   []byte
}

// createShm makes a file of size bytes in dir, readable by this user only, in
// the first of dir, /dev/shm and the temporary folder that has room.
func createShm(dir string, size int) (*shmFile, error) {
	dirs := []string{dir}
	if dir == "" {
		dirs = []string{"/dev/shm", os.TempDir()}
	}
	var err error
	for _, d := range dirs {
		var f *shmFile
		if f, err = createShmIn(d, size); err == nil {
			return f, nil
		}
	}
	return nil, err
}

func createShmIn(dir string, size int) (*shmFile, error) {
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, fmt.Errorf("random name for shared memory: %w", err)
	}
	s := &shmFile{
		path:  filepath.Join(dir, fmt.Sprintf("gtc-%x", key[:8])),
		nonce: binary.LittleEndian.Uint64(key[8:]),
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Without reserved pages a full file system would show as a bus error at
	// the first write, not as an error here.
	if err = syscall.Fallocate(int(f.Fd()), 0, 0, int64(size)); err == nil {
		err = s.mapFile(f, size)
	}
	if err != nil {
		os.Remove(s.path)
		return nil, fmt.Errorf("shared memory of %d bytes in %s: %w", size, dir, err)
	}
	binary.LittleEndian.PutUint64(s.mem, s.nonce)
	return s, nil
}

// openShm maps the leader's file, after a look that it is the same file and
// not one of the same name in another container.
func openShm(path string, nonce uint64, size int) (*shmFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() != int64(size) {
		return nil, fmt.Errorf("%s is not the shared memory of this job: it has %d bytes, not %d", path, st.Size(), size)
	}
	s := &shmFile{path: path, nonce: nonce}
	if err := s.mapFile(f, size); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(s.mem) != nonce {
		s.unmap()
		return nil, fmt.Errorf("%s is not the shared memory of this job", path)
	}
	return s, nil
}

func (s *shmFile) mapFile(f *os.File, size int) (err error) {
	s.mem, err = syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return err
}

func (s *shmFile) unlink() { os.Remove(s.path) }

func (s *shmFile) unmap() {
	if s.mem != nil {
		syscall.Munmap(s.mem)
		s.mem = nil
	}
}

// mountNamespace tells containers of one host apart, which do not share files.
func mountNamespace() string {
	s, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return ""
	}
	return s
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(b)
}
