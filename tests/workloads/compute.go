// Compute in Go: goroutines on channels, maps, garbage, and panics recovered. The argument says how often.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
)

type node struct{ left, right *node }

func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{tree(depth - 1), tree(depth - 1)}
}

func (n *node) count() int {
	if n == nil {
		return 0
	}
	return 1 + n.left.count() + n.right.count()
}

func words(count int) int {
	seen := map[string]int{}
	for i := 0; i < count; i++ {
		seen[strconv.FormatInt(int64(i*2654435%4096), 16)]++
	}
	keys := make([]string, 0, len(seen))
	for key := range seen {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	total := 0
	for _, key := range keys {
		total += len(key) * seen[key]
	}
	return total
}

func recovered(i int) (code int) {
	defer func() {
		if problem := recover(); problem != nil {
			code = 2
		}
	}()
	var pointer *int
	if i%2 == 0 {
		return *pointer
	}
	return 1
}

func main() {
	rounds := 1
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	results := make(chan int)
	for worker := 0; worker < 4; worker++ {
		go func() {
			total := 0
			for round := 0; round < rounds; round++ {
				total += words(5000) + tree(12).count() + recovered(round)
			}
			results <- total
		}()
	}
	total := 0
	for worker := 0; worker < 4; worker++ {
		total += <-results
	}
	fmt.Println(total)
}
