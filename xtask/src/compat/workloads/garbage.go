// Objects that live long and others that do not, in several goroutines.
package main

import "fmt"

func churn(seed int, sums chan<- int) {
	var kept [][]byte
	sum := 0
	for n := 0; n < 200000; n++ {
		bytes := make([]byte, 200+n%100)
		bytes[n%len(bytes)] = byte(n + seed)
		kept = append(kept, bytes)
		if len(kept) > 20000 {
			for _, value := range kept[0] {
				sum += int(value)
			}
			kept = kept[1:]
		}
	}
	sums <- sum + len(kept)
}

func main() {
	all := map[int]string{}
	for n := 0; n < 400000; n++ {
		all[n] = fmt.Sprint("value ", n)
	}
	sum := 0
	for n := 0; n < 400000; n++ {
		sum += len(all[n*7919%400000])
	}
	fmt.Println("objects", sum)
	sums := make(chan int)
	for seed := 0; seed < 4; seed++ {
		go churn(seed, sums)
	}
	fmt.Println("goroutines", <-sums+<-sums+<-sums+<-sums)
}
