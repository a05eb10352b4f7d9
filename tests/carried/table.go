// A table of strings, sorted keys, sums by several goroutines, a child program: what Go's runtime does with memory,
// threads, signals and processes.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"sync"
)

func main() {
	entries := 400000
	if len(os.Args) > 1 {
		if asked, err := strconv.Atoi(os.Args[1]); err == nil {
			entries = asked
		}
	}
	table := map[uint32]string{}
	x := uint32(1)
	for range entries {
		x = x*1664525 + 1013904223
		table[x>>4] = fmt.Sprintf("value %d", x)
	}
	keys := make([]uint32, 0, len(table))
	for key := range table {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	sums := make([]uint64, 4)
	var workers sync.WaitGroup
	for worker := range sums {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := worker; i < len(keys); i += len(sums) {
				for _, byte := range []byte(table[keys[i]]) {
					sums[worker] = sums[worker]*31 + uint64(byte)
				}
			}
		}()
	}
	workers.Wait()
	child, err := exec.Command("/bin/sh", "-c", "echo from a child").Output()
	own, _ := os.Executable()
	fmt.Println(len(keys), sums, string(child), err, own)
}
